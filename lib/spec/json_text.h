// JSON as people write it: // comments, and faults that name the line.
#pragma once

#include <map>
#include <string>

#include "spec/parameters.h"

namespace volpipe {

/// A parsed text that remembers where each value stands.
struct JsonText {
  Json value;
  std::map<std::string, int> lines;  ///< JSON pointer of every value -> line, 1-based

  /// Line of `pointer`, or of its nearest ancestor that exists.
  int line_of(std::string pointer) const;
};

/// Parses `text`; a syntax error or a key given twice is a fault (its line set) and leaves `value` null.
JsonText parse_json_text(const std::string& text, Faults& faults);

/// "key" as one token of a JSON pointer ('~' and '/' escaped).
std::string pointer_token(const std::string& key);

}  // namespace volpipe
