// Where in a volume the selected voxels lie.
#pragma once

#include <optional>

#include "device/cuda_hooks.h"
#include "device/host_device.h"
#include "stages/gather/gather_stage.h"
#include "stages/pointwise/statistics.h"

namespace volpipe {

/// Smallest block of a grid of `size` that holds every selected voxel of `input`, one component; empty when none is
/// selected. The same on either device.
std::optional<IndexBox> bounding_box(DeviceContext& context, const ProgramInput& input, const Selection& selection,
                                     const Index3& size);

/// Least and greatest index along each axis; least > greatest where nothing is selected.
struct IndexBounds {
  std::int32_t least[3], greatest[3];
};

/// The voxel value (of `input`, or of the mask) decides.
struct SelectVoxel {
  Selection::Kind kind;
  double threshold;
  VOLPIPE_HD bool operator()(double value) const {
    return kind == Selection::Kind::above ? value > threshold : kind == Selection::Kind::all || value != 0;
  }
};

namespace cpu {
IndexBounds index_bounds(DeviceContext& context, const ProgramInput& decider, const SelectVoxel& select,
                         const Index3& size);
}
namespace cuda {
VOLPIPE_CUDA_CODE IndexBounds index_bounds(DeviceContext& context, const ProgramInput& decider,
                                           const SelectVoxel& select, const Index3& size);
}

}  // namespace volpipe
