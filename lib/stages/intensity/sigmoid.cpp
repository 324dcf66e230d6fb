#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Sigmoid final : public PointwiseStage {
 public:
  struct Params {
    double alpha = 1, beta = 0;
    std::array<double, 2> to{0, 1};
  };
  explicit Sigmoid(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.alpha == 0) faults.add(pointer + "/alpha", "'alpha' must not be 0; near it, the step is steep");
  }

  void append(Program& program, const PointwiseContext&) const override {
    append_linear(program, params_.beta, -1 / params_.alpha, 0);
    program.add(Op::exp).add(Op::add, 1).add(Op::divide_by, params_.to[1] - params_.to[0]);
    if (params_.to[0] != 0) program.add(Op::add, params_.to[0]);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_sigmoid() {
  using P = Sigmoid::Params;
  return define_stage<Sigmoid>(
      {.op = "sigmoid",
       .family = "intensity",
       .summary = "to[0] + (to[1] - to[0]) / (1 + exp(-(v - beta) / alpha)) (ITK's SigmoidImageFilter); infinity goes "
                  "to the ends, NaN stays",
       .example = {{"op", "sigmoid"}, {"alpha", 20}, {"beta", 100}}},
      Parameters<P>()
          .add("alpha", &P::alpha, {},
               "width of the step: the slope at beta is its height / (4 alpha); below 0 it descends")
          .add("beta", &P::beta, {}, "the intensity in the middle of the step")
          .add("to", &P::to, {}, "ends of the result; may descend"));
}

}  // namespace volpipe
