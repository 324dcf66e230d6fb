// Classes of intensities by Otsu's thresholds.
#include "stages/pointwise/otsu.h"

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

struct OtsuParams {
  std::int64_t classes = 2;
  Mask mask;
  StatisticsRequest::Over per = StatisticsRequest::Over::volume;
};

class Otsu : public PointwiseStage {
 public:
  using Params = OtsuParams;
  explicit Otsu(Params params) : params_(std::move(params)) {}

  std::vector<StatisticsRequest> requests() const override {
    return {{.bins = kOtsuBins, .mask = params_.mask, .over = params_.per}};
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    VolumeInfo result = input;
    result.dtype = DataType::uint8;
    return result;
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const StatisticsResult& statistics = context.answers[0];
    const auto thresholds =
        otsu_thresholds(statistics.moments, statistics.histogram, int(params_.classes), context.precision);
    add_notices(statistics.moments, int(thresholds.size()) + 1, context.notices);
    if (thresholds.empty()) return (void)program.add(Op::set, 0);
    program.store(Operand::r0).add(Op::greater, thresholds[0]);
    for (std::size_t i = 1; i < thresholds.size(); ++i)
      program.store(Operand::r1).add(Op::set, Operand::r0).add(Op::greater, thresholds[i]).add(Op::add, Operand::r1);
  }

 private:
  void add_notices(const Moments& moments, int made, Notices& notices) const {
    if (moments.count == 0)
      return notices.add("no_voxels", "otsu: no finite voxel to take statistics from; every voxel became 0");
    if (made < params_.classes)
      notices.add("few_values", "otsu: too few different values for " + std::to_string(params_.classes) +
                                    " classes; made were " + std::to_string(made));
  }

  Params params_;
};

class MultiOtsu final : public Otsu {
 public:
  struct Params : OtsuParams {
    Params() { classes = 3; }
  };
  explicit MultiOtsu(Params params) : Otsu(std::move(params)) {}
};

template <class P>
Parameters<P> add_common(Parameters<P> parameters) {
  return parameters
      .add("mask", static_cast<Mask P::*>(&OtsuParams::mask), {},
           "where the thresholds are looked for; they apply to every voxel")
      .add("per", static_cast<StatisticsRequest::Over P::*>(&OtsuParams::per), {}, kPerHelp);
}

}  // namespace

StageDefinition stage_otsu() {
  return define_stage<Otsu>(
      {.op = "otsu",
       .family = "intensity",
       .summary =
           "1 above Otsu's threshold (1979; 256 bins over the finite voxels' range), else, and for NaN, 0; uint8",
       .example = {{"op", "otsu"}}},
      add_common(Parameters<OtsuParams>()));
}

StageDefinition stage_multi_otsu() {
  using P = MultiOtsu::Params;
  return define_stage<MultiOtsu>(
      {.op = "multi_otsu",
       .family = "intensity",
       .summary =
           "the number of Otsu's thresholds below the voxel, 0 to classes - 1, NaN 0: classes of greatest variance "
           "between them, exactly, over 256 bins; uint8",
       .example = {{"op", "multi_otsu"}, {"classes", 3}}},
      add_common(Parameters<P>().add("classes", static_cast<std::int64_t P::*>(&OtsuParams::classes),
                                     {.min = 2, .max = 8}, "how many classes there are")));
}

}  // namespace volpipe
