// Functions of libraries that are loaded at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "volume/error.h"

namespace volpipe {

/// Finds the functions of one library.
class FunctionFinder {
 public:
  /// `library` comes from dlopen; `owner` is the library in words.
  FunctionFinder(void* library, std::string owner) : library_(library), owner_(std::move(owner)) {}

  /// Sets `function` to the one that the library calls `name`. Throws Error(device) when it has none.
  template <class Function>
  void operator()(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (!function) throw Error(ErrorCode::device, owner_ + " has no function " + name + ": install a newer version");
  }

 private:
  void* library_;
  std::string owner_;
};

}  // namespace volpipe
