// Functions of the value alone, with the special cases of C's math library.
#include <cmath>

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Log final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> base;
    double offset = 0;
  };
  explicit Log(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.base == 1.0) faults.add(pointer + "/base", "'base' must not be 1, to which there is no logarithm");
  }

  void append(Program& program, const PointwiseContext&) const override {
    if (params_.offset != 0) program.add(Op::add, params_.offset);
    if (params_.base == 10.0) program.add(Op::log10);
    else program.add(Op::log);
    if (params_.base && params_.base != 10.0) program.add(Op::multiply, 1 / std::log(*params_.base));
  }

 private:
  Params params_;
};

class Exp final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> base;
    double offset = 0;
  };
  explicit Exp(Params params) : params_(params) {}

  void append(Program& program, const PointwiseContext&) const override {
    if (params_.base) program.store(Operand::r0).add(Op::set, *params_.base).add(Op::power, Operand::r0);
    else program.add(Op::exp);
    if (params_.offset != 0) program.add(Op::subtract, params_.offset);
  }

 private:
  Params params_;
};

class Sqrt final : public PointwiseStage {
 public:
  struct Params {};
  explicit Sqrt(Params) {}

  void append(Program& program, const PointwiseContext&) const override { program.add(Op::sqrt); }
};

class Power final : public PointwiseStage {
 public:
  struct Params {
    double exponent = 1;
    bool keep_sign = false;
  };
  explicit Power(Params params) : params_(params) {}

  void append(Program& program, const PointwiseContext&) const override {
    program.add(params_.keep_sign ? Op::signed_power : Op::power, params_.exponent);
  }

 private:
  Params params_;
};

constexpr const char* kBaseHelp = "base; left out, e";

}  // namespace

StageDefinition stage_log() {
  using P = Log::Params;
  return define_stage<Log>({.op = "log",
                            .family = "intensity",
                            .summary = "log(v + offset); -infinity at 0, NaN below it and for NaN",
                            .example = {{"op", "log"}, {"offset", 1}}},
                           Parameters<P>()
                               .add("base", &P::base, {.min = 0, .exclusive_min = true}, kBaseHelp)
                               .add("offset", &P::offset, {}, "added to the value first"));
}

StageDefinition stage_exp() {
  using P = Exp::Params;
  return define_stage<Exp>({.op = "exp",
                            .family = "intensity",
                            .summary = "base ^ v - offset, which undoes log; infinity above what the pixel type holds "
                                       "(e ^ 88.7 in float32), NaN stays",
                            .example = {{"op", "exp"}, {"base", 2}}},
                           Parameters<P>()
                               .add("base", &P::base, {.min = 0, .exclusive_min = true}, kBaseHelp)
                               .add("offset", &P::offset, {}, "taken off the result"));
}

StageDefinition stage_sqrt() {
  return define_stage<Sqrt>({.op = "sqrt",
                             .family = "intensity",
                             .summary = "square root; NaN below zero and for NaN",
                             .example = {{"op", "sqrt"}}},
                            Parameters<Sqrt::Params>());
}

StageDefinition stage_power() {
  using P = Power::Params;
  return define_stage<Power>(
      {.op = "power",
       .family = "intensity",
       .summary = "v ^ exponent, as C's pow: below zero NaN unless the exponent is a whole number, NaN stays but for "
                  "the exponent 0",
       .example = {{"op", "power"}, {"exponent", 1.5}, {"keep_sign", true}}},
      Parameters<P>()
          .add("exponent", &P::exponent, {.required = true}, "exponent")
          .add("keep_sign", &P::keep_sign, {}, "sign(v) |v| ^ exponent, which goes on below zero"));
}

}  // namespace volpipe
