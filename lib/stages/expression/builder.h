// Makes the nodes of an expression: equal ones once, constants computed, and rewritten only where no result changes.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "stages/expression/expression.h"

namespace volpipe {

class ExpressionBuilder {
 public:
  const ExpressionNode& operator[](int node) const { return nodes_[std::size_t(node)]; }
  bool is_constant(int node) const { return (*this)[node].kind == ExpressionNode::Kind::constant; }

  int constant(double value, TextRange place);
  int image(const std::string& name, TextRange place);
  /// The image itself where the offset is 0.
  int neighbour(const std::string& name, const std::array<std::int16_t, 3>& offset, int fill, TextRange place);
  /// index, world, spacing or size.
  int place_value(ExpressionNode::Kind kind, int axis, TextRange place);
  /// `right` is -1 for ops of one argument.
  int operation(Op op, int left, int right, TextRange place);
  int where(int condition, int then, int otherwise, TextRange place);
  /// `percent` counts for percentiles alone.
  int reduction(Reduction reduction, int value, double percent, TextRange place);

  /// The expression whose value is `result`: what it does not need is dropped.
  Expression finish(std::string text, int result) const;

 private:
  using Key = std::tuple<int, int, int, std::array<int, 3>, std::uint64_t, int, int, std::array<std::int16_t, 3>>;

  int add(ExpressionNode node);
  /// What op(left, right) is without an op, or with a cheaper one; -1: nothing.
  int simplified(Op op, int left, int right, TextRange place);
  int with_constant_right(Op op, int left, double right, TextRange place);
  int image_number(const std::string& name);
  bool is_negation(int node) const;
  bool is_op(int node, Op op) const;

  std::vector<ExpressionNode> nodes_;
  std::vector<std::string> images_;
  std::map<Key, int> known_;
};

}  // namespace volpipe
