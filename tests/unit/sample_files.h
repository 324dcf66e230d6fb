// Real files written by other software, which are not part of the project: tests that need them skip where they are
// absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace volpipe::test {

/// Path of `name` in the folder data/ of $VOLPIPE_SHARED, or of a folder `shared` beside the sources or the folder the
/// test runs in, or above them; empty where it is absent.
inline std::string sample_file(const std::string& name) {
  namespace fs = std::filesystem;
  const auto found_in = [&](const fs::path& folder) {
    std::error_code failure;
    return fs::exists(folder / "data" / name, failure) ? (folder / "data" / name).string() : std::string();
  };
  if (const char* shared = std::getenv("VOLPIPE_SHARED")) return found_in(shared);
  for (const fs::path& start : {fs::absolute(__FILE__), fs::current_path()})
    for (fs::path folder = start; folder.has_relative_path(); folder = folder.parent_path())
      if (const std::string path = found_in(folder.parent_path() / "shared"); !path.empty()) return path;
  return {};
}

}  // namespace volpipe::test
