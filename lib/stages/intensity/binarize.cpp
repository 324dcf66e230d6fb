#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Binarize final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> threshold, above, below;
    std::int64_t inside = 1, outside = 0;
  };
  explicit Binarize(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const bool range = params.above || params.below;
    if (!params.threshold && !range) faults.add(pointer, "'binarize' needs 'threshold', 'above' or 'below'");
    if (params.threshold && range)
      faults.add(pointer + "/threshold", "'threshold' cannot be combined with 'above' or 'below'");
    if (params.above && params.below && *params.above > *params.below)
      faults.add(pointer + "/above", "'above' must not be above 'below'");
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    VolumeInfo result = input;
    result.dtype = DataType::uint8;
    return result;
  }

  void append(Program& program, const PointwiseContext&) const override {
    if (params_.threshold) program.add(Op::greater, *params_.threshold);
    else append_within(program, params_.above, params_.below);
    if (params_.inside != 1 || params_.outside != 0)
      program.add(Op::fma, double(params_.inside - params_.outside), double(params_.outside));
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_binarize() {
  using P = Binarize::Params;
  const Limits of_uint8{.min = 0, .max = 255};
  return define_stage<Binarize>(
      {.op = "binarize",
       .family = "intensity",
       .summary = "inside where v > threshold, or above <= v <= below, else outside, as uint8; NaN is outside",
       .example = {{"op", "binarize"}, {"threshold", 100}}},
      Parameters<P>()
          .add("threshold", &P::threshold, {}, "higher intensities are inside, this one is not")
          .add("above", &P::above, {}, "instead: lowest intensity inside")
          .add("below", &P::below, {}, "highest intensity inside")
          .add("inside", &P::inside, of_uint8, "value of voxels inside")
          .add("outside", &P::outside, of_uint8, "value of the others"));
}

}  // namespace volpipe
