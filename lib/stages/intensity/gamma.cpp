#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Gamma final : public PointwiseStage {
 public:
  struct Params {
    double gamma = 1;
  };
  explicit Gamma(Params params) : params_(params) {}

  std::vector<StatisticsRequest> requests() const override { return {{.moments = true}}; }

  void append(Program& program, const PointwiseContext& context) const override {
    const Moments& moments = context.answers[0].moments;
    const double low = moments.min, range = moments.max - low;
    if (moments.count == 0) return notice_no_voxels(context.notices, "gamma");
    if (range == 0) return context.notices.add("constant_image", "gamma: the range is 0; the image was left as it is");
    append_linear(program, low, 1 / range, 0);
    program.add(Op::clamp, 0, 1).add(Op::power, params_.gamma);
    if (range <= 0x1p100) program.add(Op::fma, range, low);
    else program.add(Op::fma, range / 4, low / 4).add(Op::multiply, 4).add(Op::clamp, low, moments.max);
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
