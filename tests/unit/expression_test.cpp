// The expression's front end: grammar, faults, folding, and what is known of the result.
#include "stages/expression/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace volpipe {
namespace {

using Kind = ExpressionNode::Kind;

ExpressionNames names() {
  ExpressionNames names;
  names.images = {{"a", "a"}, {"b", "b"}, {"c", "c"}, {"image", "image"}, {"alias", "image"}};
  names.variables = {{"mm", 1.5}, {"k", 7}};
  names.unusable = {{"lucky", "is random"}};
  return names;
}

/// A node written out, each operation before its arguments.
std::string written(const Expression& expression, int number) {
  const ExpressionNode& node = expression[number];
  const auto with_arguments = [&](std::string word) {
    for (int argument : node.arguments)
      if (argument >= 0) word += " " + written(expression, argument);
    return "(" + word + ")";
  };
  const auto image = [&] { return node.image < 0 ? "" : expression.images()[std::size_t(node.image)]; };
  char value[32];
  std::snprintf(value, sizeof value, "%.9g", node.value);
  constexpr std::array kReductions{"min", "max", "mean", "std", "sum", "count", "percentile"};
  switch (node.kind) {
    case Kind::constant:
      return value;
    case Kind::image:
      return image().empty() ? "this" : image();
    case Kind::neighbour:
      return image() + "[" + std::to_string(node.offset[0]) + "," + std::to_string(node.offset[1]) + "," +
             std::to_string(node.offset[2]) + "]";
    case Kind::index:
      return "index" + std::to_string(node.axis);
    case Kind::world:
      return "world" + std::to_string(node.axis);
    case Kind::spacing:
      return "spacing" + std::to_string(node.axis);
    case Kind::size:
      return "size" + std::to_string(node.axis);
    case Kind::operation:
      return with_arguments(std::string(to_string(node.op)));
    case Kind::where:
      return with_arguments("where");
    case Kind::reduction:
      break;
  }
  const std::string percent = node.reduction == Reduction::percentile ? value : "";
  return with_arguments("all_" + std::string(kReductions[std::size_t(node.reduction)]) + percent);
}

std::string parsed(const std::string& text) {
  const Expression expression = parse_expression(text, names());
  return written(expression, expression.result());
}

double constant(const std::string& text) {
  const Expression expression = parse_expression(text, names());
  EXPECT_EQ(expression.nodes().size(), 1u) << text;
  EXPECT_EQ(expression[0].kind, Kind::constant) << text;
  return expression[0].value;
}

std::string fault(const std::string& text, const ExpressionNames& known = names()) {
  try {
    parse_expression(text, known);
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_EQ(std::string(error.what()).substr(0, error.message().size()), error.message());
    return error.what();
  }
  return "no fault";
}

TEST(ExpressionGrammar, Precedence) {
  EXPECT_EQ(parsed("a + b * c"), "(add a (multiply b c))");
  EXPECT_EQ(parsed("(a + b) * c"), "(multiply (add a b) c)");
  EXPECT_EQ(parsed("a - b - c"), "(subtract (subtract a b) c)");
  EXPECT_EQ(parsed("a / b % c"), "(modulo (divide a b) c)");
  EXPECT_EQ(parsed("a ^ b ^ c"), "(power a (power b c))");
  EXPECT_EQ(parsed("a ** b"), "(power a b)");
  EXPECT_EQ(parsed("-a ^ b"), "(negate (power a b))");
  EXPECT_EQ(parsed("a ^ -b"), "(power a (negate b))");
  EXPECT_EQ(parsed("a ^ -b ^ c"), "(power a (negate (power b c)))");
  EXPECT_EQ(parsed("-a * b"), "(multiply (negate a) b)");
  EXPECT_EQ(parsed("+a"), "a");
  EXPECT_EQ(parsed("a < b + c"), "(less a (add b c))");
  EXPECT_EQ(parsed("not a < b"), "(logical_not (less a b))");
  EXPECT_EQ(parsed("!a < b"), "(less (logical_not a) b)");
  EXPECT_EQ(parsed("a or b and not c"), "(logical_or a (logical_and b (logical_not c)))");
  EXPECT_EQ(parsed("a || b && !c"), "(logical_or a (logical_and b (logical_not c)))");
  EXPECT_EQ(parsed("(a < b) < c"), "(less (less a b) c)");
  EXPECT_EQ(parsed("a <= b"), "(less_equal a b)");
  EXPECT_EQ(parsed("a > b"), "(greater a b)");
  EXPECT_EQ(parsed("a >= b"), "(greater_equal a b)");
  EXPECT_EQ(parsed("a == b"), "(equal a b)");
  EXPECT_EQ(parsed("a != b"), "(not_equal a b)");
  EXPECT_EQ(parsed("\ta\n +\r\n b "), "(add a b)");
}

TEST(ExpressionGrammar, Numbers) {
  EXPECT_EQ(constant("1"), 1);
  EXPECT_EQ(constant("1e-3"), 1e-3);
  EXPECT_EQ(constant(".5"), 0.5);
  EXPECT_EQ(constant("5."), 5);
  EXPECT_EQ(constant("1.25E+2"), 125);
  EXPECT_EQ(constant("0.1"), 0.1);
  EXPECT_EQ(constant("pi"), std::numbers::pi);
  EXPECT_EQ(constant("e"), std::numbers::e);
  EXPECT_EQ(constant("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(constant("nan")));
}

TEST(ExpressionGrammar, Names) {
  EXPECT_EQ(parsed("this"), "this");
  EXPECT_EQ(parsed("alias + image"), "(add image image)");
  EXPECT_EQ(parsed("mm * a"), "(multiply 1.5 a)");
  EXPECT_EQ(parsed("k"), "7") << "a variable wins over the voxel index";
  EXPECT_EQ(parsed("i + j"), "(add index0 index1)");
  EXPECT_EQ(parsed("x + y * z"), "(add world0 (multiply world1 world2))");
  EXPECT_EQ(parsed("spacing_x * spacing_y"), "(multiply spacing0 spacing1)");
  EXPECT_EQ(parsed("spacing_z"), "spacing2");
  EXPECT_EQ(parsed("size_x - size_y"), "(subtract size0 size1)");
  ExpressionNames more = names();
  more.images["min"] = "minimum";
  more.images["mm"] = "mm";
  more.images["e"] = "exposure";
  const Expression expression = parse_expression("min(min, mm) * e", more);
  EXPECT_EQ(written(expression, expression.result()), "(multiply (least minimum mm) exposure)");
  EXPECT_THAT(expression.images(), testing::ElementsAre("minimum", "mm", "exposure"));
}

TEST(ExpressionGrammar, AnyImageWhereTheItemIsNotKnown) {
  ExpressionNames any;
  any.any_image = true;
  const Expression expression = parse_expression("T1 / (T2 + x)", any);
  EXPECT_EQ(written(expression, expression.result()), "(divide T1 (add T2 world0))");
  EXPECT_THAT(fault("sqrt * 2", any), testing::StartsWith("'sqrt' is a function: write sqrt(v)"));
}

TEST(ExpressionGrammar, Functions) {
  for (const std::string name :
       {"abs", "sqrt", "exp", "log", "log10", "sin", "cos", "tan", "floor", "ceil", "round", "sign"})
    EXPECT_EQ(parsed(name + "(a)"), "(" + name + " a)");
  EXPECT_EQ(parsed("isfinite(a)"), "(is_finite a)");
  EXPECT_EQ(parsed("isnan(a)"), "(not_equal a a)");
  EXPECT_EQ(parsed("atan2(a, b)"), "(atan2 a b)");
  EXPECT_EQ(parsed("pow(a, b)"), "(power a b)");
  EXPECT_EQ(parsed("mod(a, b)"), "(modulo a b)");
  EXPECT_EQ(parsed("min(a, b)"), "(least a b)");
  EXPECT_EQ(parsed("max(a, b, c)"), "(greatest (greatest a b) c)");
  EXPECT_EQ(parsed("clamp(a, 0, b)"), "(least (greatest a 0) b)");
  EXPECT_EQ(parsed("where(a, b, c)"), "(where a b c)");
}

TEST(ExpressionGrammar, Reductions) {
  EXPECT_EQ(parsed("min(a)"), "(all_min a)");
  EXPECT_EQ(parsed("max(a)"), "(all_max a)");
  EXPECT_EQ(parsed("mean(a, b > 0)"), "(all_mean (where (greater b 0) a nan))");
  EXPECT_EQ(parsed("std(a)"), "(all_std a)");
  EXPECT_EQ(parsed("sum(a * b)"), "(all_sum (multiply a b))");
  EXPECT_EQ(parsed("count(a > 1)"), "(all_count (where (greater a 1) 1 nan))");
  EXPECT_EQ(parsed("median(a, b)"), "(all_percentile50 (where b a nan))");
  EXPECT_EQ(parsed("percentile(a, 100 - 2.5, b)"), "(all_percentile97.5 (where b a nan))");
  EXPECT_EQ(parsed("mean(abs(a - mean(a)))"), "(all_mean (abs (subtract a (all_mean a))))");
}

TEST(ExpressionGrammar, Neighbours) {
  EXPECT_EQ(parsed("a[1,-2,0]"), "a[1,-2,0]");
  EXPECT_EQ(parsed("this [ 2*3 , mm*2 , k - 7 ]"), "[6,3,0]");
  EXPECT_EQ(parsed("a[0,0,0]"), "a");
  EXPECT_EQ(parsed("a[32767,-32767,0]"), "a[32767,-32767,0]");
  ExpressionNames filled = names();
  filled.fill = {.value = 0, .minimum = true};
  const Expression expression = parse_expression("a[0,0,1] - b[1,0,0]", filled);
  int minima = 0;
  for (const ExpressionNode& node : expression.nodes())
    minima += node.kind == Kind::reduction && node.reduction == Reduction::minimum;
  EXPECT_EQ(minima, 2) << "each image's minimum is its fill";
}

TEST(ExpressionGrammar, EqualPartsAreOneNode) {
  const Expression expression = parse_expression("(a + b) * (a + b) - mean(a + b) / mean(a + b)", names());
  int sums = 0, means = 0;
  for (const ExpressionNode& node : expression.nodes()) {
    sums += node.kind == Kind::operation && node.op == Op::add;
    means += node.kind == Kind::reduction;
  }
  EXPECT_EQ(sums, 1);
  EXPECT_EQ(means, 1);
}

TEST(ExpressionFaults, PointIntoTheText) {
  EXPECT_EQ(
      fault("imgae + 1"),
      "there is no image or variable 'imgae'; did you mean 'image'?; the item has 'a', 'alias', 'b', 'c' or 'image'\n"
      "  imgae + 1\n"
      "  ^~~~~");
  EXPECT_EQ(fault("(a - mean(a)) / std(a"),
            "this '(' is not closed by a ')'\n"
            "  (a - mean(a)) / std(a\n"
            "                     ^");
  EXPECT_EQ(fault("a +\n\twrong * 2 +\nb"),
            "there is no image or variable 'wrong'; the item has 'a', 'alias', 'b', 'c' or 'image'\n"
            "   wrong * 2 +\n"
            "   ^~~~~");
  EXPECT_EQ(fault("a ×"),
            "'×' has no meaning here: an expression is made of numbers, names, operators and parentheses\n"
            "  a ×\n"
            "    ^");
  EXPECT_EQ(fault(std::string(100, ' ') + "wrong" + std::string(100, ' ')),
            "there is no image or variable 'wrong'; the item has 'a', 'alias', 'b', 'c' or 'image'\n"
            "  ..." +
                std::string(60, ' ') + "wrong" + std::string(35, ' ') + "...\n" + std::string(65, ' ') + "^~~~~");
}

TEST(ExpressionFaults, PlaceAndLength) {
  try {
    parse_expression("a + clamp(b, 1)", names());
    FAIL();
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.position(), 4u);
    EXPECT_EQ(error.length(), 11u);
    EXPECT_EQ(error.message(), "'clamp' takes 3 arguments, got 2: clamp(v, low, high)");
  }
}

TEST(ExpressionFaults, SayWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the expression is empty: write one, such as image * 2"},
      {" \n ", "the expression is empty"},
      {"a +", "the text ends where a number, a name or '(' was expected"},
      {"a * )", "expected a number, a name or '(' instead of ')'"},
      {"a)", "')' closes nothing: leave it out"},
      {"a]", "']' closes nothing: leave it out"},
      {"(a]", "expected ')' instead of ']'"},
      {"a[1,0,0", "this '[' is not closed by a ']'"},
      {"a b", "expected an operator before 'b'"},
      {"(a b)", "expected an operator or ')' before 'b'"},
      {"a 2", "expected an operator before '2'"},
      {"a, b", "',' separates arguments of a function, and there is none here"},
      {"a !b", "expected an operator before '!'; 'not equal' is !="},
      {"2 * not a", "put 'not ...' in parentheses here"},
      {"a < b < c", "comparisons cannot be chained: write 'a < b and b < c'"},
      {"a == b != c", "comparisons cannot be chained"},
      {"a = b", "'=' is no operator: write == to compare"},
      {"a & b", "'&' is no operator: write 'and' or &&"},
      {"a | b", "'|' is no operator: write 'or' or ||"},
      {"2a", "'2a' is not a number: put an operator, such as *, before 'a'"},
      {"1e", "'1e' is not a number: write 12, .5 or 1e-3"},
      {"1.2.3", "'1.2.3' is not a number"},
      {"1e999", "'1e999' is beyond the numbers of double precision"},
      {"sqrt + 1", "'sqrt' is a function: write sqrt(v)"},
      {"sqr(a)", "there is no function 'sqr'; did you mean 'sqrt'?"},
      {"convolve(a)", "there is no function 'convolve'; functions are 'abs'"},
      {"a(2)", "'a' is no function: put an operator, such as *, before '('"},
      {"pi(2)", "'pi' is no function"},
      {"sqrt()", "'sqrt' takes 1 argument, got 0: sqrt(v)"},
      {"mean(a, b, c)", "'mean' takes 1 or 2 arguments, got 3: mean(v[, mask])"},
      {"min()", "'min' takes 1 or more arguments, got 0"},
      {"where(a, b)", "'where' takes 3 arguments, got 2: where(condition, then, otherwise)"},
      {"a[1,0]", "a neighbour has 3 offsets, got 2: neighbours are read as image[dx,dy,dz]"},
      {"a[.5,0,0]", "an offset must be a whole number that is the same for all voxels"},
      {"a[b,0,0]", "an offset must be a whole number that is the same for all voxels"},
      {"a[nan,0,0]", "an offset must be a whole number that is the same for all voxels"},
      {"a[32768,0,0]", "an offset must be a whole number from -32767 to 32767"},
      {"a[inf,0,0]", "an offset must be a whole number from -32767 to 32767"},
      {"x[1,0,0]", "'x' is not an image: neighbours are read as image[dx,dy,dz]"},
      {"mm[1,0,0]", "'mm' is not an image"},
      {"(a)[1,0,0]", "only an image's name can have offsets"},
      {"[1]", "'[' follows an image's name"},
      {"percentile(a, 101)", "a percentile's percent must be from 0 to 100"},
      {"percentile(a, nan)", "a percentile's percent must be from 0 to 100"},
      {"percentile(a, b)", "a percentile's percent must be the same for all voxels"},
      {"lucky * a", "the variable 'lucky' is random, and an expression takes numbers alone"},
      {"a \x01", "this byte has no meaning here"},
      {"a \xff", "this byte has no meaning here"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(fault(text), testing::StartsWith(message)) << text;
}

TEST(ExpressionFaults, LimitsOfDepthAndLength) {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string text;
    for (int n = 0; n < depth; ++n) text += open;
    text += "a";
    for (int n = 0; n < depth; ++n) text += close;
    return text;
  };
  const std::string too_deep = "the expression is more than 200 levels deep here: make it of several stages";
  EXPECT_EQ(parsed(nested(150, "(", ")")), "a");
  EXPECT_THAT(fault(nested(30000, "(", ")")), testing::StartsWith(too_deep));
  EXPECT_THAT(fault(nested(13000, "abs(", ")")), testing::StartsWith(too_deep));
  EXPECT_THAT(fault(nested(60000, "-", "")), testing::StartsWith(too_deep));
  EXPECT_THAT(fault(nested(15000, "not ", "")), testing::StartsWith(too_deep));
  EXPECT_THAT(fault(nested(30000, "2^", "")), testing::StartsWith(too_deep));
  EXPECT_THAT(fault(std::string(65537, ' ')), testing::StartsWith("the expression is longer than 65536 bytes"));
  std::string sum = "a";
  for (int n = 0; n < 16000; ++n) sum += " + a";
  EXPECT_EQ(parse_expression(sum, names()).nodes().size(), 16001u) << "long is not deep";
}

TEST(ExpressionFolding, Constants) {
  EXPECT_EQ(constant("1 + 2 * 3 ^ 2"), 19);
  EXPECT_EQ(constant("-2 ^ 2"), -4);
  EXPECT_EQ(constant("2 ^ 3 ^ 2"), 512);
  EXPECT_EQ(constant("7 % -3"), -2) << "the divisor's sign";
  EXPECT_EQ(constant("-7 % 3"), 2);
  EXPECT_EQ(constant("mod(-7.5, 2)"), 0.5);
  EXPECT_EQ(constant("1 / 3"), 1.0 / 3);
  EXPECT_EQ(constant("sqrt(2)"), std::sqrt(2.0));
  EXPECT_EQ(constant("sin(1) + cos(2) * tan(3)"), std::sin(1.0) + std::cos(2.0) * std::tan(3.0));
  EXPECT_EQ(constant("atan2(1, -1)"), std::atan2(1.0, -1.0));
  EXPECT_EQ(constant("exp(1.5)"), std::exp(1.5));
  EXPECT_EQ(constant("log(10) / log10(3)"), std::log(10.0) / std::log10(3.0));
  EXPECT_EQ(constant("round(2.5) + round(-2.5) * 10"), -27);
  EXPECT_EQ(constant("floor(-.5) + ceil(.5) * 10"), 9);
  EXPECT_EQ(constant("sign(-3) + sign(0) + sign(5) * 10"), 9);
  EXPECT_EQ(constant("min(3, 1, 2) + max(3, 1, 2) * 10"), 31);
  EXPECT_TRUE(std::isnan(constant("min(nan, 1)")));
  EXPECT_TRUE(std::isnan(constant("max(1, nan)")));
  EXPECT_EQ(constant("clamp(7, 0, mm)"), 1.5);
  EXPECT_EQ(constant("isnan(nan) + isnan(1) * 10 + isfinite(inf) * 100"), 1);
  EXPECT_EQ(constant("(1 < 2) + (2 <= 1) * 10 + (nan == nan) * 100"), 1);
  EXPECT_EQ(constant("(2 and 0) + (2 or 0) * 10 + (not nan) * 100"), 10) << "NaN is true";
  EXPECT_EQ(constant("where(0, nan, 5)"), 5);
  EXPECT_EQ(parsed("where(1 < 2, a, b)"), "a");
}

TEST(ExpressionFolding, AlgebraThatChangesNothing) {
  EXPECT_EQ(parsed("a * 1"), "a");
  EXPECT_EQ(parsed("1 * a"), "a");
  EXPECT_EQ(parsed("a / 1"), "a");
  EXPECT_EQ(parsed("a - 0"), "a");
  EXPECT_EQ(parsed("--a"), "a");
  EXPECT_EQ(parsed("a - -b"), "(add a b)");
  EXPECT_EQ(parsed("-a + b"), "(subtract b a)");
  EXPECT_EQ(parsed("a / 4"), "(multiply a 0.25)");
  EXPECT_EQ(parsed("a / 3"), "(divide a 3)");
  EXPECT_EQ(parsed("a ^ 2"), "(multiply a a)");
  EXPECT_EQ(parsed("a ^ 1"), "a");
  EXPECT_EQ(parsed("a ^ -1"), "(divide 1 a)");
  EXPECT_EQ(parsed("abs(-a)"), "(abs a)");
  EXPECT_EQ(parsed("not (a == b)"), "(not_equal a b)");
  EXPECT_EQ(parsed("where(not a, b, c)"), "(where a c b)");
  EXPECT_EQ(parsed("where(a, b, b)"), "b");
  EXPECT_EQ(parsed("where(a > b, 1, 0)"), "(greater a b)");
  EXPECT_EQ(parsed("where(a, 1, 0)"), "(where a 1 0)");
}

TEST(ExpressionFolding, AlgebraThatWouldChangeSomethingIsLeft) {
  EXPECT_EQ(parsed("a * 0"), "(multiply a 0)") << "NaN stays";
  EXPECT_EQ(parsed("a + 0"), "(add a 0)") << "-0 becomes 0";
  EXPECT_EQ(parsed("a - a"), "(subtract a a)");
  EXPECT_EQ(parsed("not (a < b)"), "(logical_not (less a b))") << "NaN is on neither side";
  EXPECT_EQ(parsed("a + 1 + 2"), "(add (add a 1) 2)") << "two roundings";
  EXPECT_EQ(parsed("a / 2 ^ 200"), "(divide a 1.60693804e+60)") << "its inverse is no float32";
}

TEST(ExpressionTypes, TruthAndVariation) {
  const auto result = [](const std::string& text) {
    const Expression expression = parse_expression(text, names());
    return expression[expression.result()];
  };
  for (const char* text :
       {"a < b", "a and b", "not a", "isfinite(a)", "isnan(a)", "where(a, b > 1, not c)", "!(a + b)"})
    EXPECT_TRUE(result(text).truth) << text;
  for (const char* text : {"a", "(a < b) + 1", "where(a, b > 1, c)", "sign(a)", "min(a < b, b < c)", "mean(a > 1)"})
    EXPECT_FALSE(result(text).truth) << text;
  for (const char* text : {"a", "this + 1", "a[1,0,0]", "i", "y", "where(mean(a) > 1, a, 2)"})
    EXPECT_TRUE(result(text).varies) << text;
  for (const char* text : {"1", "mean(a)", "spacing_x * size_y", "max(a) - min(a)", "count(i > 2)"})
    EXPECT_FALSE(result(text).varies) << text;
}

}  // namespace
}  // namespace volpipe
