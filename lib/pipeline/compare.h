// Are two volumes the same? Voxels by numpy's rule, grids by the distance of their corners.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/context.h"
#include "volume/volume.h"

namespace volpipe {

/// Voxels a and b agree when |a - b| <= absolute + relative * |b| (numpy.isclose: `b` is the reference).
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// One voxel of both volumes.
struct VoxelPair {
  Index3 index{};
  std::int64_t component = 0;
  double a = 0, b = 0;
};

struct Comparison {
  bool same_size = true;          ///< otherwise no voxel was compared
  bool same_components = true;    ///< otherwise no voxel was compared
  bool same_grid = true;          ///< corners closer than 1e-3 voxel
  double corner_distance_mm = 0;  ///< infinity when the sizes differ

  std::int64_t values = 0;     ///< voxels times components compared
  std::int64_t differing = 0;  ///< of them, beyond the tolerance
  /// NaN or infinity on one side with anything else on the other: always differing, left out of the maxima.
  std::int64_t non_finite_mismatches = 0;
  double max_absolute = 0;  ///< largest |a - b|
  VoxelPair max_absolute_at;
  double max_relative = 0;  ///< largest |a - b| / |b| where b is not 0
  VoxelPair max_relative_at;

  bool equal() const { return same_size && same_components && same_grid && differing == 0; }
};

/// Compares host volumes in double precision, so 32-bit integers are compared exactly. NaN equals NaN, and an infinity
/// the same infinity, at the same place. A different pixel type alone is no difference.
Comparison compare_volumes(const DeviceContext& context, const Volume& a, const Volume& b, const Tolerance& tolerance);

}  // namespace volpipe
