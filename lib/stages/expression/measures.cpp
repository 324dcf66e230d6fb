#include "stages/expression/measures.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace volpipe {

namespace {

bool is_of_range(Reduction reduction) {
  return reduction == Reduction::minimum || reduction == Reduction::maximum || reduction == Reduction::count;
}

}  // namespace

Measures::Measures(const Expression& expression) {
  for (const ExpressionNode& node : expression.nodes()) {
    if (node.kind != ExpressionNode::Kind::reduction) continue;
    const int measured = node.arguments[0];
    std::size_t number = number_of(measured);
    if (number == measures_.size()) measures_.push_back({measured});
    ExpressionMeasure& measure = measures_[number];
    if (is_of_range(node.reduction)) measure.range = true;
    else if (node.reduction != Reduction::percentile) measure.moments = true;
    else if (std::find(measure.percentiles.begin(), measure.percentiles.end(), node.value) == measure.percentiles.end())
      measure.percentiles.push_back(node.value);
  }
}

std::size_t Measures::number_of(int node) const {
  const auto found =
      std::find_if(measures_.begin(), measures_.end(), [&](auto& measure) { return measure.node == node; });
  return std::size_t(found - measures_.begin());
}

double Measures::value(const ExpressionNode& reduction, std::span<const StatisticsResult> answers) const {
  const std::size_t number = number_of(reduction.arguments[0]);
  const ExpressionMeasure& measure = measures_[number];
  const StatisticsResult& answer = answers[number];
  if (reduction.reduction == Reduction::percentile) {
    const auto percentile = std::find(measure.percentiles.begin(), measure.percentiles.end(), reduction.value);
    return answer.percentiles[std::size_t(percentile - measure.percentiles.begin())];
  }
  const Moments& moments = answer.moments;
  const double count = double(moments.count);
  if (reduction.reduction == Reduction::count) return count;
  if (reduction.reduction == Reduction::sum) {
    const double sum = moments.count ? moments.mean * count : 0.0;
    return measure.whole ? std::round(sum) : sum;
  }
  if (moments.count == 0) return std::numeric_limits<double>::quiet_NaN();
  switch (reduction.reduction) {
    case Reduction::minimum:
      return moments.min;
    case Reduction::maximum:
      return moments.max;
    case Reduction::mean:
      return moments.mean;
    default:
      return moments.std();
  }
}

}  // namespace volpipe
