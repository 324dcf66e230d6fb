#include "spec/json_text.h"

#include <algorithm>
#include <vector>

namespace volpipe {

namespace {

constexpr int kDeepest = 64;  // bounds the recursion of everything that walks a spec

int line_at(const std::string& text, std::size_t offset) {
  return 1 + int(std::count(text.begin(), text.begin() + std::ptrdiff_t(std::min(offset, text.size())), '\n'));
}

/// Walks a text that nlohmann::json took for valid JSON with comments and records the line of every value. Comments
/// end, and blanks are, where they do for that parser.
class LineRecorder {
 public:
  LineRecorder(const std::string& text, std::map<std::string, int>& lines, Faults& faults)
      : text_(text), lines_(lines), faults_(faults) {}

  void record() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // a byte order mark
    value("");
  }

 private:
  std::size_t end_of_line_comment() const {
    return std::min(text_.find_first_of(std::string_view("\n\r\0", 3), at_), text_.size());
  }

  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_.compare(at_, 2, "//") == 0) {
        at_ = end_of_line_comment();
        if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      } else if (text_.compare(at_, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", at_ + 2) + 1;
        line_ += int(std::count(text_.begin() + std::ptrdiff_t(at_), text_.begin() + std::ptrdiff_t(end), '\n'));
        at_ = end;
      } else if (!std::isspace(static_cast<unsigned char>(text_[at_]))) {
        return;
      }
    }
  }

  std::string string_token() {
    const std::size_t begin = at_++;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
    return Json::parse(text_.substr(begin, at_ - begin)).get<std::string>();
  }

  void value(const std::string& pointer) {
    skip_blanks();
    lines_[pointer] = line_;
    if (text_[at_] == '{') object(pointer);
    else if (text_[at_] == '[') array(pointer);
    else if (text_[at_] == '"') string_token();
    else
      while (at_ < text_.size() && std::string_view(",]} \t\r\n/").find(text_[at_]) == std::string_view::npos) ++at_;
  }

  void object(const std::string& pointer) {
    ++at_;
    for (skip_blanks(); text_[at_] != '}'; skip_blanks()) {
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      const int key_line = line_;
      const std::string child = pointer + "/" + pointer_token(string_token());
      if (lines_.contains(child)) {
        faults_.add(child, "is given twice (first on line " + std::to_string(lines_[child]) + ")");
        faults_.list().back().line = key_line;
      }
      skip_blanks();
      ++at_;  // ':'
      value(child);
    }
    ++at_;
  }

  void array(const std::string& pointer) {
    ++at_;
    std::size_t index = 0;
    for (skip_blanks(); text_[at_] != ']'; skip_blanks()) {
      if (text_[at_] == ',') ++at_;
      else value(pointer + "/" + std::to_string(index++));
    }
    ++at_;
  }

  const std::string& text_;
  std::map<std::string, int>& lines_;
  Faults& faults_;
  std::size_t at_ = 0;
  int line_ = 1;
};

std::string reason_of(const nlohmann::json::parse_error& error) {
  std::string text = error.what();
  if (const std::size_t at = text.find("syntax error"); at != std::string::npos) text = text.substr(at);
  return text;
}

}  // namespace

std::string pointer_token(const std::string& key) {
  std::string token;
  for (char c : key) token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

int JsonText::line_of(std::string pointer) const {
  for (;;) {
    if (const auto found = lines.find(pointer); found != lines.end()) return found->second;
    const std::size_t slash = pointer.rfind('/');
    if (slash == std::string::npos) return 1;
    pointer.resize(slash);
  }
}

JsonText parse_json_text(const std::string& text, Faults& faults) {
  JsonText result;
  int deepest = 0;
  const auto note_depth = [&deepest](int depth, Json::parse_event_t, Json&) {
    deepest = std::max(deepest, depth);
    return true;
  };
  try {
    result.value = Json::parse(text, note_depth, true, true);
  } catch (const nlohmann::json::parse_error& error) {
    faults.add("", "this is not valid JSON: " + reason_of(error));
    faults.list().back().line = line_at(text, error.byte ? error.byte - 1 : 0);
    return result;
  } catch (const nlohmann::json::out_of_range&) {
    faults.add("", "a number is too large for a double");
    faults.list().back().line = 1;
    return result;
  }
  if (deepest > kDeepest) {
    faults.add("", "values are nested more than " + std::to_string(kDeepest) + " deep");
    faults.list().back().line = 1;
    result.value = nullptr;
    return result;
  }
  const std::size_t before = faults.list().size();
  LineRecorder(text, result.lines, faults).record();
  if (faults.list().size() != before) result.value = nullptr;
  return result;
}

}  // namespace volpipe
