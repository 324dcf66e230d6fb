#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class HistogramEqualize final : public PointwiseStage {
 public:
  struct Params {
    std::int64_t bins = 256;
    std::array<double, 2> to{0, 1};
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit HistogramEqualize(Params params) : params_(std::move(params)) {}

  std::vector<StatisticsRequest> requests() const override {
    return {{.bins = int(params_.bins), .mask = params_.mask, .over = params_.per}};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const StatisticsResult& statistics = context.answers[0];
    if (statistics.moments.count == 0) return notice_no_voxels(context.notices, "histogram_equalize");
    const Curve curve = distribution(statistics);
    if (curve.x.size() > 1) return (void)program.curve(curve);
    append_constant(program, params_.to[0]);
    notice_constant(context.notices, "histogram_equalize", "range", params_.to[0]);
  }

 private:
  /// At the middle of each bin the share of the voxels up to that bin.
  Curve distribution(const StatisticsResult& statistics) const {
    const Moments& moments = statistics.moments;
    const double width = (moments.max - moments.min) / double(params_.bins);
    std::vector<double> x, y;
    std::int64_t below = 0;
    for (std::size_t bin = 0; bin < statistics.histogram.size(); ++bin) {
      below += statistics.histogram[bin];
      x.push_back(moments.min + (double(bin) + 0.5) * width);
      y.push_back(params_.to[0] + (params_.to[1] - params_.to[0]) * double(below) / double(moments.count));
    }
    return curve_through(x, y, false);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_histogram_equalize() {
  using P = HistogramEqualize::Params;
  return define_stage<HistogramEqualize>(
      {.op = "histogram_equalize",
       .family = "intensity",
       .summary = "the share of the finite voxels up to each value's bin, straight between the bins' middles and level "
                  "beyond (scikit-image's equalize_hist); a constant image becomes to[0], with a warning; NaN stays",
       .example = {{"op", "histogram_equalize"}, {"bins", 256}}},
      Parameters<P>()
          .add("bins", &P::bins, {.min = 2, .max = 65536}, "equal bins over the finite voxels' range")
          .add("to", &P::to, {},
               "what shares 0 and 1 become; may descend. The lowest bin has a share of its own; MONAI's "
               "HistogramNormalize "
               "stretches it to to[0], as rescale does when it follows")
          .add("mask", &P::mask, {}, "where the histogram is taken; it applies to every voxel")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
