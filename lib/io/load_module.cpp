#include "io/load_module.h"

#include <dlfcn.h>

#include <filesystem>

#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;

constexpr char kFileName[] = "libvolpipe_io.so";

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&load_module), &self) && self.dli_fname) {
    const fs::path folder = fs::absolute(self.dli_fname).parent_path();
    paths = {(folder / kFileName).string(), (folder / ".." / "lib" / kFileName).string()};
  }
  paths.push_back(kFileName);
  return paths;
}

const Module* open_module() {
  std::string reason;
  for (const std::string& path : candidates()) {
    std::error_code ignored;
    const bool named_file = path.find('/') != std::string::npos;
    if (named_file && !fs::exists(path, ignored)) continue;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      if (const auto entry = reinterpret_cast<decltype(&volpipe_io_module)>(dlsym(library, kModuleSymbol)))
        return entry();
    }
    if (reason.empty()) reason = dlerror();
  }
  throw Error(ErrorCode::internal, "the module for DICOM, NRRD and MetaImage could not be loaded (" + reason +
                                       "): keep libvolpipe_io.so beside libvolpipe.so and install the ITK and GDCM "
                                       "libraries that it was built with");
}

}  // namespace

const Module& load_module() {
  static const Module* const module = open_module();
  return *module;
}

}  // namespace volpipe::io
