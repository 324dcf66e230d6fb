// Cardinal B-splines of orders 2 to 5 on the integers: the basis, and the filter that turns samples into coefficients.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace volpipe {

/// The order + 1 coefficients that a spline's value at a point depends on, and their weights.
struct BsplineWeights {
  std::int64_t start;
  std::array<double, 6> weights;  ///< of coefficients start, start + 1, ..., start + order; sum 1
};
BsplineWeights bspline_weights(int order, double c);

/// h[|k|], k = 0, 1, ...: coefficients are sum_k h[|k|] * sample[i - k] over the infinite extension of the samples
/// (Unser 1999). Signs alternate and magnitudes fall; ends before the first one below `tolerance`, after 64 at most.
std::vector<double> inverse_bspline(int order, double tolerance);

}  // namespace volpipe
