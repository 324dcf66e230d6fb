// Functions of libraries that are loaded at run time.
#pragma once

#include <dlfcn.h>

#include <string>

#include "volume/error.h"

namespace volpipe {

/// Sets `function` to the one that `library` (from dlopen) calls `name`. Throws Error(device) when it has none; `owner`
/// is the library in words.
template <class Function>
void find_function(void* library, const std::string& owner, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw Error(ErrorCode::device, owner + " has no function " + name + ": install a newer version");
}

}  // namespace volpipe
