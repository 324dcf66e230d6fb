#include <cmath>

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Cast final : public PointwiseStage {
 public:
  struct Params {
    DataType dtype = DataType::float32;
    bool saturate = true;
    bool round = true;
  };
  explicit Cast(Params params) : params_(params) {}

  VolumeInfo output(const VolumeInfo& input) const override {
    VolumeInfo result = input;
    result.dtype = params_.dtype;
    return result;
  }

  void append(Program& program, const PointwiseContext&) const override {
    if (is_floating(params_.dtype)) return;
    const IntegerRange range = integer_range(params_.dtype);
    if (!params_.round) program.add(Op::truncate);
    if (!params_.saturate) append_wrapping(program, range);
    program.add(Op::to_integer, range.lowest, range.highest);
  }

 private:
  /// Into the range by multiples of its length 2^n, exactly: v - 2^n floor(v / 2^n + 1/2), or without the 1/2.
  void append_wrapping(Program& program, const IntegerRange& range) const {
    const double length = range.highest - range.lowest + 1;
    program.add(Op::replace_nonfinite, 0).add(Op::round).store(Operand::r0).add(Op::multiply, 1 / length);
    if (range.lowest < 0) program.add(Op::add, 0.5);
    program.add(Op::floor).add(Op::multiply, -length).add(Op::add, Operand::r0);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_cast() {
  using P = Cast::Params;
  return define_stage<Cast>(
      {.op = "cast",
       .family = "intensity",
       .summary = "changes the pixel type; exact where the type holds the value, NaN becomes 0 in integers",
       .example = {{"op", "cast"}, {"dtype", "int16"}}},
      Parameters<P>()
          .add("dtype", &P::dtype, {.required = true}, "the new type")
          .add("saturate", &P::saturate, {},
               "integers: values beyond the type's range become its ends, and are counted; else they wrap around as in "
               "C")
          .add("round", &P::round, {}, "integers: to the nearest, halves away from zero; else towards zero"));
}

}  // namespace volpipe
