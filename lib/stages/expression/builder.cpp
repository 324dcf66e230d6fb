#include "stages/expression/builder.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "stages/pointwise/program_ops.h"

namespace volpipe {

namespace {

using Kind = ExpressionNode::Kind;

bool gives_truth(Op op) { return (op >= Op::less && op <= Op::logical_not) || op == Op::is_finite; }

/// 1 / value is a number too, of either precision, and v / value the same as v * (1 / value).
bool has_exact_inverse(double value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent)) == 0.5 && std::abs(exponent - 1) <= 126;
}

}  // namespace

double apply_op(Op op, double acc, double x) {
  double result = acc;
  visit_op(op, [&](auto tag) { result = apply<decltype(tag)::value>(acc, x, 0.0); });
  return result;
}

std::vector<int> Expression::varying_part(int node) const {
  std::vector<bool> in_part(std::size_t(node) + 1);
  in_part[std::size_t(node)] = nodes_[std::size_t(node)].varies;
  std::vector<int> part;
  for (int n = node; n >= 0; --n) {
    if (!in_part[std::size_t(n)]) continue;
    part.push_back(n);
    for (int argument : nodes_[std::size_t(n)].arguments)
      if (argument >= 0 && nodes_[std::size_t(argument)].varies) in_part[std::size_t(argument)] = true;
  }
  return part;
}

int ExpressionBuilder::add(ExpressionNode node) {
  const Key key{
      int(node.kind), int(node.op), int(node.reduction), node.arguments, std::bit_cast<std::uint64_t>(node.value),
      node.image,     node.axis,    node.offset};
  const auto [found, is_new] = known_.emplace(key, int(nodes_.size()));
  if (is_new) nodes_.push_back(node);
  return found->second;
}

int ExpressionBuilder::constant(double value, TextRange place) {
  return add({.kind = Kind::constant, .value = value, .place = place});
}

int ExpressionBuilder::image_number(const std::string& name) {
  const auto found = std::find(images_.begin(), images_.end(), name);
  if (found != images_.end()) return int(found - images_.begin());
  images_.push_back(name);
  return int(images_.size()) - 1;
}

int ExpressionBuilder::image(const std::string& name, TextRange place) {
  return add({.kind = Kind::image, .image = image_number(name), .varies = true, .place = place});
}

int ExpressionBuilder::neighbour(const std::string& name, const std::array<std::int16_t, 3>& offset, int fill,
                                 TextRange place) {
  if (offset == std::array<std::int16_t, 3>{}) return image(name, place);
  return add({.kind = Kind::neighbour,
              .arguments = {fill, -1, -1},
              .image = image_number(name),
              .offset = offset,
              .varies = true,
              .place = place});
}

int ExpressionBuilder::place_value(Kind kind, int axis, TextRange place) {
  return add({.kind = kind, .axis = axis, .varies = kind == Kind::index || kind == Kind::world, .place = place});
}

bool ExpressionBuilder::is_op(int node, Op op) const {
  return (*this)[node].kind == Kind::operation && (*this)[node].op == op;
}

bool ExpressionBuilder::is_negation(int node) const { return is_op(node, Op::negate); }

int ExpressionBuilder::operation(Op op, int left, int right, TextRange place) {
  if (is_constant(left) && (right < 0 || is_constant(right)))
    return constant(apply_op(op, (*this)[left].value, right < 0 ? 0.0 : (*this)[right].value), place);
  if (const int simpler = simplified(op, left, right, place); simpler >= 0) return simpler;
  const bool varies = (*this)[left].varies || (right >= 0 && (*this)[right].varies);
  return add({.kind = Kind::operation,
              .op = op,
              .arguments = {left, right, -1},
              .varies = varies,
              .truth = gives_truth(op),
              .place = place});
}

int ExpressionBuilder::simplified(Op op, int left, int right, TextRange place) {
  const int inner = (*this)[left].arguments[0];
  switch (op) {
    case Op::negate:
      return is_negation(left) ? inner : -1;
    case Op::abs:
      if (is_negation(left)) return operation(Op::abs, inner, -1, place);
      return is_op(left, Op::abs) ? left : -1;
    case Op::logical_not:
      if (is_op(left, Op::equal)) return operation(Op::not_equal, inner, (*this)[left].arguments[1], place);
      if (is_op(left, Op::not_equal)) return operation(Op::equal, inner, (*this)[left].arguments[1], place);
      return is_op(left, Op::logical_not) && (*this)[inner].truth ? inner : -1;
    case Op::add:
      if (is_negation(right)) return operation(Op::subtract, left, (*this)[right].arguments[0], place);
      if (is_negation(left)) return operation(Op::subtract, right, inner, place);
      break;
    case Op::subtract:
      if (is_negation(right)) return operation(Op::add, left, (*this)[right].arguments[0], place);
      break;
    case Op::multiply:
      if (is_constant(left)) return with_constant_right(op, right, (*this)[left].value, place);
      break;
    default:
      break;
  }
  return right >= 0 && is_constant(right) ? with_constant_right(op, left, (*this)[right].value, place) : -1;
}

int ExpressionBuilder::with_constant_right(Op op, int left, double right, TextRange place) {
  const bool multiplies = op == Op::multiply, divides = op == Op::divide, raises = op == Op::power;
  if ((multiplies || divides || raises) && right == 1) return left;
  if (op == Op::subtract && right == 0 && !std::signbit(right)) return left;
  if ((multiplies || divides) && right == -1) return operation(Op::negate, left, -1, place);
  if (divides && has_exact_inverse(right)) return operation(Op::multiply, left, constant(1 / right, place), place);
  if (raises && right == 0) return constant(1, place);
  if (raises && right == 2) return operation(Op::multiply, left, left, place);
  if (raises && right == -1) return operation(Op::divide, constant(1, place), left, place);
  return -1;
}

int ExpressionBuilder::where(int condition, int then, int otherwise, TextRange place) {
  if (is_constant(condition)) return (*this)[condition].value != 0 ? then : otherwise;
  if (then == otherwise) return then;
  if ((*this)[condition].truth && is_constant(then) && is_constant(otherwise)) {
    const double yes = (*this)[then].value, no = (*this)[otherwise].value;
    if (yes == 1 && no == 0 && !std::signbit(no)) return condition;
  }
  if (is_op(condition, Op::logical_not)) return where((*this)[condition].arguments[0], otherwise, then, place);
  if (is_constant(then) && !is_constant(otherwise) && (is_op(condition, Op::equal) || is_op(condition, Op::not_equal)))
    return where(operation(Op::logical_not, condition, -1, place), otherwise, then, place);
  const bool varies = (*this)[condition].varies || (*this)[then].varies || (*this)[otherwise].varies;
  return add({.kind = Kind::where,
              .arguments = {condition, then, otherwise},
              .varies = varies,
              .truth = (*this)[then].truth && (*this)[otherwise].truth,
              .place = place});
}

int ExpressionBuilder::reduction(Reduction reduction, int value, double percent, TextRange place) {
  return add({.kind = Kind::reduction,
              .reduction = reduction,
              .arguments = {value, -1, -1},
              .value = percent,
              .place = place});
}

Expression ExpressionBuilder::finish(std::string text, int result) const {
  std::vector<bool> needed(nodes_.size());
  needed[std::size_t(result)] = true;
  for (int node = result; node >= 0; --node)
    if (needed[std::size_t(node)])
      for (int argument : (*this)[node].arguments)
        if (argument >= 0) needed[std::size_t(argument)] = true;

  std::vector<int> number(nodes_.size(), -1);
  std::vector<ExpressionNode> nodes;
  std::vector<std::string> images;
  for (int old = 0; old <= result; ++old) {
    if (!needed[std::size_t(old)]) continue;
    ExpressionNode node = (*this)[old];
    for (int& argument : node.arguments)
      if (argument >= 0) argument = number[std::size_t(argument)];
    if (node.image >= 0) {
      const std::string& name = images_[std::size_t(node.image)];
      const auto found = std::find(images.begin(), images.end(), name);
      node.image = int(found - images.begin());
      if (found == images.end()) images.push_back(name);
    }
    number[std::size_t(old)] = int(nodes.size());
    nodes.push_back(node);
  }
  return {std::move(text), std::move(nodes), std::move(images)};
}

}  // namespace volpipe
