#include "device/kernel_program.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace volpipe {

namespace {

constexpr std::size_t kMostFaults = 5;
constexpr std::string_view kOwnName = KernelProgram::kName;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

std::string quoted_for_line_directive(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

/// The first line of a message: `name(line): error: text`, or a fault of the assembler, which has no place.
struct Header {
  std::string name;
  std::size_t line = 0;  ///< 0: none
  std::string message;   ///< with the severity
  bool is_error = false;
};

bool is_error(std::string_view message) {
  return message.starts_with("error") || message.starts_with("catastrophic error");
}

std::optional<Header> placed_header(const std::string& line) {
  for (std::size_t end = line.find("): "); end != std::string::npos; end = line.find("): ", end + 1)) {
    const std::size_t open = line.rfind('(', end);
    if (open == std::string::npos) continue;
    Header header{line.substr(0, open), 0, line.substr(end + 3)};
    const char* last = line.data() + end;
    const auto [stop, fault] = std::from_chars(line.data() + open + 1, last, header.line);
    if (fault != std::errc{} || stop != last) continue;
    header.is_error = is_error(header.message);
    if (header.is_error || header.message.starts_with("warning") || header.message.starts_with("note")) return header;
  }
  return std::nullopt;
}

std::optional<Header> header_of(const std::string& line) {
  if (auto header = placed_header(line)) return header;
  for (const std::string_view start : {"At end of source: ", "ptxas ", "nvrtc: "})
    if (line.starts_with(start)) {
      const std::string message = line.substr(start == "ptxas " ? 0 : start.size());
      return Header{"", 0, message, line.find("error") != std::string::npos};
    }
  return std::nullopt;
}

bool is_summary(const std::string& line) {
  return line.ends_with(" of \"" + std::string(kOwnName) + "\".") || line.starts_with("Compilation terminated") ||
         line.starts_with("Remark: ");
}

struct Fault {
  Header header;
  std::string quote;  ///< the lines below it: source, caret, instantiations
};

std::vector<Fault> faults_of(const std::string& log) {
  std::vector<Fault> faults;
  bool keeping = false;
  for (const std::string& line : lines_of(log)) {
    if (auto header = header_of(line)) {
      keeping = header->is_error;
      if (keeping) faults.push_back({std::move(*header), ""});
    } else if (keeping && !line.empty() && !is_summary(line)) {
      faults.back().quote += "\n  " + line;
    }
  }
  return faults;
}

/// A fault in volpipe's text that no fault of the user's explains.
std::string in_own_words(const std::string& message) {
  constexpr std::string_view kAssertion = "error: static assertion failed with \"";
  if (message.starts_with(kAssertion))
    return "error: " + message.substr(kAssertion.size(), message.size() - kAssertion.size() - 1);
  if (message.starts_with("ptxas")) return message;
  return "error: a bracket of the code is not closed, or one too many is (" + message + ")";
}

std::string in_words(const KernelProgram& program, const Fault& fault) {
  const Header& header = fault.header;
  std::string message = header.message;
  if (message.find("could not open source file") != std::string::npos)
    message += "; code is compiled by itself, without headers";
  const UserCode* code = program.find(header.name);
  if (!code) return in_own_words(message);
  const std::vector<std::string> lines = lines_of(code->text);
  std::size_t line = std::min(header.line, lines.size());
  while (line > 1 && lines[line - 1].find_first_not_of(" \t\r") == std::string::npos) --line;
  const std::string quote = line == header.line ? fault.quote : line ? "\n    " + lines[line - 1] : "";
  return code->name + ":" + std::to_string(line) + ": " + message + quote;
}

}  // namespace

KernelProgram& KernelProgram::add(std::string_view own) {
  text_ += own;
  return *this;
}

KernelProgram& KernelProgram::add_code(UserCode code, std::string_view end) {
  text_ += "\n#line 1 " + quoted_for_line_directive(code.name) + "\n" + code.text + "\n";
  text_.append(end).append("\n#line 1 ").append(quoted_for_line_directive(kOwnName)).append("\n");
  user_code_.push_back(std::move(code));
  return *this;
}

const UserCode* KernelProgram::find(std::string_view name) const {
  const auto found =
      std::find_if(user_code_.begin(), user_code_.end(), [&](const UserCode& code) { return code.name == name; });
  return found == user_code_.end() ? nullptr : &*found;
}

std::string explain_compile_log(const KernelProgram& program, const std::string& log) {
  std::vector<Fault> faults = faults_of(log);
  if (faults.empty()) return log;
  const auto in_own_text = [&](const Fault& fault) { return !program.find(fault.header.name); };
  if (std::all_of(faults.begin(), faults.end(), in_own_text)) faults.erase(faults.begin() + 1, faults.end());
  else std::erase_if(faults, in_own_text);
  std::string text;
  for (std::size_t i = 0; i < std::min(faults.size(), kMostFaults); ++i)
    text += (i ? "\n" : "") + in_words(program, faults[i]);
  if (faults.size() > kMostFaults) text += "\n(and " + std::to_string(faults.size() - kMostFaults) + " more)";
  return text;
}

}  // namespace volpipe
