// Runs pointwise groups: statistics first, then one pass with the program that they complete.
#pragma once

#include "pipeline/execute.h"

namespace volpipe {

/// The notices about voxels that a conversion to the group's integers changed.
void add_notices(const ConversionCounts& counts, const Group& group, Notices& notices);

GroupResult run_pointwise(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                          ItemStatistics& statistics, Notices& notices);

}  // namespace volpipe
