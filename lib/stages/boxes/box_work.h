// What is done to the voxels of boxes, and the executor of each device.
#pragma once

#include <span>
#include <vector>

#include "device/cuda_hooks.h"
#include "stages/boxes/voxel_box.h"
#include "stages/pointwise/place_ops.h"

namespace volpipe {

/// What a component's voxels get: `low`, or noise.
struct BoxFill {
  double low = 0, high = 0;  ///< values of the pixel type
  bool noise = false;        ///< uniform over [low, high], of integers each whole number alike
  std::uint64_t key = 0;     ///< of the noise: one draw a value of the volume
};

/// Value number `index` of a volume of T.
template <class T>
VOLPIPE_HD inline T filled(const BoxFill& fill, std::int64_t index) {
  if (!fill.noise) return T(fill.low);
  const double u = uniform_from(random_block(fill.key, index / 4).word[index % 4]);
  double value = std::is_integral_v<T> ? std::floor(std::fma(fill.high - fill.low + 1, u, fill.low))
                                       : std::fma(fill.high, u, fill.low * (1 - u));
  value = value < fill.low ? fill.low : value;
  return T(value < fill.high ? value : fill.high);
}

/// Voxels of the boxes become fills[component]; the others stay as they are.
void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const std::vector<BoxFill>& fills,
                Volume& output);
/// Voxels of the boxes become those of `input` after the boxes were shuffled in order; the others stay as they are.
void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input, Volume& output);

namespace cpu {
void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const std::vector<BoxFill>& fills,
                Volume& output);
void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input, Volume& output);
}  // namespace cpu
namespace cuda {
VOLPIPE_CUDA_CODE void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes,
                                  const std::vector<BoxFill>& fills, Volume& output);
VOLPIPE_CUDA_CODE void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input,
                                     Volume& output);
}  // namespace cuda

}  // namespace volpipe
