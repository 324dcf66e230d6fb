#include "stages/intensity/intensity.h"

namespace volpipe {

/// The value that a scaling leaves in place.
struct FixedValue {
  enum class Kind { number, mean, min } kind = Kind::number;
  double number = 0;
};

template <>
struct ParameterType<FixedValue> {
  static std::string name() { return "number, \"mean\" or \"min\""; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<double>::schema(limits), {{"enum", {"mean", "min"}}}}}};
  }
  static std::string read(const Json& json, const Limits& limits, FixedValue& value) {
    if (json == "mean") value.kind = FixedValue::Kind::mean;
    else if (json == "min") value.kind = FixedValue::Kind::min;
    else if (!ParameterType<double>::read(json, limits, value.number).empty()) return name();
    return "";
  }
  static Json write(const FixedValue& value) {
    switch (value.kind) {
      case FixedValue::Kind::mean:
        return "mean";
      case FixedValue::Kind::min:
        return "min";
      case FixedValue::Kind::number:
        break;
    }
    return ParameterType<double>::write(value.number);
  }
};

namespace {

class Scale final : public PointwiseStage {
 public:
  struct Params {
    double factor = 1;
    FixedValue about;
    bool clip = false;
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit Scale(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.mask.kind != Mask::Kind::all && params.about.kind == FixedValue::Kind::number)
      faults.add(pointer + "/mask", "'mask' needs 'about' to be \"mean\" or \"min\", which are taken there");
  }

  std::vector<StatisticsRequest> requests() const override {
    if (params_.about.kind == FixedValue::Kind::number && !params_.clip) return {};
    const bool mean = params_.about.kind == FixedValue::Kind::mean;
    std::vector<StatisticsRequest> requests{
        {.moments = mean, .range = true, .mask = params_.mask, .over = params_.per}};
    if (params_.clip && params_.mask.kind != Mask::Kind::all) requests.push_back({.range = true, .over = params_.per});
    return requests;
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (!context.answers.empty() && context.answers[0].moments.count == 0)
      return notice_no_voxels(context.notices, "scale");
    append_for_data(program, params_.mask, [&] {
      const double fixed = fixed_value(context.answers);
      append_linear(program, fixed, params_.factor, fixed);
      if (!params_.clip) return;
      const Moments& range = context.answers.back().moments;
      program.add(Op::clamp, range.min, range.max);
    });
  }

 private:
  double fixed_value(std::span<const StatisticsResult> answers) const {
    switch (params_.about.kind) {
      case FixedValue::Kind::mean:
        return answers[0].moments.mean;
      case FixedValue::Kind::min:
        return answers[0].moments.min;
      case FixedValue::Kind::number:
        break;
    }
    return params_.about.number;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_scale() {
  using P = Scale::Params;
  return define_stage<Scale>(
      {.op = "scale",
       .family = "intensity",
       .summary = "(v - about) * factor + about, in float32; NaN and infinity stay (infinity is clipped)",
       .example = {{"op", "scale"}, {"factor", 1.1}, {"about", "mean"}, {"clip", true}}},
      Parameters<P>()
          .add("factor", &P::factor, {.required = true},
               "factor; MONAI's ScaleIntensity and ScaleIntensityFixedMean take factor - 1")
          .add("about", &P::about, {},
               "the value that stays: a number, or mean or minimum of the finite voxels (\"mean\": MONAI's "
               "ScaleIntensityFixedMean)")
          .add("clip", &P::clip, {}, "limit the result to the range that the finite voxels had (preserve_range)")
          .add("mask", &P::mask, {}, kMaskHelp)
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
