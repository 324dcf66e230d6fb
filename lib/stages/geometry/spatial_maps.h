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
/// A grid that meets voxels alone is copied, type and all, when `copies`; else its type is that of interpolation.
SpatialMap sample_grid(const VolumeInfo& input, const Geometry& target, PointMap pull, const SamplingParams& params,
                       const StageContext& context, double snap = 1e-9, bool copies = false);

/// For grids of other files, whose headers are rounded to float32.
inline constexpr double kHeaderSnap = 1e-4;

/// Sampling parameters of stages that move the image: outside it lies the fill value.
struct MovingParams : SamplingParams {
  MovingParams() { boundary = Boundary::constant; }
};

/// Where an image turns: its middle, or a point in RAS mm.
struct Center {
  std::optional<Vec3> point{};
  Vec3 of(const StageContext& context) const;
};
template <>
struct ParameterType<Center> {
  static std::string name() { return "\"image\" or 3 numbers (x, y, z)"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {{{"const", "image"}}, ParameterType<Vec3>::schema(limits)}}};
  }
  static std::string read(const Json& json, const Limits& limits, Center& value) {
    if (json == "image") return "";
    value.point.emplace();
    return ParameterType<Vec3>::read(json, limits, *value.point).empty() ? "" : name();
  }
  static Json write(const Center& value) { return value.point ? Json(*value.point) : Json("image"); }
};

/// Rotation about world axis `axis` by the right-hand rule; exact for multiples of 90 degrees.
Matrix3 rotation_about(int axis, double degrees);

/// x -> center + linear * (x - center) + translation
Affine about_center(const Matrix3& linear, const Vec3& center, const Vec3& translation = {});

/// World position of the middle of the grid.
Vec3 center_of(const Geometry& geometry);

/// The smallest grid with the axes and spacing of `grid` that holds its whole extent after `push` (input point ->
/// output point).
Geometry fitted_grid(const Geometry& grid, const Affine& push);

/// The geometry of an image of the item, or of a file.
Geometry reference_geometry(const std::string& name, const StageContext& context);

}  // namespace volpipe
