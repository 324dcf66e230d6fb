#include "device/load_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "volume/error.h"

namespace volpipe {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> candidates(const std::string& file) {
  std::vector<std::string> paths;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&load_symbol), &self) && self.dli_fname) {
    const fs::path folder = fs::absolute(self.dli_fname).parent_path();
    paths = {(folder / file).string(), (folder / ".." / "lib" / file).string()};
  }
  paths.push_back(file);
  return paths;
}

}  // namespace

void* load_symbol(const LibraryName& library, const char* symbol) {
  std::string reason;
  for (const std::string& path : candidates(library.file)) {
    std::error_code ignored;
    const bool named_file = path.find('/') != std::string::npos;
    if (named_file && !fs::exists(path, ignored)) continue;
    if (void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      if (void* address = dlsym(loaded, symbol)) return address;
    if (reason.empty()) reason = dlerror();
  }
  throw Error(ErrorCode::internal, library.purpose + " could not be loaded (" + reason + "): keep " + library.file +
                                       " beside libvolpipe.so and install the " + library.needs +
                                       " libraries that it was built with");
}

}  // namespace volpipe
