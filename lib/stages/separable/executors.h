// What runs a map over the voxels: the work in device-neutral terms, and the executor of each device.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/context.h"
#include "device/cuda_hooks.h"
#include "stages/separable/axis_matrix.h"
#include "volume/data_type.h"

namespace volpipe {

/// Voxels moved bit for bit: target voxel (i, j, k) is the source voxel whose index on axis source_axis[a] is
/// index[a][.], or `fill_bits` where an index is -1. Components are planar.
struct CopyWork {
  Index3 source_size, target_size;
  std::array<int, 3> source_axis{0, 1, 2};
  std::array<std::vector<std::int32_t>, 3> index;
  std::int64_t components = 1;
  int element_bytes = 1;        ///< 1, 2, 4 or 8
  std::uint64_t fill_bits = 0;  ///< the low bytes are the fill voxel
};

/// Weighted windows along the first two axes of [slices][rows][columns]: out[s] = y (in[s] x^T), x first. A null matrix
/// leaves its axis alone.
struct SliceWork {
  std::int64_t columns = 1, rows = 1, slices = 1;
  const AxisMatrix* x = nullptr;
  const AxisMatrix* y = nullptr;
  DataType input_type = DataType::float32;
  DataType output_type = DataType::float32;  ///< float32 or float64: also the arithmetic
  double fill = 0;

  std::int64_t output_columns() const { return x ? x->output_size() : columns; }
  std::int64_t output_rows() const { return y ? y->output_size() : rows; }
};

/// Windows of at most two voxels on every axis, x and y not periodic, all axes in one pass: float32 out.
struct LinearWork {
  Index3 size;
  std::array<const AxisMatrix*, 3> matrices;
  std::int64_t components = 1;
  DataType input_type = DataType::float32;
  double fill = 0;
};

// Sums start at the fill's share and add the taps by ascending index with fused multiply-adds, on both devices. Where x
// and y are correlations (correlation.h), CUDA takes the extension beyond the ends voxel by voxel instead.
namespace cpu {
void copy_voxels(DeviceContext& context, const CopyWork& work, const void* input, void* output);
void filter_slices(DeviceContext& context, const SliceWork& work, const void* input, void* output);
}  // namespace cpu

namespace cuda {
VOLPIPE_CUDA_CODE void copy_voxels(DeviceContext& context, const CopyWork& work, const void* input, void* output);
VOLPIPE_CUDA_CODE void filter_slices(DeviceContext& context, const SliceWork& work, const void* input, void* output);
VOLPIPE_CUDA_CODE void filter_linear(DeviceContext& context, const LinearWork& work, const void* input, void* output);
}  // namespace cuda

}  // namespace volpipe
