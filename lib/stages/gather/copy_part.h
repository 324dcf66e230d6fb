// Blocks of voxels from one volume into another on the same device.
#pragma once

#include "device/context.h"
#include "device/cuda_hooks.h"
#include "stages/gather/gather_stage.h"

namespace volpipe {

/// Copies `part` of `source` to its place in `target`; the two agree on every axis but `part.axis`, and in pixel type.
void copy_part(DeviceContext& context, const RearrangingStage::Part& part, const Volume& source, Volume& target);

namespace cpu {
void copy_rows(DeviceContext& context, const RowsCopy& copy);
}
namespace cuda {
VOLPIPE_CUDA_CODE void copy_rows(DeviceContext& context, const RowsCopy& copy);
}

}  // namespace volpipe
