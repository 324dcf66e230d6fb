// Contrast-limited adaptive histogram equalization (Pizer et al. 1987; Zuiderveld 1994) in up to three dimensions, with
// the choices of scikit-image's equalize_adapthist: values become 2^14 levels, levels become bins; each tile has a map
// from bins to levels; a voxel's level lies between those that the maps of the nearest tiles give its bin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_hooks.h"
#include "stages/clahe/clahe_grid.h"
#include "stages/gather/bounding_box.h"

namespace volpipe {

struct ClaheWork {
  ClaheGrid grid;
  ClaheLevels levels;
  double clip_limit = 0;  ///< of a bin, as a share of what a tile counts; 0: none
  ProgramInput values;    ///< one component
  ProgramInput decider;   ///< its voxels decide, through `select`, which are counted
  SelectVoxel select;
};

/// Bytes of one table of a 16-bit number for each tile and bin.
std::size_t clahe_map_bytes(const ClaheGrid& grid, const ClaheLevels& levels);
/// Bytes that clahe_levels takes meanwhile.
std::size_t clahe_scratch_bytes(const ClaheGrid& grid, const ClaheLevels& levels);

/// Writes each voxel's equalized level, from 0 to kClaheLevels - 1 and not rounded to whole ones, as `type` (float32 or
/// float64). Infinities count as the ends of the range, NaN stays; neither is counted. A tile that counts nothing is
/// taken to have all values alike often. The same bits on either device. Throws Error(unsupported) for a tile of 2^32
/// voxels.
void clahe_levels(DeviceContext& context, const ClaheWork& work, void* output, DataType type);

namespace cpu {
void clahe_maps(DeviceContext& context, const ClaheWork& work, std::uint32_t* counts, std::uint16_t* maps);
void clahe_interpolate(DeviceContext& context, const ClaheWork& work, const std::uint16_t* maps, void* output,
                       DataType type);
}  // namespace cpu
namespace cuda {
VOLPIPE_CUDA_CODE void clahe_maps(DeviceContext& context, const ClaheWork& work, std::uint32_t* counts,
                                  std::uint16_t* maps);
VOLPIPE_CUDA_CODE void clahe_interpolate(DeviceContext& context, const ClaheWork& work, const std::uint16_t* maps,
                                         void* output, DataType type);
}  // namespace cuda

}  // namespace volpipe
