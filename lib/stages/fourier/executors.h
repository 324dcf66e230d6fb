// What fft.h needs of each device.
#pragma once

#include <algorithm>

#include "device/cuda_hooks.h"
#include "stages/fourier/fft.h"

namespace volpipe {

/// A volume's size without its axes of one voxel, which no transform touches; ones follow.
inline Index3 without_single_voxels(const Index3& size) {
  Index3 result{1, 1, 1};
  std::copy_if(size.begin(), size.end(), result.begin(), [](std::int64_t n) { return n > 1; });
  return result;
}

namespace cpu {
std::unique_ptr<FourierTransform> make_fourier_transform(DeviceContext& context, const Index3& size, DataType type);
}
namespace cuda {
VOLPIPE_CUDA_CODE std::unique_ptr<FourierTransform> make_fourier_transform(DeviceContext& context, const Index3& size,
                                                                           DataType type);
}

}  // namespace volpipe
