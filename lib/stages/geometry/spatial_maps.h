// What the stages that sample at arbitrary points share: from a target grid and a map of the world to the cheapest
// exact form.
#pragma once

#include "stages/gather/gather_stage.h"
#include "stages/geometry/grid_maps.h"

namespace volpipe {

/// Samples the axes: labels with label_linear as a gather, everything else separably. World positions stay.
SpatialMap sample_axes(const VolumeInfo& input, const std::array<AxisSamples, 3>& axes, const SamplingParams& params,
                       const StageContext& context);

/// Puts on the grid `target` what lies at pull(p) for each of its points p. Affine maps that keep the axes apart are
/// separable, and copies where they meet voxels; the rest are gathers. Indices that miss a voxel by at most `snap` over
/// the whole axis are that voxel.
SpatialMap sample_grid(const VolumeInfo& input, const Geometry& target, PointMap pull, const SamplingParams& params,
                       const StageContext& context, double snap = 1e-9);

/// For grids of other files, whose headers are rounded to float32.
inline constexpr double kHeaderSnap = 1e-4;

/// World position of the middle of the grid.
Vec3 center_of(const Geometry& geometry);

/// The smallest grid with the axes and spacing of `grid` that holds its whole extent after `push` (input point ->
/// output point).
Geometry fitted_grid(const Geometry& grid, const Affine& push);

/// The geometry of an image of the item, or of a file.
Geometry reference_geometry(const std::string& name, const StageContext& context);

}  // namespace volpipe
