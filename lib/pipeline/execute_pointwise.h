// Runs pointwise groups: statistics first, then one pass with the program that they complete.
#pragma once

#include "pipeline/execute.h"

namespace volpipe {

/// The voxels that a mask selects among `values`, which are of component `component` (or of all, from it on) of
/// `image`; Otsu's threshold is taken here. Throws Error(input) when a mask that is an image does not fit.
Selection selection_of(DeviceContext& context, const Mask& mask, const SampledValues& values, const VolumeInfo& image,
                       std::int64_t component, const Images& images);

/// The notices about voxels that a conversion to the group's integers changed.
void add_notices(const ConversionCounts& counts, const Group& group, Notices& notices);

GroupResult run_pointwise(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                          ItemStatistics& statistics, Notices& notices);

}  // namespace volpipe
