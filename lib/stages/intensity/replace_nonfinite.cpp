#include <limits>

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class ReplaceNonfinite final : public PointwiseStage {
 public:
  struct Params {
    double value = 0;
    std::optional<double> nan, posinf, neginf;
  };
  explicit ReplaceNonfinite(Params params) : params_(params) {}

  VolumeInfo output(const VolumeInfo& input) const override {
    return is_floating(input.dtype) ? PointwiseStage::output(input) : input;
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (!is_floating(context.input.dtype)) return;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    program.store(Operand::r0);
    if (params_.posinf) append_kept(program.add(Op::not_equal, kInfinity), *params_.posinf);
    if (params_.neginf) append_kept(program.add(Op::not_equal, -kInfinity), *params_.neginf);
    if (params_.nan) append_kept(program.add(Op::equal, Operand::r0), *params_.nan);
    program.add(Op::replace_nonfinite, params_.value);
  }

 private:
  /// The value in r0 where acc is not 0, else `otherwise`: into r0 and acc.
  static void append_kept(Program& program, double otherwise) {
    program.store(Operand::r1).add(Op::set, Operand::r0).add(Op::select, Operand::r1, otherwise).store(Operand::r0);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_replace_nonfinite() {
  using P = ReplaceNonfinite::Params;
  return define_stage<ReplaceNonfinite>(
      {.op = "replace_nonfinite",
       .family = "intensity",
       .summary = "NaN and infinity become numbers (numpy's nan_to_num); what float32 cannot hold is infinite; integer "
                  "images stay as they are",
       .example = {{"op", "replace_nonfinite"}, {"value", 0}}},
      Parameters<P>()
          .add("value", &P::value, {}, "what they become, unless one of the others says so")
          .add("nan", &P::nan, {}, "what NaN becomes")
          .add("posinf", &P::posinf, {}, "what infinity becomes")
          .add("neginf", &P::neginf, {}, "what -infinity becomes"));
}

}  // namespace volpipe
