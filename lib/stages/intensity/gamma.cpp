#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Gamma final : public PointwiseStage {
 public:
  struct Params {
    double gamma = 1;
  };
  explicit Gamma(Params params) : params_(params) {}

  std::vector<StatisticsRequest> requests() const override { return {{.range = true}}; }

  void append(Program& program, const PointwiseContext& context) const override {
    const Moments& moments = context.answers[0].moments;
    if (moments.count == 0) return notice_no_voxels(context.notices, "gamma");
    if (moments.min == moments.max) return notice_unchanged(context.notices, "gamma", "range");
    append_to_unit(program, moments.min, moments.max);
    program.add(Op::power, params_.gamma);
    append_from_unit(program, moments.min, moments.max);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_gamma() {
  using P = Gamma::Params;
  return define_stage<Gamma>(
      {.op = "gamma",
       .family = "intensity",
       .summary = "((v - min) / (max - min)) ^ gamma * (max - min) + min, over the finite voxels' range, which stays; "
                  "infinity goes to its ends, NaN stays",
       .example = {{"op", "gamma"}, {"gamma", 0.8}}},
      Parameters<P>().add("gamma", &P::gamma, {.min = 0, .exclusive_min = true, .required = true},
                          "below 1 brightens, above 1 darkens"));
}

}  // namespace volpipe
