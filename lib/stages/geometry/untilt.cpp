#include <cmath>

#include "stages/gather/compose.h"
#include "stages/geometry/spatial_maps.h"

namespace volpipe {

namespace {

constexpr double kForgiven = 1e-3;  // voxels, and cosines between axes

/// The axis that is replaced when the two that are closest to a right angle stay: z, unless x and y are oblique.
int oblique_axis(const Matrix3& direction) {
  int best = 2;
  const auto cosine = [&](int axis) {
    return std::abs(dot(direction.column((axis + 1) % 3), direction.column((axis + 2) % 3)));
  };
  for (const int axis : {1, 0})
    if (cosine(axis) < cosine(best) - kForgiven) best = axis;
  return best;
}

/// Gram and Schmidt's columns: the first stays, the second keeps to their plane, the third becomes its normal. Each is
/// as long as what it was reaches in its direction.
Matrix3 orthogonal_steps(const Matrix3& steps, const std::array<int, 3>& order) {
  Matrix3 result = steps;
  for (std::size_t i = 1; i < 3; ++i) {
    Vec3 step = steps.column(order[i]);
    for (std::size_t before = 0; before < i; ++before) {
      const Vec3 other = result.column(order[before]);
      step = step - (dot(step, other) / dot(other, other)) * other;
    }
    for (int row = 0; row < 3; ++row) result[row][std::size_t(order[i])] = step[std::size_t(row)];
  }
  return result;
}

/// True when voxels of the two grids with a common origin stay together.
bool is_same(const Affine& to_grid, const Index3& size) {
  for (int row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 3; ++column) {
      const double off = to_grid.linear[row][column] - (row == int(column) ? 1.0 : 0.0);
      if (std::abs(off) * double(size[column] - 1) > kForgiven) return false;
    }
  return true;
}

class Untilt final : public GatherStage {
 public:
  struct Params : MovingParams {
    Params() { antialias = false; }
    AxisList axis{};
  };

  explicit Untilt(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.axis.axes.size() > 1) faults.add(pointer + "/axis", "'axis' must be one of 'x', 'y' and 'z'");
  }

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Geometry& tilted = input.geometry;
    const Index3& n = tilted.size();
    const int normal = params_.axis.axes.empty() ? oblique_axis(tilted.direction()) : params_.axis.axes.front();
    const std::array<int, 3> order{normal == 0 ? 1 : 0, normal == 2 ? 1 : 2, normal};
    Affine upright{orthogonal_steps(tilted.index_to_world().linear, order), tilted.origin()};
    const Affine to_upright = upright.inverse() * tilted.index_to_world();
    if (is_same(to_upright, n)) return {identity_map(input), {}};
    const Box3 centres = box_around(to_upright, voxel_centres(n));
    Vec3 first, size;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      first[axis] = std::floor(centres.low[axis] + kForgiven);
      size[axis] = std::ceil(centres.high[axis] - kForgiven) - first[axis] + 1;
    }
    check_grid_size(input, size);
    upright.offset = upright(first);
    const Geometry target({std::int64_t(size[0]), std::int64_t(size[1]), std::int64_t(size[2])}, upright);
    return sample_grid(input, target, {}, params_, context, kHeaderSnap);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_untilt() {
  using Params = Untilt::Params;
  Parameters<Params> parameters;
  parameters.add("axis", &Params::axis, {},
                 "the axis that becomes the normal of the other two: that of the slices; without it z, unless another "
                 "two axes are closer to a right angle than x and y");
  add_interpolation_parameters(parameters);
  return define_stage<Untilt>(
      {.op = "untilt",
       .family = "geometry",
       .summary = "sample a sheared grid (gantry tilt) on an orthogonal one that holds all its voxels",
       .targets = StageTargets::all,
       .example = {{"op", "untilt"}, {"fill", "min"}}},
      std::move(parameters));
}

}  // namespace volpipe
