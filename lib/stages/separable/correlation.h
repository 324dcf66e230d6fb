// Axis matrices that are one kernel moved along the axis, as smoothing filters and spline prefilters are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stages/separable/axis_matrix.h"

namespace volpipe {

/// out[j] = sum_t weights[t] * in[source[j + t]], where source -1 stands for the fill value. Beyond the ends of the
/// axis `source` repeats voxels as the boundary rule asks.
struct Correlation {
  std::vector<float> weights;        ///< none 0
  std::int64_t offset = 0;           ///< source[v] is v + offset wherever the axis has that voxel
  std::vector<std::int32_t> source;  ///< of output_size + taps - 1 places
};

/// The matrix in that form, or empty when it has none. The forms give equal values but for rounding:
/// - a row of the matrix adds up the weights of a voxel that the extension repeats; where that leaves 0 the matrix does
///   not touch the voxel but the correlation would spread its NaN, so such matrices are refused. Positive weights never
///   cancel; a prefilter's neither, which alternate and shrink: mirror repeats at even distances, with equal signs, the
///   others leave at least the difference of two weights, of which the nearer is larger by 1 / |pole|;
/// - every row sums the same products in the same order, so rows at the ends round as well as those in the middle.
/// An infinite voxel that is repeated with opposite signs gives NaN where the matrix gives infinity.
std::optional<Correlation> as_correlation(const AxisMatrix& matrix);

}  // namespace volpipe
