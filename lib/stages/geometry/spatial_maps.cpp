#include "stages/geometry/spatial_maps.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stages/gather/compose.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// An affine index map of which each target axis follows one source axis.
struct AxisPairs {
  std::array<int, 3> source_axis{};
  Vec3 scale{}, offset{};
};

/// The whole number, or the half, that `offset` misses by at most `snap` voxels: whether voxels are met, or places
/// half-way between two (ties of nearest and label_linear), does not depend on rounding.
double without_rounding(double offset, double snap) {
  const double half = std::round(2 * offset) / 2;
  return std::abs(offset - half) <= snap ? half : offset;
}

/// Empty when another axis has a share of more than `snap` voxels somewhere on the target grid.
std::optional<AxisPairs> separate(const Affine& map, const Index3& size, double snap) {
  AxisPairs pairs;
  std::array<bool, 3> used{};
  for (int target = 0; target < 3; ++target) {
    int best = 0;
    for (int source = 1; source < 3; ++source)
      if (std::abs(map.linear[source][std::size_t(target)]) > std::abs(map.linear[best][std::size_t(target)]))
        best = source;
    const auto axis = std::size_t(target);
    pairs.source_axis[axis] = best;
    pairs.scale[axis] = map.linear[best][axis];
    if (used[std::size_t(best)]) return std::nullopt;
    used[std::size_t(best)] = true;
    for (int source = 0; source < 3; ++source)
      if (source != best && std::abs(map.linear[source][axis]) * double(size[axis] - 1) > snap) return std::nullopt;
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double last = double(size[axis] - 1);
    double& scale = pairs.scale[axis];
    double& offset = pairs.offset[axis];
    offset = map.offset[std::size_t(pairs.source_axis[axis])];
    if (std::abs(scale - std::round(scale)) * last <= snap && std::round(scale) != 0) scale = std::round(scale);
    offset = without_rounding(offset, snap);
  }
  return pairs;
}

/// Whole numbers where that moves no voxel of the target by more than `snap`: what rounding has left would put the
/// outermost voxels beyond the edge.
Affine snapped(Affine map, const Index3& size, double snap) {
  const auto snap_to_whole = [snap](double& value, double reach) {
    if (std::abs(value - std::round(value)) * reach <= snap) value = std::round(value);
  };
  for (int row = 0; row < 3; ++row) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      snap_to_whole(map.linear[row][axis], double(std::max<std::int64_t>(size[axis] - 1, 1)));
    map.offset[std::size_t(row)] = without_rounding(map.offset[std::size_t(row)], snap);
  }
  return map;
}

GatherMap gather_map(const VolumeInfo& input, const Geometry& target, PointMap points, const SamplingParams& params) {
  GatherMap map;
  map.output = input;
  map.output.geometry = target;
  map.before = identity_map(input);
  map.points = std::move(points);
  map.interpolation = interpolation_for(input, params);
  map.boundary = params.boundary;
  map.fill = params.fill;
  map.window_end = target.size();
  if (!moves_voxels(map.interpolation)) map.output.dtype = DataType::float32;
  check_fill(map.output, params.boundary, params.fill);
  return map;
}

/// Smooths each source axis by as much as one step of the target moves along it.
void smooth_before(GatherMap& map, const VolumeInfo& input) {
  if (!map.points.is_affine()) return;
  const Affine steps = map.points.affine();
  bool smooths = false;
  for (int axis = 0; axis < 3; ++axis) {
    const double factor = norm({steps.linear[axis][0], steps.linear[axis][1], steps.linear[axis][2]});
    if (factor <= 1 + 1e-9) continue;
    const auto a = std::size_t(axis);
    map.before.matrices[a] = antialias_axis(input.geometry.size()[a], factor);
    smooths = smooths || !map.before.matrices[a].is_identity();
  }
  if (!smooths) return;
  map.before.computes = true;
  map.before.output.dtype = DataType::float32;
  if (map.interpolation == Interpolation::nearest) map.output.dtype = DataType::float32;
}

double tolerance_for(const StageContext& context) { return context.double_precision ? 1e-15 : kSplineTolerance; }

}  // namespace

SpatialMap sample_axes(const VolumeInfo& input, const std::array<AxisSamples, 3>& axes, const SamplingParams& params,
                       const StageContext& context) {
  GridMap grid = sampling_map(input, {0, 1, 2}, axes, params, tolerance_for(context));
  if (interpolation_for(input, params) != Interpolation::label_linear) return {std::move(grid), {}};
  GatherMap gather = gather_map(input, grid.output.geometry, PointMap(grid.target_to_source), params);
  if (antialiases(input, params)) smooth_before(gather, input);
  return {std::move(gather), {}};
}

SpatialMap sample_grid(const VolumeInfo& input, const Geometry& target, PointMap pull, const SamplingParams& params,
                       const StageContext& context, double snap, bool copies) {
  const Index3& size = target.size();
  check_grid_size(input, {double(size[0]), double(size[1]), double(size[2])});
  PointMap points = PointMap(input.geometry.world_to_index()).after(pull).after(PointMap(target.index_to_world()));
  const auto pairs = points.is_affine() ? separate(points.affine(), size, snap) : std::nullopt;
  if (pairs) {
    std::array<AxisSamples, 3> axes;
    bool lattice = true;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      axes[axis] = regular_samples(size[axis], pairs->scale[axis], pairs->offset[axis]);
      for (const double c : axes[axis].coordinates) lattice = lattice && c == std::round(c);
    }
    if (lattice || interpolation_for(input, params) != Interpolation::label_linear) {
      SamplingParams used = params;
      if (lattice && copies) used.interpolation = Interpolation::nearest;
      GridMap grid = sampling_map(input, pairs->source_axis, axes, used, tolerance_for(context));
      grid.output.geometry = target;
      return {std::move(grid), std::move(pull)};
    }
  }
  if (points.is_affine()) points = PointMap(snapped(points.affine(), size, snap));
  GatherMap gather = gather_map(input, target, std::move(points), params);
  if (antialiases(input, params)) smooth_before(gather, input);
  return {std::move(gather), std::move(pull)};
}

Vec3 Center::of(const StageContext& context) const { return point.value_or(center_of(context.frame.geometry)); }

Matrix3 rotation_about(int axis, double degrees) {
  const double turned = std::remainder(degrees, 360.0), angle = turned * std::numbers::pi / 180;
  const bool quarter = std::fmod(turned, 90.0) == 0;
  const double c = quarter ? std::round(std::cos(angle)) : std::cos(angle);
  const double s = quarter ? std::round(std::sin(angle)) : std::sin(angle);
  Matrix3 rotation = Matrix3::identity();
  const auto next = std::size_t((axis + 1) % 3), last = std::size_t((axis + 2) % 3);
  rotation[int(next)][next] = rotation[int(last)][last] = c;
  rotation[int(next)][last] = -s;
  rotation[int(last)][next] = s;
  return rotation;
}

Affine about_center(const Matrix3& linear, const Vec3& center, const Vec3& translation) {
  return {linear, center - linear * center + translation};
}

Vec3 center_of(const Geometry& geometry) {
  const Index3& n = geometry.size();
  return geometry.to_world({double(n[0] - 1) / 2, double(n[1] - 1) / 2, double(n[2] - 1) / 2});
}

Geometry fitted_grid(const Geometry& grid, const Affine& push) {
  const Affine to_index = grid.world_to_index() * push * grid.index_to_world();
  const Box3 extent = box_around(to_index, voxel_edges(grid.size()));
  Vec3 voxels;
  Affine origin;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    voxels[axis] = std::max(1.0, std::ceil(extent.high[axis] - extent.low[axis] - 1e-6));
    origin.offset[axis] = (extent.low[axis] + extent.high[axis]) / 2 - (voxels[axis] - 1) / 2;
  }
  check_grid_size({}, voxels);
  return grid.remapped({std::int64_t(voxels[0]), std::int64_t(voxels[1]), std::int64_t(voxels[2])}, origin);
}

Geometry reference_geometry(const std::string& name, const StageContext& context) {
  if (const VolumeInfo* image = context.find_image(name)) return image->geometry;
  return context.files.info(name).geometry;
}

}  // namespace volpipe
