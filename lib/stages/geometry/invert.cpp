#include "stages/geometry/moved_grid.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class Invert final : public GatherStage {
 public:
  struct Params : MovingParams {
    StageName of{};
    std::optional<OutputName> save{};
  };

  explicit Invert(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const auto found = context.applied.find(params_.of.name);
    if (found == context.applied.end())
      throw Error(ErrorCode::usage,
                  "'of': the stage '" + params_.of.name + "' did not act on this image, or is none that can be undone");
    const AppliedStage& applied = found->second;
    return sample_grid(input, applied.before.geometry, applied.pull.inverse(), params_, context, 1e-9, true);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_invert() {
  using Params = Invert::Params;
  Parameters<Params> parameters;
  parameters
      .add("of", &Params::of, {.required = true},
           "name of the stage to undo: its input's grid again, what it moved moved back; voxels that it only moved are "
           "copied")
      .add("save", &Params::save, {},
           "also write the transform: .tfm (ITK), .mat (ITK Matlab) or .txt (4x4), a path as in \"outputs\"");
  add_sampling_parameters(parameters);
  return define_stage<Invert>({.op = "invert",
                               .family = "geometry",
                               .summary = "undo an earlier stage",
                               .targets = StageTargets::all,
                               .example = {{"op", "invert"}, {"of", "flip"}},
                               .needs = {.stages = {{{"op", "flip"}, {"axes", "x"}}}}},
                              std::move(parameters));
}

}  // namespace volpipe
