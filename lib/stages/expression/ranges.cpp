#include "stages/expression/ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace volpipe {

namespace {

using Kind = ExpressionNode::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ValueRange kAnything{-kInfinity, kInfinity, false};
constexpr ValueRange kTruth{0, 1, true};

bool is_whole(double value) { return !std::isfinite(value) || value == std::floor(value); }

ValueRange hull(const ValueRange& a, const ValueRange& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.whole && b.whole};
}

/// Between the least and the greatest of what `op` makes of the ends; anything where one of these is no number.
template <class Operation>
ValueRange from_ends(const ValueRange& a, const ValueRange& b, Operation&& op) {
  const double ends[]{op(a.low, b.low), op(a.low, b.high), op(a.high, b.low), op(a.high, b.high)};
  if (std::any_of(std::begin(ends), std::end(ends), [](double end) { return std::isnan(end); })) return kAnything;
  const auto [low, high] = std::minmax_element(std::begin(ends), std::end(ends));
  return {*low, *high, a.whole && b.whole};
}

ValueRange magnitude(const ValueRange& v) {
  const double most = std::max(std::abs(v.low), std::abs(v.high));
  const bool spans_zero = v.low <= 0 && v.high >= 0;
  return {spans_zero ? 0 : std::min(std::abs(v.low), std::abs(v.high)), most, v.whole};
}

/// Of the divisor's sign and less than it.
ValueRange rest(const ValueRange& a, const ValueRange& divisor) {
  return {std::min(divisor.low, 0.0), std::max(divisor.high, 0.0), a.whole && divisor.whole};
}

ValueRange range_of_operation(Op op, const ValueRange& a, const ValueRange& b) {
  switch (op) {
    case Op::add:
      return from_ends(a, b, std::plus<>());
    case Op::subtract:
      return from_ends(a, b, std::minus<>());
    case Op::multiply:
      return from_ends(a, b, std::multiplies<>());
    case Op::divide: {
      if (b.low <= 0 && b.high >= 0) return kAnything;
      ValueRange quotient = from_ends(a, b, std::divides<>());
      quotient.whole = false;
      return quotient;
    }
    case Op::modulo:
      return rest(a, b);
    case Op::least:
      return {std::min(a.low, b.low), std::min(a.high, b.high), a.whole && b.whole};
    case Op::greatest:
      return {std::max(a.low, b.low), std::max(a.high, b.high), a.whole && b.whole};
    case Op::negate:
      return {-a.high, -a.low, a.whole};
    case Op::abs:
      return magnitude(a);
    case Op::floor:
    case Op::ceil:
    case Op::round:
      return {std::floor(a.low), std::ceil(a.high), true};
    case Op::sign:
      return {-1, 1, true};
    default:
      return kAnything;
  }
}

}  // namespace

ValueRange range_of(DataType type) {
  if (is_floating(type)) return kAnything;
  const IntegerRange range = integer_range(type);
  return {range.lowest, range.highest, true};
}

std::vector<ValueRange> value_ranges(const Expression& expression, const Index3& size, std::int64_t voxels,
                                     const std::function<ValueRange(const std::string&)>& image) {
  std::vector<ValueRange> ranges;
  const auto of_node = [&](const ExpressionNode& node) -> ValueRange {
    const auto argument = [&](std::size_t n) {
      return node.arguments[n] < 0 ? ValueRange{0, 0, true} : ranges[std::size_t(node.arguments[n])];
    };
    const auto of_image = [&] { return image(expression.image_of(node)); };
    switch (node.kind) {
      case Kind::constant:
        return std::isnan(node.value) ? ValueRange{0, 0, true}
                                      : ValueRange{node.value, node.value, is_whole(node.value)};
      case Kind::image:
        return of_image();
      case Kind::neighbour:
        return hull(of_image(), argument(0));
      case Kind::index:
        return {0, double(size[std::size_t(node.axis)] - 1), true};
      case Kind::size:
        return {1, double(size[std::size_t(node.axis)]), true};
      case Kind::where:
        return hull(argument(1), argument(2));
      case Kind::operation:
        return node.truth ? kTruth : range_of_operation(node.op, argument(0), argument(1));
      case Kind::reduction:
        break;
      default:
        return kAnything;
    }
    const ValueRange value = argument(0);
    switch (node.reduction) {
      case Reduction::minimum:
      case Reduction::maximum:
        return value;
      case Reduction::count:
        return {0, double(voxels), true};
      case Reduction::sum:
        return from_ends(hull(value, {0, 0, true}), {0, double(voxels), true}, std::multiplies<>());
      case Reduction::std:
        return kAnything;
      default:
        return {value.low, value.high, false};
    }
  };
  for (const ExpressionNode& node : expression.nodes()) ranges.push_back(of_node(node));
  return ranges;
}

bool exceeds_float32(const Expression& expression, int node, const std::vector<ValueRange>& ranges) {
  constexpr double kExact = 1 << 24;
  const std::vector<int> part = expression.varying_part(node);
  return std::any_of(part.begin(), part.end(), [&](int n) {
    const ValueRange& range = ranges[std::size_t(n)];
    const double most = std::max(std::abs(range.low), std::abs(range.high));
    return range.whole && std::isfinite(most) && most > kExact;
  });
}

}  // namespace volpipe
