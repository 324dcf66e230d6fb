// What samples a volume at arbitrary points: the work in device-neutral terms, and the executor of each device. The
// arithmetic is in gather_arithmetic.h, one definition for both.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/context.h"
#include "device/cuda_hooks.h"
#include "stages/separable/sampling.h"

namespace volpipe {

/// One axis of the image that is sampled, which may be a lattice view (cropped, flipped, padded, permuted) of what is
/// in memory: index v lies at element offset + stride * v for begin <= v < end, else at elements[v], -1 being
/// `view_fill`.
struct SourceAxis {
  std::int64_t size = 1;
  std::int64_t offset = 0, stride = 1;
  std::int64_t begin = 0, end = 1;
  std::vector<std::int64_t> elements{};  ///< of all `size` indices; empty when begin = 0 and end = size
};

/// One vector field of a point map, in the space of source indices: y becomes y + linear * v(to_grid(y)), or
/// linear * v(to_grid(y)) + offset, or the inverse of the first (see FieldStep). With `from_target`, to_grid takes the
/// target index (i, j, k) instead of y: the usual first field, whose matrix has exact zeros where the grids are
/// parallel, so that a row of voxels shares what it takes through y and z.
struct FieldWork {
  enum class Use : std::uint8_t { add, replace, undo } use = Use::add;
  bool bspline = false;  ///< cubic B-spline coefficients; else linear between the vectors
  Index3 size{};
  DataType type = DataType::float32;  ///< float32 or float64
  const void* vectors = nullptr;      ///< on the device: planar components x, y, z
  bool from_target = false;
  Affine to_grid;
  Matrix3 linear;
  Vec3 offset{};
};

/// Target voxel (i, j, k) takes the source's value at index y = fields(start(i, j, k)), coordinates in double.
struct GatherWork {
  Index3 target_size{};
  std::array<SourceAxis, 3> source;
  Affine start;
  std::vector<FieldWork> fields;  ///< in order
  /// nearest and label_linear move voxels bit for bit; the others read float32 or float64 spline coefficients (bspline2
  /// to 5), or voxels of any type (linear), or float32 or float64 (cubic, lanczos3).
  Interpolation interpolation = Interpolation::linear;
  Boundary boundary = Boundary::constant;
  double fill = 0;       ///< outside, for the constant boundaries
  double view_fill = 0;  ///< where the view has no voxel
  /// Target voxels outside [window_begin, window_end) are window_fill.
  Index3 window_begin{}, window_end{};
  double window_fill = 0;
  std::int64_t components = 1;
  std::int64_t component_stride = 0;  ///< elements between components of the source
  DataType input_type = DataType::float32;
  DataType output_type =
      DataType::float32;  ///< the input's (nearest, label_linear), else float32 or float64: the arithmetic
};

namespace cpu {
void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output);
}
namespace cuda {
VOLPIPE_CUDA_CODE void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output);
}

}  // namespace volpipe
