// Which voxels a mask selects, and statistics of values as they lie in memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spec/parameters.h"
#include "stages/pointwise/statistics.h"

namespace volpipe {

/// The item's image of a name, on the device.
using FindImage = std::function<const Volume&(const std::string&)>;

/// The voxels that a mask selects among `values`, which are of component `component` (or of all, from it on) of
/// `image`; Otsu's threshold is taken here. Throws Error(input) when a mask that is an image does not fit.
Selection selection_of(DeviceContext& context, const Mask& mask, const SampledValues& values, const VolumeInfo& image,
                       std::int64_t component, const FindImage& find);

/// Throws Error(input) unless the mask `info` has one component or as many as `image`.
void check_mask_components(const std::string& mask, const VolumeInfo& info, const VolumeInfo& image);

/// The voxels that a mask selects among `values`; Otsu's threshold is taken here. The mask is not an image.
Selection selection_by_value(DeviceContext& context, const Mask& mask, const SampledValues& values);

/// Percentiles of the finite voxels of a volume on the context's device, all components together, in float32 where that
/// is exact; NaN when none is selected. The mask is not an image.
std::vector<double> volume_percentiles(DeviceContext& context, const Volume& volume, const Mask& mask,
                                       std::span<const double> percents);

}  // namespace volpipe
