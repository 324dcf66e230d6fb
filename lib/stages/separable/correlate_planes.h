// The fast path of filter_slices. For .cu files.
#pragma once

#include "device/context.h"
#include "stages/separable/executors.h"

namespace volpipe::cuda {

/// x then y in one pass over the voxels, where both are correlations of equally many taps, 3 to 33 and odd. False, and
/// nothing queued, where they are not.
bool correlate_planes(DeviceContext& context, const SliceWork& work, const void* input, float* output);

}  // namespace volpipe::cuda
