#include "stages/geometry/control_grid.h"
#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

/// Lowest and highest of a random share: r stands for [-r, r].
struct Share {
  double low = -0.03, high = 0.03;
};

}  // namespace

template <>
struct ParameterType<Share> {
  using Pair = ParameterType<std::array<double, 2>>;
  static std::string name() { return "number r for [-r, r], or 2 numbers"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<double>::schema(limits), Pair::schema(limits)}}};
  }
  static std::string read(const Json& json, const Limits& limits, Share& value) {
    std::array<double, 2> pair{};
    if (json.is_number()) pair = {-json.get<double>(), json.get<double>()};
    const bool fits = (json.is_number() && std::abs(pair[1]) < limits.max) || Pair::read(json, limits, pair).empty();
    if (!fits || pair[0] > pair[1]) return "a " + name() + ", ascending, above -1";
    value = {pair[0], pair[1]};
    return "";
  }
  static Json write(const Share& value) { return {value.low, value.high}; }
};

namespace {

/// Cells along each axis are stretched and shrunk at random; what is piecewise linear an axis is trilinear on the grid
/// of the cells' edges, whose outermost stay.
class GridDistortion final : public GatherStage {
 public:
  struct Params : MovingParams {
    PerAxis<std::int64_t> steps{{5, 5, 5}};
    Share limits{};
  };

  explicit GridDistortion(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Geometry& frame = context.frame.geometry;
    const Index3& cells = params_.steps.value;
    check_control_points(double(cells[0] + 1) * double(cells[1] + 1) * double(cells[2] + 1));
    const ControlGrid grid = grid_of_count(context, cells);
    std::array<std::vector<double>, 3> moved;  // of each edge, in voxels
    DrawStream draws = context.draws();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double length = double(frame.size()[axis]);
      std::vector<double> edge{0};
      for (std::int64_t cell = 0; cell < cells[axis]; ++cell)
        edge.push_back(edge.back() + 1 + params_.limits.low +
                       (params_.limits.high - params_.limits.low) * draws.uniform());
      for (std::size_t e = 0; e < edge.size(); ++e)
        moved[axis].push_back(length * (edge[e] / edge.back() - double(e) / double(cells[axis])));
    }
    FieldStep step;
    step.field =
        make_field(VectorField::Basis::linear, {cells[0] + 1, cells[1] + 1, cells[2] + 1},
                   [&](int component, std::int64_t i, std::int64_t j, std::int64_t k) {
                     return moved[std::size_t(component)][std::size_t(component == 0 ? i : component == 1 ? j : k)];
                   });
    step.to_grid = grid.frame_to_cells * frame.world_to_index();
    step.linear = frame.index_to_world().linear;
    return sample_grid(input, input.geometry, PointMap(std::move(step)), params_, context);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_grid_distortion() {
  using Params = GridDistortion::Params;
  Parameters<Params> parameters;
  parameters.add("steps", &Params::steps, {.min = 1, .max = 1000}, "cells along each axis of the first image")
      .add("limits", &Params::limits, {.min = -0.99, .max = 10},
           "share by which a cell grows or shrinks at random; the image's edges stay");
  add_sampling_parameters(parameters);
  return define_stage<GridDistortion>(
      {.op = "grid_distortion",
       .family = "geometry",
       .summary = "stretch and shrink cells along each axis at random, alike for all images of the item",
       .targets = StageTargets::all,
       .example = {{"op", "grid_distortion"}, {"steps", 4}, {"limits", 0.3}}},
      std::move(parameters));
}

}  // namespace volpipe
