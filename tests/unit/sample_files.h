// Real files written by other software, which are not part of the project: tests that need them skip where they are
// absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace volpipe::test {

/// Path of `name` in the folder data/ of $VOLPIPE_SHARED, or of ../shared beside the sources; empty where it is absent.
inline std::string sample_file(const std::string& name) {
  namespace fs = std::filesystem;
  const char* shared = std::getenv("VOLPIPE_SHARED");
  const fs::path sources = fs::path(__FILE__).parent_path().parent_path().parent_path();
  for (const fs::path& folder :
       {fs::path(shared ? shared : ""), sources / ".." / "shared", sources / ".." / ".." / "shared"}) {
    std::error_code failure;
    if (!folder.empty() && fs::exists(folder / "data" / name, failure)) return (folder / "data" / name).string();
  }
  return {};
}

}  // namespace volpipe::test
