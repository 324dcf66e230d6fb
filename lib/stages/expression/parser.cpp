#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "stages/expression/builder.h"
#include "stages/expression/expression.h"
#include "stages/expression/tokens.h"

namespace volpipe {

namespace {

using Kind = ExpressionNode::Kind;

constexpr std::string_view kNeighbourForm = "neighbours are read as image[dx,dy,dz]";

enum class Form : std::uint8_t { one, two, extreme, clamp, where, is_nan, count, reduction, percentile };

struct Function {
  std::string_view usage;  ///< begins with the name
  Form form;
  std::size_t least, most;  ///< arguments
  Op op = Op::set;
  Reduction reduction = Reduction::mean;
  double percent = 0;

  std::string_view name() const { return usage.substr(0, usage.find('(')); }
};

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

constexpr auto kFunctions = std::to_array<Function>({
    {"abs(v)", Form::one, 1, 1, Op::abs},
    {"sqrt(v)", Form::one, 1, 1, Op::sqrt},
    {"exp(v)", Form::one, 1, 1, Op::exp},
    {"log(v)", Form::one, 1, 1, Op::log},
    {"log10(v)", Form::one, 1, 1, Op::log10},
    {"sin(v)", Form::one, 1, 1, Op::sin},
    {"cos(v)", Form::one, 1, 1, Op::cos},
    {"tan(v)", Form::one, 1, 1, Op::tan},
    {"atan2(y, x)", Form::two, 2, 2, Op::atan2},
    {"floor(v)", Form::one, 1, 1, Op::floor},
    {"ceil(v)", Form::one, 1, 1, Op::ceil},
    {"round(v)", Form::one, 1, 1, Op::round},
    {"sign(v)", Form::one, 1, 1, Op::sign},
    {"isfinite(v)", Form::one, 1, 1, Op::is_finite},
    {"isnan(v)", Form::is_nan, 1, 1},
    {"pow(v, exponent)", Form::two, 2, 2, Op::power},
    {"mod(v, divisor)", Form::two, 2, 2, Op::modulo},
    {"clamp(v, low, high)", Form::clamp, 3, 3},
    {"where(condition, then, otherwise)", Form::where, 3, 3},
    {"min(a, b, ...), or min(v) of all voxels", Form::extreme, 1, kAny, Op::least, Reduction::minimum},
    {"max(a, b, ...), or max(v) of all voxels", Form::extreme, 1, kAny, Op::greatest, Reduction::maximum},
    {"mean(v[, mask])", Form::reduction, 1, 2, Op::set, Reduction::mean},
    {"std(v[, mask])", Form::reduction, 1, 2, Op::set, Reduction::std},
    {"sum(v[, mask])", Form::reduction, 1, 2, Op::set, Reduction::sum},
    {"count(condition)", Form::count, 1, 1},
    {"median(v[, mask])", Form::reduction, 1, 2, Op::set, Reduction::percentile, 50},
    {"percentile(v, percent[, mask])", Form::percentile, 2, 3, Op::set, Reduction::percentile},
});

struct BuiltIn {
  std::string_view name;
  Kind kind;
  int axis = -1;
  double value = 0;
};

constexpr auto kBuiltIns = std::to_array<BuiltIn>({
    {"this", Kind::image},
    {"i", Kind::index, 0},
    {"j", Kind::index, 1},
    {"k", Kind::index, 2},
    {"x", Kind::world, 0},
    {"y", Kind::world, 1},
    {"z", Kind::world, 2},
    {"spacing_x", Kind::spacing, 0},
    {"spacing_y", Kind::spacing, 1},
    {"spacing_z", Kind::spacing, 2},
    {"size_x", Kind::size, 0},
    {"size_y", Kind::size, 1},
    {"size_z", Kind::size, 2},
    {"pi", Kind::constant, -1, std::numbers::pi},
    {"e", Kind::constant, -1, std::numbers::e},
    {"inf", Kind::constant, -1, std::numeric_limits<double>::infinity()},
    {"nan", Kind::constant, -1, std::numeric_limits<double>::quiet_NaN()},
});

const Function* find_function(std::string_view name) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(), [&](auto& f) { return f.name() == name; });
  return found == kFunctions.end() ? nullptr : &*found;
}

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const Function& function : kFunctions) names.emplace_back(function.name());
  return names;
}

struct BinaryOp {
  std::string_view symbol;
  Op op;
};
constexpr auto kComparisons = std::to_array<BinaryOp>({{"<", Op::less},
                                                       {"<=", Op::less_equal},
                                                       {">", Op::greater},
                                                       {">=", Op::greater_equal},
                                                       {"==", Op::equal},
                                                       {"!=", Op::not_equal}});
constexpr auto kSums = std::to_array<BinaryOp>({{"+", Op::add}, {"-", Op::subtract}});
constexpr auto kProducts = std::to_array<BinaryOp>({{"*", Op::multiply}, {"/", Op::divide}, {"%", Op::modulo}});

/// A part of the text and the node it became.
struct Part {
  int node;
  TextRange place;
};

TextRange from_to(TextRange first, TextRange last) {
  return {first.position, last.position + last.length - first.position};
}

/// One function for each level of precedence, the loosest first.
class Parser {
 public:
  Parser(const std::string& text, const ExpressionNames& names)
      : text_(text), names_(names), tokens_(tokens_of(text)) {}

  Expression parse() {
    if (now().kind == TokenKind::end) fail(now().place, "the expression is empty: write one, such as image * 2");
    const Part part = disjunction();
    if (now().kind != TokenKind::end) fail_behind_operand("");
    return builder_.finish(text_, part.node);
  }

 private:
  Part disjunction() {
    Part left = conjunction();
    while (accept("or")) left = combine(Op::logical_or, left, conjunction());
    return left;
  }

  Part conjunction() {
    Part left = negation();
    while (accept("and")) left = combine(Op::logical_and, left, negation());
    return left;
  }

  Part negation() {
    const Token& token = now();
    if (!accept("not")) return comparison();
    const Nesting nesting(*this, token.place);
    return apply(Op::logical_not, token, negation());
  }

  Part comparison() {
    const Part left = sum();
    const BinaryOp* compared = accept_one_of(kComparisons);
    if (!compared) return left;
    const Part result = combine(compared->op, left, sum());
    const Token& next = now();
    if (accept_one_of(kComparisons))
      fail(next.place, "comparisons cannot be chained: write 'a < b and b < c', or put one in parentheses");
    return result;
  }

  Part sum() {
    Part left = product();
    while (const BinaryOp* found = accept_one_of(kSums)) left = combine(found->op, left, product());
    return left;
  }

  Part product() {
    Part left = sign();
    while (const BinaryOp* found = accept_one_of(kProducts)) left = combine(found->op, left, sign());
    return left;
  }

  Part sign() {
    const Token& token = now();
    const Nesting nesting(*this, token.place);
    if (accept("-")) return apply(Op::negate, token, sign());
    if (accept("!")) return apply(Op::logical_not, token, sign());
    if (!accept("+")) return power();
    const Part part = sign();
    return {part.node, from_to(token.place, part.place)};
  }

  Part power() {
    const Part base = operand();
    return accept("^") ? combine(Op::power, base, sign()) : base;
  }

  Part operand() {
    const Token token = now();
    if (token.kind == TokenKind::number) {
      ++at_;
      return {builder_.constant(token.value, token.place), token.place};
    }
    if (token.kind == TokenKind::name) return named();
    if (accept("(")) {
      const Part inner = disjunction();
      return {inner.node, from_to(token.place, close(")", token))};
    }
    if (token.text == "not")
      fail(token.place, "put 'not ...' in parentheses here: it binds less than what is before it");
    if (token.text == "[") fail(token.place, "'[' follows an image's name: " + std::string(kNeighbourForm));
    fail(token.place, token.kind == TokenKind::end
                          ? "the text ends where a number, a name or '(' was expected"
                          : "expected a number, a name or '(' instead of " + in_quotes(token.text));
  }

  Part named() {
    const Token token = tokens_[at_++];
    if (is("(")) return call(token);
    const std::string name(token.text);
    const auto image = names_.images.find(name);
    if (image != names_.images.end()) return image_or_neighbour(image->second, token);
    if (const std::optional<Part> value = variable(name, token)) return *value;
    const auto found = std::find_if(kBuiltIns.begin(), kBuiltIns.end(), [&](auto& b) { return b.name == name; });
    if (found != kBuiltIns.end()) return built_in(*found, token);
    if (const Function* function = find_function(name))
      fail(token.place, in_quotes(name) + " is a function: write " + std::string(function->usage));
    if (names_.any_image) return image_or_neighbour(name, token);
    fail(token.place, "there is no image or variable " + in_quotes(name) + did_you_mean(name, value_names()) +
                          (names_.images.empty() ? "" : "; the item has " + quoted_list(image_names())));
  }

  std::optional<Part> variable(const std::string& name, const Token& token) {
    if (const auto why = names_.unusable.find(name); why != names_.unusable.end())
      fail(token.place,
           "the variable " + in_quotes(name) + " " + why->second + ", and an expression takes numbers alone");
    const auto found = names_.variables.find(name);
    if (found == names_.variables.end()) return std::nullopt;
    no_offsets(token);
    return Part{builder_.constant(found->second, token.place), token.place};
  }

  Part built_in(const BuiltIn& meant, const Token& token) {
    if (meant.kind == Kind::image) return image_or_neighbour("", token);
    no_offsets(token);
    const int node = meant.kind == Kind::constant ? builder_.constant(meant.value, token.place)
                                                  : builder_.place_value(meant.kind, meant.axis, token.place);
    return {node, token.place};
  }

  void no_offsets(const Token& token) const {
    if (is("[")) fail(token.place, in_quotes(token.text) + " is not an image: " + std::string(kNeighbourForm));
  }

  Part image_or_neighbour(const std::string& image, const Token& token) {
    const Token open = now();
    if (!accept("[")) return {builder_.image(image, token.place), token.place};
    std::vector<Part> parts = arguments();
    const TextRange place = from_to(token.place, close("]", open));
    if (parts.size() != 3)
      fail(place,
           "a neighbour has 3 offsets, got " + std::to_string(parts.size()) + ": " + std::string(kNeighbourForm));
    std::array<std::int16_t, 3> offset;
    std::transform(parts.begin(), parts.end(), offset.begin(), [this](const Part& part) { return whole_offset(part); });
    const int fill = names_.fill.minimum
                         ? builder_.reduction(Reduction::minimum, builder_.image(image, token.place), 0, place)
                         : builder_.constant(names_.fill.value, place);
    return {builder_.neighbour(image, offset, fill, place), place};
  }

  std::int16_t whole_offset(const Part& part) const {
    constexpr double kFarthest = std::numeric_limits<std::int16_t>::max();
    const double value = builder_[part.node].value;
    if (!builder_.is_constant(part.node) || value != std::floor(value))
      fail(part.place, "an offset must be a whole number that is the same for all voxels");
    if (std::abs(value) > kFarthest) fail(part.place, "an offset must be a whole number from -32767 to 32767");
    return std::int16_t(value);
  }

  std::vector<Part> arguments() {
    std::vector<Part> parts;
    if (is(")") || is("]")) return parts;
    do parts.push_back(disjunction());
    while (accept(","));
    return parts;
  }

  Part call(const Token& name) {
    const Function* function = find_function(name.text);
    if (!function) fail_no_function(name);
    const Token open = tokens_[at_++];
    const std::vector<Part> parts = arguments();
    const TextRange place = from_to(name.place, close(")", open));
    if (parts.size() < function->least || parts.size() > function->most)
      fail(place, in_quotes(name.text) + " takes " + argument_count(*function) + ", got " +
                      std::to_string(parts.size()) + ": " + std::string(function->usage));
    return {called(*function, parts, place), place};
  }

  static std::string argument_count(const Function& function) {
    std::string count = std::to_string(function.least);
    if (function.most == kAny) count += " or more";
    else if (function.most > function.least) count += " or " + std::to_string(function.most);
    return count + (count == "1" ? " argument" : " arguments");
  }

  int called(const Function& function, const std::vector<Part>& parts, TextRange place) {
    const auto node = [&](std::size_t n) { return n < parts.size() ? parts[n].node : -1; };
    switch (function.form) {
      case Form::one:
      case Form::two:
        return builder_.operation(function.op, node(0), node(1), place);
      case Form::extreme: {
        if (parts.size() == 1) return builder_.reduction(function.reduction, node(0), 0, place);
        int result = node(0);
        for (std::size_t n = 1; n < parts.size(); ++n) result = builder_.operation(function.op, result, node(n), place);
        return result;
      }
      case Form::clamp:
        return builder_.operation(Op::least, builder_.operation(Op::greatest, node(0), node(1), place), node(2), place);
      case Form::where:
        return builder_.where(node(0), node(1), node(2), place);
      case Form::is_nan:
        return builder_.operation(Op::not_equal, node(0), node(0), place);
      case Form::count:
        return builder_.reduction(Reduction::count, masked(builder_.constant(1, place), node(0), place), 0, place);
      case Form::reduction:
        return builder_.reduction(function.reduction, masked(node(0), node(1), place), function.percent, place);
      case Form::percentile:
        break;
    }
    return builder_.reduction(function.reduction, masked(node(0), node(2), place), percent(parts[1]), place);
  }

  /// `value` where `mask`, if there is one, is true, and NaN elsewhere.
  int masked(int value, int mask, TextRange place) {
    if (mask < 0) return value;
    return builder_.where(mask, value, builder_.constant(std::numeric_limits<double>::quiet_NaN(), place), place);
  }

  double percent(const Part& part) const {
    const double value = builder_[part.node].value;
    if (!builder_.is_constant(part.node)) fail(part.place, "a percentile's percent must be the same for all voxels");
    if (!(value >= 0 && value <= 100)) fail(part.place, "a percentile's percent must be from 0 to 100");
    return value;
  }

  Part combine(Op op, const Part& left, const Part& right) {
    const TextRange place = from_to(left.place, right.place);
    return {builder_.operation(op, left.node, right.node, place), place};
  }

  Part apply(Op op, const Token& sign, const Part& part) {
    const TextRange place = from_to(sign.place, part.place);
    return {builder_.operation(op, part.node, -1, place), place};
  }

  const Token& now() const { return tokens_[at_]; }
  bool is(std::string_view symbol) const { return now().kind == TokenKind::symbol && now().text == symbol; }

  bool accept(std::string_view symbol) {
    if (!is(symbol)) return false;
    ++at_;
    return true;
  }

  template <std::size_t N>
  const BinaryOp* accept_one_of(const std::array<BinaryOp, N>& ops) {
    for (const BinaryOp& op : ops)
      if (accept(op.symbol)) return &op;
    return nullptr;
  }

  /// Passes the bracket that closes `open` and gives its place.
  TextRange close(std::string_view symbol, const Token& open) {
    const TextRange place = now().place;
    if (accept(symbol)) return place;
    if (now().kind == TokenKind::end)
      fail(open.place, "this " + in_quotes(open.text) + " is not closed by a " + in_quotes(symbol));
    fail_behind_operand(symbol);
  }

  /// What stands behind a complete operand is neither an operator nor the bracket that was awaited.
  [[noreturn]] void fail_behind_operand(std::string_view awaited) const {
    const Token& token = now();
    const std::string or_bracket = awaited.empty() ? "" : " or " + in_quotes(awaited);
    if (token.text == "[") fail(token.place, "only an image's name can have offsets: " + std::string(kNeighbourForm));
    if (token.text == ")" || token.text == "]")
      fail(token.place, awaited.empty() ? in_quotes(token.text) + " closes nothing: leave it out"
                                        : "expected " + in_quotes(awaited) + " instead of " + in_quotes(token.text));
    if (token.text == "!" || token.text == "not")
      fail(token.place,
           "expected an operator" + or_bracket + " before " + in_quotes(token.text) + "; 'not equal' is !=");
    if (token.text == ",") fail(token.place, "',' separates arguments of a function, and there is none here");
    fail(token.place, "expected an operator" + or_bracket + " before " + in_quotes(token.text));
  }

  [[noreturn]] void fail_no_function(const Token& name) const {
    const std::string word(name.text);
    const bool value = names_.images.contains(word) || names_.variables.contains(word) ||
                       std::any_of(kBuiltIns.begin(), kBuiltIns.end(), [&](auto& b) { return b.name == word; });
    if (value) fail(name.place, in_quotes(word) + " is no function: put an operator, such as *, before '('");
    const std::string near = did_you_mean(word, function_names());
    fail(name.place, "there is no function " + in_quotes(word) +
                         (near.empty() ? "; functions are " + quoted_list(function_names()) : near));
  }

  std::vector<std::string> image_names() const {
    std::vector<std::string> names;
    for (const auto& entry : names_.images) names.push_back(entry.first);
    return names;
  }

  std::vector<std::string> value_names() const {
    std::vector<std::string> names = image_names();
    for (const auto& entry : names_.variables) names.push_back(entry.first);
    for (const BuiltIn& built_in : kBuiltIns) names.emplace_back(built_in.name);
    return names;
  }

  [[noreturn]] void fail(TextRange place, const std::string& message) const {
    throw ExpressionError(text_, place, message);
  }

  /// Counts how deep the parser is in itself.
  class Nesting {
   public:
    Nesting(Parser& parser, TextRange place) : parser_(parser) {
      if (++parser_.depth_ > kDeepestExpression)
        parser_.fail(place, "the expression is more than " + std::to_string(kDeepestExpression) +
                                " levels deep here: make it of several stages");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const std::string& text_;
  const ExpressionNames& names_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  ExpressionBuilder builder_;
};

}  // namespace

Expression parse_expression(const std::string& text, const ExpressionNames& names) {
  if (text.size() > kLongestExpression)
    throw ExpressionError(
        text, {kLongestExpression, 0},
        "the expression is longer than " + std::to_string(kLongestExpression) + " bytes: make it of several stages");
  return Parser(text, names).parse();
}

}  // namespace volpipe
