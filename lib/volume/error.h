// The one error type of the library. Context (path, stage) is added while it unwinds; it is caught once per item in the
// runner and once in main.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace volpipe {

/// What kind of fault it is; the app maps it to an exit code, the report writes its name.
enum class ErrorCode {
  usage,          ///< wrong command line or spec
  input,          ///< a file that cannot be trusted or read
  output,         ///< a result that cannot be written (space, permission, format)
  exists,         ///< an output is already there
  device,         ///< the device asked for cannot be used
  out_of_memory,  ///< host or device memory is short
  unsupported,    ///< sound input that volpipe does not handle
  internal        ///< a fault of volpipe itself
};

std::string_view to_string(ErrorCode code);

/// Message form: what was wrong, what was expected, what to do; one sentence, no trailing newline.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const { return code_; }
  const std::string& path() const { return path_; }    ///< file concerned, empty when none
  const std::string& stage() const { return stage_; }  ///< stage concerned, empty when none

  /// The innermost context wins: a second call does not overwrite.
  Error&& with_path(std::string path) && {
    if (path_.empty()) path_ = std::move(path);
    return std::move(*this);
  }
  Error&& with_stage(std::string stage) && {
    if (stage_.empty()) stage_ = std::move(stage);
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string path_;
  std::string stage_;
};

/// What ITK says of an exception, without its class names and addresses, on one line.
std::string itk_reason(std::string description);

/// Calls `work`; an Error that escapes it gains the path.
template <class Work>
decltype(auto) with_path(const std::string& path, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (Error& error) { throw std::move(error).with_path(path); }
}

/// Calls `work`; an Error that escapes it gains the stage's name.
template <class Work>
decltype(auto) with_stage(const std::string& stage, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (Error& error) { throw std::move(error).with_stage(stage); }
}

}  // namespace volpipe
