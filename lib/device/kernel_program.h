// A CUDA C++ program that is put together at run time from volpipe's own text and a user's, and the compiler's messages
// about it as its user should see them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace volpipe {

/// Text that a user wrote; `name` is what messages call it: a key of the spec or a file's name.
struct UserCode {
  std::string name;
  std::string text;
};

class KernelProgram {
 public:
  static constexpr std::string_view kName = "<volpipe>";  ///< what the compiler calls volpipe's own text

  KernelProgram& add(std::string_view own);
  /// `code` on lines of its own, and what ends its construct ("}", ")"): a fault met there is the user's, too.
  KernelProgram& add_code(UserCode code, std::string_view end = "");

  const std::string& text() const { return text_; }
  /// The code of that name; null when there is none.
  const UserCode* find(std::string_view name) const;

 private:
  std::string text_;
  std::vector<UserCode> user_code_;
};

/// NVRTC's log of a failed compilation, one fault after another:
///   source:2: error: identifier "foo" is undefined
///     out = foo;
///           ^
/// Faults are placed in the user's lines; those in volpipe's text, which follow from others, are left out unless there
/// are no others. At most five are shown.
std::string explain_compile_log(const KernelProgram& program, const std::string& log);

}  // namespace volpipe
