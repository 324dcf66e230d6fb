#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class AdjustContrast final : public PointwiseStage {
 public:
  struct Params {
    double gamma = 1;
    bool invert_image = false;
    bool retain_stats = false;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit AdjustContrast(Params params) : params_(params) {}

  std::vector<StatisticsRequest> requests() const override {
    std::vector<StatisticsRequest> requests{{.moments = params_.retain_stats, .range = true, .over = params_.per}};
    if (params_.retain_stats)
      requests.push_back(
          {.moments = true, .over = params_.per, .of = [this](Program& program, const PointwiseContext& context) {
             append_curve(program, context.answers[0].moments);
           }});
    return requests;
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const Moments& before = context.answers[0].moments;
    if (before.count == 0) return notice_no_voxels(context.notices, "adjust_contrast");
    if (before.min == before.max) return notice_unchanged(context.notices, "adjust_contrast", "range");
    append_curve(program, before);
    if (!params_.retain_stats) return;
    const Moments& after = context.answers[1].moments;
    if (after.std() > 0) append_linear(program, after.mean, before.std() / after.std(), before.mean);
  }

 private:
  /// Inverted, the curve runs from the greatest value down.
  void append_curve(Program& program, const Moments& moments) const {
    const double from = params_.invert_image ? moments.max : moments.min;
    const double to = params_.invert_image ? moments.min : moments.max;
    if (!(moments.min < moments.max)) return;
    append_to_unit(program, from, to);
    program.add(Op::power, params_.gamma);
    append_from_unit(program, from, to);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_adjust_contrast() {
  using P = AdjustContrast::Params;
  return define_stage<AdjustContrast>(
      {.op = "adjust_contrast",
       .family = "intensity",
       .summary = "gamma with options: ((v - min) / (max - min)) ^ gamma * (max - min) + min over the finite voxels' "
                  "range, perhaps of the inverted image, perhaps with mean and standard deviation as before; infinity "
                  "goes to the ends, NaN stays, a constant image too",
       .example = {{"op", "adjust_contrast"}, {"gamma", 1.5}, {"retain_stats", true}}},
      Parameters<P>()
          .add("gamma", &P::gamma, {.min = 0, .exclusive_min = true, .required = true},
               "below 1 brightens, above 1 darkens; inverted the other way round")
          .add("invert_image", &P::invert_image, {},
               "curve the inverted image and invert back: max - ((max - v) / (max - min)) ^ gamma * (max - min)")
          .add("retain_stats", &P::retain_stats, {},
               "then bring mean and standard deviation of the finite voxels back to what they were; values may leave "
               "the range")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
