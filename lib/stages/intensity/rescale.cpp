#include <algorithm>
#include <cmath>

#include "stages/intensity/intensity.h"

namespace volpipe {

/// The input range of a rescale: the image's own, given, or between two percentiles.
struct RescaleSource {
  enum class Kind { automatic, range, percentiles } kind = Kind::automatic;
  std::array<double, 2> values{};
};

template <>
struct ParameterType<RescaleSource> {
  using Pair = ParameterType<std::array<double, 2>>;
  static std::string name() { return "\"auto\", [low, high] or {\"percentiles\": [low, high]}"; }
  static Json schema(const Limits& limits) {
    const Json percentiles = {{"type", "object"},
                              {"properties", {{"percentiles", Pair::schema({.min = 0, .max = 100})}}},
                              {"required", {"percentiles"}},
                              {"additionalProperties", false}};
    return {{"anyOf", {{{"const", "auto"}}, Pair::schema(limits), percentiles}}};
  }
  static std::string read(const Json& json, const Limits& limits, RescaleSource& value) {
    using Kind = RescaleSource::Kind;
    const bool percentiles = json.is_object() && json.size() == 1 && json.contains("percentiles");
    if (json == "auto") value.kind = Kind::automatic;
    else if (json.is_array() && Pair::read(json, limits, value.values).empty()) value.kind = Kind::range;
    else if (percentiles && Pair::read(json["percentiles"], {.min = 0, .max = 100}, value.values).empty())
      value.kind = Kind::percentiles;
    else return name() + ", percentiles from 0 to 100";
    return "";
  }
  static Json write(const RescaleSource& value) {
    if (value.kind == RescaleSource::Kind::automatic) return "auto";
    const Json pair = Pair::write(value.values);
    return value.kind == RescaleSource::Kind::range ? pair : Json{{"percentiles", pair}};
  }
};

namespace {

class Rescale final : public PointwiseStage {
 public:
  struct Params {
    std::array<double, 2> to{0, 1};
    RescaleSource from;
    bool clip = false;
    bool relative = false;
  };
  explicit Rescale(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.from.kind != Kind::automatic)
      check_ascending(params.from.values[0], params.from.values[1], pointer + "/from", faults);
    if (params.relative && params.from.kind != Kind::percentiles)
      faults.add(pointer + "/relative", "'relative' needs 'from' to be percentiles");
  }

  std::vector<StatisticsRequest> requests() const override {
    switch (params_.from.kind) {
      case Kind::automatic:
        return {{.range = true}};
      case Kind::percentiles:
        return {{.percentiles = {params_.from.values[0], params_.from.values[1]}}};
      case Kind::range:
        break;
    }
    return {};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const auto [low, high] = source(context.answers);
    const auto [to_low, to_high] = target();
    if (!std::isfinite(low)) return notice_no_voxels(context.notices, "rescale");
    if (low == high) {
      append_constant(program, to_low);
      return notice_constant(context.notices, "rescale", "range", to_low);
    }
    append_linear(program, low, (to_high - to_low) / (high - low), to_low);
    if (params_.clip || params_.from.kind == Kind::automatic)
      program.add(Op::clamp, std::min(to_low, to_high), std::max(to_low, to_high));
  }

 private:
  using Kind = RescaleSource::Kind;

  std::array<double, 2> source(std::span<const StatisticsResult> answers) const {
    switch (params_.from.kind) {
      case Kind::automatic:
        return {answers[0].moments.min, answers[0].moments.max};
      case Kind::percentiles:
        return {answers[0].percentiles[0], answers[0].percentiles[1]};
      case Kind::range:
        break;
    }
    return params_.from.values;
  }

  std::array<double, 2> target() const {
    if (!params_.relative) return params_.to;
    const double span = params_.to[1] - params_.to[0];
    return {params_.to[0] + span * params_.from.values[0] / 100, params_.to[0] + span * params_.from.values[1] / 100};
  }

  Params params_;
};

}  // namespace

StageDefinition stage_rescale() {
  using P = Rescale::Params;
  return define_stage<Rescale>(
      {.op = "rescale",
       .family = "intensity",
       .summary = "maps one range of intensities linearly to another: (v - from[0]) / (from[1] - from[0]) * (to[1] - "
                  "to[0]) + to[0]; "
                  "a constant image becomes to[0], with a warning",
       .example = {{"op", "rescale"}, {"from", {{"percentiles", {1, 99}}}}, {"to", {0, 1}}, {"clip", true}}},
      Parameters<P>()
          .add("to", &P::to, {}, "output range; may descend")
          .add("from", &P::from, {},
               "input range: \"auto\" (minimum and maximum of the finite voxels), given, or percentiles of the finite "
               "voxels")
          .add("clip", &P::clip, {}, "limit the result to the output range (always so for \"auto\")")
          .add("relative", &P::relative, {},
               "percentile p goes to p % of the output range instead of its end: [10, 90] to [0, 200] puts the 10th "
               "percentile at 20 and "
               "the 90th at 180, and clip then limits to [20, 180] (MONAI's ScaleIntensityRangePercentiles)"));
}

}  // namespace volpipe
