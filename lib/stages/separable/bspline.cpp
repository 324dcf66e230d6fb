#include "stages/separable/bspline.h"

#include <cmath>
#include <span>

namespace volpipe {

namespace {

constexpr int kMostTerms = 64;  // 4e-24 of order 5
constexpr std::array kPoles2{-0.171572875253809902};
constexpr std::array kPoles3{-0.267949192431122706};
constexpr std::array kPoles4{-0.361341225900220177, -0.013725429297339121};
constexpr std::array kPoles5{-0.430575347099973792, -0.043096288203264654};
constexpr std::array<std::span<const double>, 4> kPoles{kPoles2, kPoles3, kPoles4, kPoles5};

/// The filter is the product of g / (X - x) over its poles z, where X = Z + 1/Z, x = z + 1/z, g = -(1 - z)^2 / z. As a
/// sum of partial fractions, each is (1 - z) / (1 + z) z^|k|, by the factor of the others at x.
double inverse_bspline_at(std::span<const double> poles, int k) {
  double sum = 0;
  for (const double z : poles) {
    double term = (1 - z) / (1 + z) * std::pow(z, k);
    for (const double other : poles)
      if (other != z) term *= -(1 - other) * (1 - other) / other / (z + 1 / z - other - 1 / other);
    sum += term;
  }
  return sum;
}

}  // namespace

BsplineWeights bspline_weights(int order, double c) {
  const double knot = std::floor(order % 2 == 1 ? c : c + 0.5);
  const double t = c - knot + (order % 2 == 1 ? 0.0 : 0.5);
  BsplineWeights result{std::int64_t(knot) - order / 2, {1}};
  auto& w = result.weights;
  for (int degree = 1; degree <= order; ++degree) {  // de Boor's recurrence on integer knots
    double carried = 0;
    for (int i = 0; i < degree; ++i) {
      const double share = w[std::size_t(i)] / degree;
      w[std::size_t(i)] = carried + (i + 1 - t) * share;
      carried = (t + degree - 1 - i) * share;
    }
    w[std::size_t(degree)] = carried;
  }
  return result;
}

std::vector<double> inverse_bspline(int order, double tolerance) {
  std::vector<double> filter;
  for (int k = 0; k < kMostTerms; ++k) {
    const double h = inverse_bspline_at(kPoles[std::size_t(order - 2)], k);
    if (std::abs(h) < tolerance) break;
    filter.push_back(h);
  }
  return filter;
}

}  // namespace volpipe
