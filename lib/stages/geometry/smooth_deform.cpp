#include "stages/geometry/control_grid.h"
#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

class SmoothDeform final : public GatherStage {
 public:
  struct Params : MovingParams {
    PerAxis<std::int64_t> steps{{4, 4, 4}};
    PerAxis<double> limits{{3, 3, 3}};
    Units units = Units::mm;
  };

  explicit SmoothDeform(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Geometry& frame = context.frame.geometry;
    const ControlGrid grid = grid_of_count(context, params_.steps.value);
    const Matrix3 linear = params_.units == Units::mm ? frame.direction() : frame.index_to_world().linear;
    return sample_grid(input, input.geometry, random_spline(context, grid, params_.limits.value, 0, linear), params_,
                       context);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_smooth_deform() {
  using Params = SmoothDeform::Params;
  Parameters<Params> parameters;
  parameters
      .add("steps", &Params::steps, {.min = 1, .max = 1000},
           "cells of the smooth field along each axis of the first image")
      .add("limits", &Params::limits, {.min = 0, .unit = "mm"},
           "largest displacement along each axis of the first image")
      .add("units", &Params::units, {}, "of 'limits'");
  add_sampling_parameters(parameters);
  return define_stage<SmoothDeform>({.op = "smooth_deform",
                                     .family = "geometry",
                                     .summary = "deform at random by a smooth field over the image's extent",
                                     .targets = StageTargets::all,
                                     .example = {{"op", "smooth_deform"}, {"steps", 3}, {"limits", 1.5}}},
                                    std::move(parameters));
}

}  // namespace volpipe
