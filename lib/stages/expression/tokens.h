// The words of an expression.
#pragma once

#include <string_view>
#include <vector>

#include "stages/expression/expression.h"

namespace volpipe {

enum class TokenKind : std::uint8_t { number, name, symbol, end };

struct Token {
  TokenKind kind;
  std::string_view text;  ///< of a symbol in one spelling: "and", "or", "not" for && || and; "^" for **
  TextRange place;
  double value = 0;  ///< number
};

/// The tokens of `text`, the last of kind end. `text` must outlive them. Throws ExpressionError at what is none.
std::vector<Token> tokens_of(std::string_view text);

/// "'word'", shortened where it is long.
std::string in_quotes(std::string_view word);

}  // namespace volpipe
