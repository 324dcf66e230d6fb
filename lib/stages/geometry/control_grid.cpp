#include "stages/geometry/control_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kMostControlPoints = 16777216;  // 2^24

/// Smooths along each axis of a small grid, edges replicated.
void smooth(std::vector<double>& values, const Index3& size, double sigma) {
  const std::vector<double> kernel = gaussian_kernel(sigma);
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  const std::int64_t strides[] = {1, size[0], size[0] * size[1]};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    std::vector<double> smoothed(values.size());
    for (std::int64_t i = 0; i < std::int64_t(values.size()); ++i) {
      const std::int64_t at = i / strides[axis] % size[axis];
      for (std::int64_t t = -radius; t <= radius; ++t)
        smoothed[std::size_t(i)] +=
            kernel[std::size_t(t + radius)] *
            values[std::size_t(i + (std::clamp<std::int64_t>(at + t, 0, size[axis] - 1) - at) * strides[axis])];
    }
    values = std::move(smoothed);
  }
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

Box3 extent_of_item(const StageContext& context) {
  const Affine to_frame = context.frame.geometry.world_to_index();
  Box3 extent = voxel_edges(context.frame.geometry.size());
  for (const auto& [name, info] : context.images) {
    if (same_grid(info.geometry, context.frame.geometry)) continue;
    const Box3 own = box_around(to_frame * info.geometry.index_to_world(), voxel_edges(info.geometry.size()));
    for (std::size_t axis = 0; axis < 3; ++axis) {
      extent.low[axis] = std::min(extent.low[axis], own.low[axis]);
      extent.high[axis] = std::max(extent.high[axis], own.high[axis]);
    }
  }
  return extent;
}

ControlGrid grid_of_size(const StageContext& context, const Vec3& size_mm) {
  const auto [low, high] = extent_of_item(context);
  const Geometry& frame = context.frame.geometry;
  const Vec3 spacing = frame.spacing();
  ControlGrid grid;
  Vec3 cells;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double per_voxel = spacing[axis] / size_mm[axis];
    const double middle = double(frame.size()[axis] - 1) / 2;
    // Whole cells on either side of the frame's middle cells, so that they do not depend on the other images.
    const double own = std::max(1.0, std::ceil(double(frame.size()[axis]) * per_voxel - 1e-9));
    double first = -own / 2, last = own / 2;
    first -= std::max(0.0, std::ceil(first - (low[axis] - middle) * per_voxel - 1e-6));
    last += std::max(0.0, std::ceil((high[axis] - middle) * per_voxel - last - 1e-6));
    cells[axis] = last - first;
    grid.frame_to_cells.linear[int(axis)][axis] = per_voxel;
    grid.frame_to_cells.offset[axis] = -middle * per_voxel - first;
  }
  check_control_points(cells[0] * cells[1] * cells[2]);
  for (std::size_t axis = 0; axis < 3; ++axis) grid.cells[axis] = std::int64_t(cells[axis]);
  return grid;
}

ControlGrid grid_of_count(const StageContext& context, const Index3& cells) {
  ControlGrid grid{cells, {}};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double per_voxel = double(cells[axis]) / double(context.frame.geometry.size()[axis]);
    grid.frame_to_cells.linear[int(axis)][axis] = per_voxel;
    grid.frame_to_cells.offset[axis] = 0.5 * per_voxel;
  }
  return grid;
}

void check_control_points(double points) {
  if (points > kMostControlPoints)
    throw Error(ErrorCode::usage, "there would be more than 16777216 control points: space them wider");
}

VectorField make_field(VectorField::Basis basis, const Index3& size,
                       const std::function<double(int, std::int64_t, std::int64_t, std::int64_t)>& value) {
  VolumeInfo info;
  info.geometry = Geometry(size, {});
  info.components = 3;
  info.component_axis = ComponentAxis::channels;
  Volume volume(info, Buffer::host(info.bytes()));
  auto* voxel = volume.data_as<float>();
  for (int component = 0; component < 3; ++component)
    for (std::int64_t k = 0; k < size[2]; ++k)
      for (std::int64_t j = 0; j < size[1]; ++j)
        for (std::int64_t i = 0; i < size[0]; ++i) *voxel++ = float(value(component, i, j, k));
  return {basis, size, std::make_shared<const Volume>(std::move(volume)), ""};
}

PointMap random_spline(const StageContext& context, const ControlGrid& grid, const Vec3& limits, double smoothness,
                       const Matrix3& linear) {
  const Index3 size{grid.cells[0] + 3, grid.cells[1] + 3, grid.cells[2] + 3};
  const double points = double(size[0]) * double(size[1]) * double(size[2]);
  check_control_points(points);
  if (points * (1 + 8 * smoothness) > kMostControlPoints)
    throw Error(ErrorCode::usage,
                "smoothing so many control points over so many others takes too long: space them wider instead");
  std::array<std::vector<double>, 3> values;
  DrawStream draws = context.draws();
  for (std::size_t component = 0; component < 3; ++component) {
    values[component].resize(std::size_t(size[0] * size[1] * size[2]));
    for (double& value : values[component]) value = limits[component] * (2 * draws.uniform() - 1);
    if (smoothness <= 0) continue;
    const double before = largest_of(values[component]);
    smooth(values[component], size, smoothness);
    const double after = largest_of(values[component]);
    for (double& value : values[component]) value *= after > 0 ? before / after : 0;
  }
  FieldStep step;
  step.field = make_field(VectorField::Basis::bspline3, size,
                          [&](int component, std::int64_t i, std::int64_t j, std::int64_t k) {
                            return values[std::size_t(component)][std::size_t((k * size[1] + j) * size[0] + i)];
                          });
  // The control point before the low edge is number 0.
  step.to_grid = Affine{Matrix3::identity(), {1, 1, 1}} * grid.frame_to_cells * context.frame.geometry.world_to_index();
  step.linear = linear;
  return PointMap(std::move(step));
}

}  // namespace volpipe
