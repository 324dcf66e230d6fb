#include <algorithm>

#include "stages/geometry/control_grid.h"
#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

class Elastic final : public GatherStage {
 public:
  struct Params : MovingParams {
    PerAxis<double> spacing{{30, 30, 30}};
    PerAxis<double> magnitude{{5, 5, 5}};
    double smoothness = 0;
  };

  explicit Elastic(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const ControlGrid grid = grid_of_size(context, params_.spacing.value);
    PointMap pull = random_spline(context, grid, params_.magnitude.value, params_.smoothness, Matrix3::identity());
    SpatialMap map = sample_grid(input, input.geometry, std::move(pull), params_, context);
    // A cubic B-spline deformation is injective below this share of the spacing in 3-D (Choi and Lee 2000).
    constexpr double kInjective = 0.403;
    const auto& spacing = params_.spacing.value;
    const auto& magnitude = params_.magnitude.value;
    if (*std::max_element(magnitude.begin(), magnitude.end()) >
        kInjective * *std::min_element(spacing.begin(), spacing.end()))
      map.notices.add("may_fold", "displacements above 0.4 of the control points' spacing may fold the image over");
    return map;
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_elastic() {
  using Params = Elastic::Params;
  Parameters<Params> parameters;
  parameters
      .add("spacing", &Params::spacing, {.min = 0, .exclusive_min = true, .unit = "mm"},
           "distance of the control points along the first image's axes")
      .add("magnitude", &Params::magnitude, {.min = 0, .unit = "mm", .of_world = true},
           "largest displacement along the world's x, y, z: control points draw from [-magnitude, magnitude]")
      .add("smoothness", &Params::smoothness, {.min = 0, .max = 100},
           "Gaussian smoothing of the displacements over so many control points, the largest kept");
  add_sampling_parameters(parameters);
  return define_stage<Elastic>({.op = "elastic",
                                .family = "geometry",
                                .summary = "deform at random by cubic B-splines, alike for all images of the item",
                                .targets = StageTargets::all,
                                .example = {{"op", "elastic"}, {"spacing", 8}, {"magnitude", 2}}},
                               std::move(parameters));
}

}  // namespace volpipe
