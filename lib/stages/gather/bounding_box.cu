#include <limits>

#include "device/cuda_context.h"
#include "stages/gather/bounding_box.h"
#include "stages/separable/any_voxels.cuh"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 256;

/// Each warp takes rows along x.
__global__ void __launch_bounds__(kThreads) bounds_kernel(AnyVoxels voxels, SelectVoxel select, std::int32_t nx,
                                                          std::int32_t ny, std::int64_t rows, IndexBounds* result) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  IndexBounds mine{{kMost, kMost, kMost}, {-1, -1, -1}};
  const int lane = threadIdx.x % 32;
  const std::int64_t warps = gridDim.x * std::int64_t(kThreads / 32);
  voxels.visit([&](const auto* data) {
    for (std::int64_t row = blockIdx.x * std::int64_t(kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
      bool any = false;
      for (std::int32_t x = lane; x < nx; x += 32)
        if (select(double(data[row * nx + x]))) {
          mine.least[0] = min(mine.least[0], x);
          mine.greatest[0] = max(mine.greatest[0], x);
          any = true;
        }
      if (!any) continue;
      const std::int32_t y = std::int32_t(row % ny), z = std::int32_t(row / ny);
      mine.least[1] = min(mine.least[1], y);
      mine.greatest[1] = max(mine.greatest[1], y);
      mine.least[2] = min(mine.least[2], z);
      mine.greatest[2] = max(mine.greatest[2], z);
    }
  });
  for (int axis = 0; axis < 3; ++axis)
    for (int step = 16; step > 0; step /= 2) {
      mine.least[axis] = min(mine.least[axis], __shfl_xor_sync(~0u, mine.least[axis], step));
      mine.greatest[axis] = max(mine.greatest[axis], __shfl_xor_sync(~0u, mine.greatest[axis], step));
    }
  if (lane != 0 || mine.greatest[0] < 0) return;
  for (int axis = 0; axis < 3; ++axis) {
    atomicMin(&result->least[axis], mine.least[axis]);
    atomicMax(&result->greatest[axis], mine.greatest[axis]);
  }
}

}  // namespace

IndexBounds index_bounds(DeviceContext& context, const ProgramInput& decider, const SelectVoxel& select,
                         const Index3& size) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const IndexBounds none{{kMost, kMost, kMost}, {-1, -1, -1}};
  Buffer result = context.allocate(sizeof(IndexBounds));
  copy_to_device(context, result.data(), &none, sizeof none);
  const std::int64_t rows = size[1] * size[2];
  const auto blocks = std::min<std::int64_t>(divide_up(rows, kThreads / 32), multiprocessor_count(context) * 8);
  bounds_kernel<<<unsigned(blocks), kThreads, 0, stream_of(context)>>>({decider.data, decider.dtype}, select,
                                                                       std::int32_t(size[0]), std::int32_t(size[1]),
                                                                       rows, static_cast<IndexBounds*>(result.data()));
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  IndexBounds bounds;
  copy_to_host(context, &bounds, result.data(), sizeof bounds);
  return bounds;
}

}  // namespace volpipe::cuda
