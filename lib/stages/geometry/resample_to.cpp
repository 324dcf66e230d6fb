#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

class ResampleTo final : public GatherStage {
 public:
  struct Params : MovingParams {
    ImageOrFile reference{};
  };

  explicit ResampleTo(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Geometry target = reference_geometry(params_.reference.name, context);
    SpatialMap map = sample_grid(input, target, {}, params_, context, kHeaderSnap);
    notice_empty_overlap(input, map);
    return map;
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_resample_to() {
  using Params = ResampleTo::Params;
  Parameters<Params> parameters;
  parameters.add("reference", &Params::reference, {.required = true},
                 "image of the item, or file, whose grid is taken");
  add_sampling_parameters(parameters);
  return define_stage<ResampleTo>({.op = "resample_to",
                                   .family = "geometry",
                                   .summary = "sample on the grid of another image or file",
                                   .targets = StageTargets::all,
                                   .example = {{"op", "resample_to"}, {"reference", "image"}}},
                                  std::move(parameters));
}

}  // namespace volpipe
