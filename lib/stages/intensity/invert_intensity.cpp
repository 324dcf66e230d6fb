#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

class InvertIntensity final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> max;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit InvertIntensity(Params params) : params_(params) {}

  std::vector<StatisticsRequest> requests() const override {
    if (params_.max) return {};
    return {{.range = true, .over = params_.per}};
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    return keeps(input.dtype) ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (params_.max) return append_linear(program, *params_.max, -1, 0);
    const Moments& moments = context.answers[0].moments;
    if (moments.count == 0) return notice_no_voxels(context.notices, "invert_intensity");
    append_linear(program, moments.min + moments.max, -1, 0);
  }

 private:
  /// max + min - v stays in the image's range; a given max must turn the type's range around.
  bool keeps(DataType type) const {
    const IntegerRange range = integer_range(type);
    if (is_floating(type)) return false;
    return params_.max ? *params_.max == range.lowest + range.highest : params_.per != StatisticsRequest::Over::item;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_invert_intensity() {
  using P = InvertIntensity::Params;
  return define_stage<InvertIntensity>(
      {.op = "invert_intensity",
       .family = "intensity",
       .summary =
           "max + min - v over the finite voxels' range, which stays; integer images keep their type; NaN stays, "
           "infinity changes its sign",
       .example = {{"op", "invert_intensity"}}},
      Parameters<P>()
          .add("max", &P::max, {},
               "max - v instead, whatever the image's range: float32, but integers keep their type where their whole "
               "range is turned around, as 255 does for uint8")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
