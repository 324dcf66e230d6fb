#include "stages/expression/tokens.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace volpipe {

namespace {

constexpr std::size_t kShownBefore = 60, kShownBehind = 40;  // bytes of a long line

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return starts_name(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Bytes of the UTF-8 character at `at`; 0 where there is none.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t n) -> unsigned {
    return at + n < text.size() ? static_cast<unsigned char>(text[at + n]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  for (std::size_t n = 1; n < length; ++n)
    if ((byte(n) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool no_character = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
  return overlong || no_character ? 0 : length;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// The text's line at the place, and below it a caret and the place's length.
std::string marked_line(std::string_view text, TextRange place) {
  const std::size_t position = std::min(place.position, text.size());
  const std::size_t newline = text.substr(0, position).rfind('\n');
  const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  const std::size_t line_end = std::min(text.find('\n', position), text.size());
  const bool cut_before = position - line_begin > kShownBefore, cut_behind = line_end - position > kShownBehind;
  std::size_t begin = cut_before ? position - kShownBefore : line_begin;
  while (cut_before && begin < position && character_length(text, begin) == 0) ++begin;
  const std::size_t end = cut_behind ? position + kShownBehind : line_end;

  std::string line = cut_before ? "  ..." : "  ", marks(line.size(), ' ');
  for (std::size_t i = begin; i < end;) {
    const std::size_t length = character_length(text, i);
    line += length == 0 ? "?" : is_control(text[i]) ? " " : text.substr(i, length);
    if (i <= position) marks += i == position ? '^' : ' ';
    else if (i < place.position + place.length) marks += '~';
    i += std::max<std::size_t>(length, 1);
  }
  if (position >= end) marks += '^';
  return line + (cut_behind ? "...\n" : "\n") + marks;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> read() {
    std::vector<Token> tokens;
    for (;;) {
      while (at_ < text_.size() && is_space(text_[at_])) ++at_;
      if (at_ == text_.size()) break;
      tokens.push_back(next());
      at_ += tokens.back().place.length;
    }
    tokens.push_back({TokenKind::end, "", {at_, 0}});
    return tokens;
  }

 private:
  char peek(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Token next() const {
    if (is_digit(peek(0)) || (peek(0) == '.' && is_digit(peek(1)))) return number();
    if (starts_name(peek(0))) return name();
    return symbol();
  }

  Token number() const {
    Token token{TokenKind::number, "", {at_, 0}};
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(begin, end, token.value);
    const char* last = stop;
    while (last != end && (in_name(*last) || *last == '.')) ++last;
    token.place.length = std::size_t(last - begin);
    token.text = text_.substr(at_, token.place.length);
    if (last != stop && starts_name(*stop) && *stop != 'e' && *stop != 'E')
      fail(token.place, in_quotes(token.text) + " is not a number: put an operator, such as *, before " +
                            in_quotes({stop, std::size_t(last - stop)}));
    if (last != stop) fail(token.place, in_quotes(token.text) + " is not a number: write 12, .5 or 1e-3");
    if (error != std::errc{})
      fail(token.place, in_quotes(token.text) + " is beyond the numbers of double precision (about 1e-308 to 1e308)");
    return token;
  }

  Token name() const {
    std::size_t length = 1;
    while (in_name(peek(length))) ++length;
    const std::string_view word = text_.substr(at_, length);
    const bool symbol = word == "and" || word == "or" || word == "not";
    return {symbol ? TokenKind::symbol : TokenKind::name, word, {at_, length}};
  }

  Token symbol() const {
    struct Spelling {
      std::string_view written, meant;
    };
    constexpr auto kSymbols = std::to_array<Spelling>(
        {{"&&", "and"}, {"||", "or"}, {"**", "^"}, {"<=", "<="}, {">=", ">="}, {"==", "=="}, {"!=", "!="},
         {"<", "<"},    {">", ">"},   {"!", "!"},  {"+", "+"},   {"-", "-"},   {"*", "*"},   {"/", "/"},
         {"%", "%"},    {"^", "^"},   {"(", "("},  {")", ")"},   {"[", "["},   {"]", "]"},   {",", ","}});
    const std::string_view rest = text_.substr(at_);
    for (const auto& [written, meant] : kSymbols)
      if (rest.starts_with(written)) return {TokenKind::symbol, meant, {at_, written.size()}};
    if (rest[0] == '=') fail({at_, 1}, "'=' is no operator: write == to compare");
    if (rest[0] == '&') fail({at_, 1}, "'&' is no operator: write 'and' or &&");
    if (rest[0] == '|') fail({at_, 1}, "'|' is no operator: write 'or' or ||");
    const std::size_t length = character_length(text_, at_);
    const bool shown = length > 0 && !is_control(rest[0]);
    fail({at_, std::max<std::size_t>(length, 1)},
         (shown ? in_quotes(rest.substr(0, length)) : "this byte") +
             " has no meaning here: an expression is made of numbers, names, operators and parentheses");
  }

  [[noreturn]] void fail(TextRange place, std::string message) const {
    throw ExpressionError(text_, place, std::move(message));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

ExpressionError::ExpressionError(std::string_view text, TextRange place, std::string message)
    : Error(ErrorCode::usage, message + "\n" + marked_line(text, place)), message_(std::move(message)), place_(place) {}

std::vector<Token> tokens_of(std::string_view text) { return Lexer(text).read(); }

std::string in_quotes(std::string_view word) {
  constexpr std::size_t kLongest = 40;
  return "'" + (word.size() <= kLongest ? std::string(word) : std::string(word.substr(0, kLongest)) + "...") + "'";
}

}  // namespace volpipe
