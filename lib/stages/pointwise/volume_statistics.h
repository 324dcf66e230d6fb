// Statistics of values as they lie in memory, under masks that look at the values themselves.
#pragma once

#include <span>
#include <vector>

#include "spec/parameters.h"
#include "stages/pointwise/statistics.h"

namespace volpipe {

/// The voxels that a mask selects among `values`; Otsu's threshold is taken here. The mask is not an image.
Selection selection_by_value(DeviceContext& context, const Mask& mask, const SampledValues& values);

/// Percentiles of the finite voxels of a volume on the context's device, all components together, in float32 where that
/// is exact; NaN when none is selected. The mask is not an image.
std::vector<double> volume_percentiles(DeviceContext& context, const Volume& volume, const Mask& mask,
                                       std::span<const double> percents);

}  // namespace volpipe
