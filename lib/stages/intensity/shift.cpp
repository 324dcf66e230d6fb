#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Shift final : public PointwiseStage {
 public:
  struct Params {
    double offset = 0;
    bool relative = false;
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit Shift(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.mask.kind != Mask::Kind::all && !params.relative)
      faults.add(pointer + "/mask", "'mask' needs 'relative', for else no statistics are taken");
  }

  std::vector<StatisticsRequest> requests() const override {
    if (!params_.relative) return {};
    return {{.moments = true, .mask = params_.mask, .over = params_.per}};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (!params_.relative) return (void)program.add(Op::add, params_.offset);
    const Moments& moments = context.answers[0].moments;
    if (moments.count == 0) return notice_no_voxels(context.notices, "shift");
    if (moments.min == moments.max) return notice_unchanged(context.notices, "shift", "standard deviation");
    append_for_data(program, params_.mask, [&] { program.add(Op::add, params_.offset * moments.std()); });
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_shift() {
  using P = Shift::Params;
  return define_stage<Shift>(
      {.op = "shift",
       .family = "intensity",
       .summary = "v + offset, in float32; NaN and infinity stay",
       .example = {{"op", "shift"}, {"offset", 0.1}, {"relative", true}}},
      Parameters<P>()
          .add("offset", &P::offset, {.required = true}, "added to every voxel")
          .add("relative", &P::relative, {},
               "the offset is in standard deviations (population) of the finite voxels (MONAI's StdShiftIntensity)")
          .add("mask", &P::mask, {}, kMaskHelp)
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
