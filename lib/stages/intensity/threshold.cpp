#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Threshold final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> above, below;
    double value = 0;
  };
  explicit Threshold(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (!params.above && !params.below) faults.add(pointer, "'threshold' needs 'above', 'below' or both");
    if (params.above && params.below && *params.above > *params.below)
      faults.add(pointer + "/above", "'above' must not be above 'below'");
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    return holds(input.dtype, params_.value) ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext&) const override {
    if (params_.above) program.add(Op::keep_at_least, *params_.above, params_.value);
    if (params_.below) program.add(Op::keep_at_most, *params_.below, params_.value);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_threshold() {
  using P = Threshold::Params;
  return define_stage<Threshold>(
      {.op = "threshold",
       .family = "intensity",
       .summary = "keeps voxels with above <= v <= below; the others, NaN too, become value",
       .example = {{"op", "threshold"}, {"above", 0}, {"value", 0}}},
      Parameters<P>()
          .add("above", &P::above, {}, "lowest intensity kept")
          .add("below", &P::below, {}, "highest intensity kept")
          .add("value", &P::value, {},
               "what the others become; integer images keep their type when it is a whole number of it, else float32"));
}

}  // namespace volpipe
