// Axis matrices that are one kernel moved along the axis, as smoothing filters are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stages/separable/axis_matrix.h"

namespace volpipe {

/// out[j] = sum_t weights[t] * in[source[j + t]], where source -1 stands for the fill value. Beyond the ends of the
/// axis `source` repeats voxels as the boundary rule asks.
struct Correlation {
  std::vector<float> weights;        ///< all positive
  std::int64_t offset = 0;           ///< source[v] is v + offset wherever the axis has that voxel
  std::vector<std::int32_t> source;  ///< of output_size + taps - 1 places
};

/// The matrix in that form, or empty when it has none. Positive weights make the forms equal in value but for rounding:
/// nothing cancels, so the same voxels count.
std::optional<Correlation> as_correlation(const AxisMatrix& matrix);

}  // namespace volpipe
