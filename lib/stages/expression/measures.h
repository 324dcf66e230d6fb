// The reductions of an expression as questions to whole images, and their answers as values.
#pragma once

#include <span>
#include <vector>

#include "stages/expression/expression.h"
#include "stages/expression/ranges.h"
#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

/// What is asked of one node's values.
struct ExpressionMeasure {
  int node;
  bool moments = false, range = false;
  std::vector<double> percentiles{};
  bool whole = false;  ///< finite values are whole numbers, so their sum is one
};

/// The measures of an expression; reductions of one node share one. What a measure's node depends on comes before it.
class Measures {
 public:
  explicit Measures(const Expression& expression);

  std::span<const ExpressionMeasure> list() const { return measures_; }
  ExpressionMeasure& operator[](std::size_t number) { return measures_[number]; }
  std::size_t size() const { return measures_.size(); }

  /// A reduction's value. That of no voxels is NaN, a sum or a count 0.
  double value(const ExpressionNode& reduction, std::span<const StatisticsResult> answers) const;

 private:
  std::size_t number_of(int node) const;

  std::vector<ExpressionMeasure> measures_;
};

}  // namespace volpipe
