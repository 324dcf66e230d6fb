#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

enum class Method { zscore, minmax, median_iqr, mean };

}  // namespace

template <>
struct EnumNames<Method> {
  static constexpr std::array names{"zscore", "minmax", "median_iqr", "mean"};
};

namespace {

class Normalize final : public PointwiseStage {
 public:
  struct Params {
    Method method = Method::zscore;
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
    double ddof = 0;
  };
  explicit Normalize(Params params) : params_(std::move(params)) {}

  std::vector<StatisticsRequest> requests() const override {
    StatisticsRequest request{.mask = params_.mask, .over = params_.per};
    if (params_.method == Method::median_iqr) request.percentiles = {25, 50, 75};
    else if (params_.method == Method::minmax) request.range = true;
    else request.moments = true;
    return {request};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const StatisticsResult& statistics = context.answers[0];
    Notices& notices = context.notices;
    const bool nothing =
        params_.method == Method::median_iqr ? std::isnan(statistics.percentiles[1]) : statistics.moments.count == 0;
    if (nothing && params_.mask.kind == Mask::Kind::foreground) return append_no_foreground(program, notices);
    if (nothing) return notice_no_voxels(notices, "normalize");
    const Scale scale = measure(statistics);
    append_for_data(program, params_.mask, [&] {
      if (scale.spread > 0) return append_linear(program, scale.centre, 1 / scale.spread, 0);
      append_constant(program, 0);
      notice_constant(notices, "normalize", scale.name, 0);
    });
  }

 private:
  /// Otsu leaves no foreground only where all finite voxels are equal, or there are none (which stay).
  static void append_no_foreground(Program& program, Notices& notices) {
    append_constant(program, 0);
    notices.add("constant_image", "normalize: a constant image has no foreground; every finite voxel became 0");
  }

  struct Scale {
    double centre, spread;
    const char* name;  ///< of the spread
  };

  Scale measure(const StatisticsResult& statistics) const {
    const Moments& moments = statistics.moments;
    switch (params_.method) {
      case Method::zscore:
        return {moments.mean, moments.std(params_.ddof), "standard deviation"};
      case Method::minmax:
        return {moments.min, moments.max - moments.min, "range"};
      case Method::mean:
        return {moments.mean, moments.max - moments.min, "range"};
      case Method::median_iqr:
        break;
    }
    return {statistics.percentiles[1], statistics.percentiles[2] - statistics.percentiles[0], "interquartile range"};
  }

  Params params_;
};

}  // namespace

StageDefinition stage_normalize() {
  using P = Normalize::Params;
  return define_stage<Normalize>(
      {.op = "normalize",
       .family = "intensity",
       .summary = "(v - centre) / spread, both from the finite voxels of the image or of a mask; without spread 0, "
                  "with a warning",
       .example = {{"op", "normalize"}, {"method", "zscore"}, {"mask", "nonzero"}}},
      Parameters<P>()
          .add("method", &P::method, {},
               "zscore: mean and standard deviation; minmax: minimum and range; median_iqr: median and interquartile "
               "range; mean: mean and range")
          .add("mask", &P::mask, {}, kMaskHelp)
          .add("per", &P::per, {}, kPerHelp)
          .add("ddof", &P::ddof, {.min = 0}, "zscore: the variance divides by n - ddof (0: population, 1: sample)"));
}

}  // namespace volpipe
