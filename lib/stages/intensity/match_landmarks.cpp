#include <algorithm>
#include <cmath>

#include "stages/intensity/intensity.h"
#include "stages/intensity/landmarks.h"

namespace volpipe {

/// Intensities that are mapped: given, or as percentiles.
struct LandmarkPlaces {
  std::vector<double> values{};
  bool percentiles = false;
};

template <>
struct ParameterType<LandmarkPlaces> {
  using Numbers = ParameterType<std::vector<double>>;
  static std::string name() { return "a list of numbers or {\"percentiles\": a list}"; }
  static Json schema(const Limits& limits) {
    const Json percentiles = {{"type", "object"},
                              {"properties", {{"percentiles", Numbers::schema({.min = 0, .max = 100})}}},
                              {"required", {"percentiles"}},
                              {"additionalProperties", false}};
    return {{"anyOf", {Numbers::schema(limits), percentiles}}};
  }
  static std::string read(const Json& json, const Limits& limits, LandmarkPlaces& places) {
    places.percentiles = json.is_object() && json.size() == 1 && json.contains("percentiles");
    const std::string expected = places.percentiles
                                     ? Numbers::read(json["percentiles"], {.min = 0, .max = 100}, places.values)
                                     : Numbers::read(json, limits, places.values);
    return expected.empty() ? "" : name();
  }
  static Json write(const LandmarkPlaces& places) {
    const Json values = Numbers::write(places.values);
    return places.percentiles ? Json{{"percentiles", values}} : values;
  }
};

namespace {

class MatchLandmarks final : public PointwiseStage {
 public:
  struct Params {
    LandmarkPlaces from;
    std::vector<double> to;
    bool clip = false;
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit MatchLandmarks(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const std::vector<double>& from = params.from.values;
    if (from.size() < 2) faults.add(pointer + "/from", "'from' needs at least two landmarks");
    else if (std::adjacent_find(from.begin(), from.end(), std::greater_equal<>()) != from.end())
      faults.add(pointer + "/from", "the landmarks of 'from' must ascend");
    if (params.to.size() != from.size())
      faults.add(pointer + "/to", "'to' has " + std::to_string(params.to.size()) +
                                      " values, expected as many as 'from', " + std::to_string(from.size()));
    if (params.mask.kind != Mask::Kind::all && !params.from.percentiles)
      faults.add(pointer + "/mask", "'mask' needs 'from' to be percentiles, for else no statistics are taken");
  }

  std::vector<StatisticsRequest> requests() const override {
    if (!params_.from.percentiles) return {};
    return {{.percentiles = params_.from.values, .mask = params_.mask, .over = params_.per}};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const std::vector<double>& from = params_.from.percentiles ? context.answers[0].percentiles : params_.from.values;
    if (std::isnan(from[0])) return notice_no_voxels(context.notices, "match_landmarks");
    const Curve curve = curve_through(from, params_.to, !params_.clip);
    if (curve.x.size() < 2)
      return notice_unchanged(context.notices, "match_landmarks", "range between the percentiles");
    program.curve(curve);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_match_landmarks() {
  using P = MatchLandmarks::Params;
  const Json percentiles = {{"percentiles", {1, 50, 99}}};
  return define_stage<MatchLandmarks>(
      {.op = "match_landmarks",
       .family = "intensity",
       .summary =
           "maps intensities to others, straight between landmarks; percentiles that fall together go to the mean "
           "of theirs; NaN stays, and where all percentiles are one value, the image",
       .example = {{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 0.5, 1}}}},
      Parameters<P>()
          .add("from", &P::from, {.required = true},
               "ascending intensities, or percentiles of the finite voxels, at least two")
          .add("to", &P::to, {.required = true}, "what each of them becomes; may descend")
          .add("clip", &P::clip, {}, "beyond the first and last landmark stay level, else the end pieces go on")
          .add("mask", &P::mask, {}, "where percentiles are taken; they apply to every voxel")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
