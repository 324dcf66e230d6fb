#include <cmath>

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class Clip final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> min, max;
    std::optional<std::array<double, 2>> percentiles;
  };
  explicit Clip(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (!params.min && !params.max && !params.percentiles)
      faults.add(pointer, "'clip' needs 'min', 'max' or 'percentiles'");
    if ((params.min || params.max) && params.percentiles)
      faults.add(pointer + "/percentiles", "'percentiles' cannot be combined with 'min' or 'max'");
    if (params.min && params.max && *params.min > *params.max)
      faults.add(pointer + "/min", "'min' must not be above 'max'");
    if (params.percentiles)
      check_ascending((*params.percentiles)[0], (*params.percentiles)[1], pointer + "/percentiles", faults);
  }

  std::vector<StatisticsRequest> requests() const override {
    if (!params_.percentiles) return {};
    return {{.percentiles = {(*params_.percentiles)[0], (*params_.percentiles)[1]}}};
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    return keeps(input.dtype) ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext& context) const override {
    std::optional<double> low = params_.min, high = params_.max;
    if (params_.percentiles) {
      low = context.answers[0].percentiles[0];
      high = context.answers[0].percentiles[1];
      if (std::isnan(*low)) return notice_no_voxels(context.notices, "clip");
    }
    if (low && high) program.add(Op::clamp, *low, *high);
    else if (low) program.add(Op::maximum, *low);
    else program.add(Op::minimum, *high);
  }

 private:
  /// A bound that no voxel of the type can reach changes nothing.
  bool keeps(DataType type) const {
    const IntegerRange range = integer_range(type);
    return !is_floating(type) && !params_.percentiles &&
           (!params_.min || *params_.min <= range.lowest || holds(type, *params_.min)) &&
           (!params_.max || *params_.max >= range.highest || holds(type, *params_.max));
  }

  Params params_;
};

}  // namespace

StageDefinition stage_clip() {
  using P = Clip::Params;
  return define_stage<Clip>({.op = "clip",
                             .family = "intensity",
                             .summary = "limits intensities to a range; NaN stays",
                             .example = {{"op", "clip"}, {"min", -1000}, {"max", 1000}}},
                            Parameters<P>()
                                .add("min", &P::min, {},
                                     "lower values become this; integer images keep their type when the bounds are "
                                     "whole numbers of it, else float32")
                                .add("max", &P::max, {}, "higher values become this")
                                .add("percentiles", &P::percentiles, {.min = 0, .max = 100, .unit = "%"},
                                     "the bounds as percentiles of the finite voxels, instead of min and max"));
}

}  // namespace volpipe
