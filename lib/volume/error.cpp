#include "volume/error.h"

#include <algorithm>
#include <cctype>

namespace volpipe {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::input:
      return "input";
    case ErrorCode::output:
      return "output";
    case ErrorCode::exists:
      return "exists";
    case ErrorCode::device:
      return "device";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

std::string itk_reason(std::string description) {
  for (const std::string_view start : {"itk::ERROR:", "ITK ERROR:"})
    if (const auto at = description.find(start); at != std::string::npos) {
      const auto end = description.find("): ", at);
      description.erase(at, end == std::string::npos ? start.size() : end + 3 - at);
    }
  std::string line;
  for (const char c : description)
    if (const char shown = std::isspace(static_cast<unsigned char>(c)) ? ' ' : c; shown != ' ' || !line.ends_with(' '))
      line += shown;
  while (line.ends_with(' ') || line.ends_with('.')) line.pop_back();
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

}  // namespace volpipe
