#include <cmath>

#include "stages/intensity/intensity.h"
#include "stages/intensity/landmarks.h"
#include "stages/stage_context.h"
#include "volume/error.h"

namespace volpipe {

/// Landmarks, or the file that holds them.
struct LandmarkSource {
  FileName file{};
  std::optional<Landmarks> landmarks{};
};

template <>
struct ParameterType<LandmarkSource> {
  static constexpr Reference reference = Reference::file;
  static std::string name() { return "a file's name or {\"percentiles\": [...], \"landmarks\": [...]}"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<FileName>::schema(limits), {{"type", "object"}}}}};
  }
  static std::string read(const Json& json, const Limits& limits, LandmarkSource& source) {
    if (!json.is_object()) return ParameterType<FileName>::read(json, limits, source.file).empty() ? "" : name();
    const std::string fault = read_landmarks(json, source.landmarks.emplace());
    return fault.empty() ? "" : name() + " (" + fault + ")";
  }
  static Json write(const LandmarkSource& source) {
    return source.landmarks ? to_json(*source.landmarks) : ParameterType<FileName>::write(source.file);
  }
};

namespace {

class HistogramStandardize final : public PointwiseStage {
 public:
  struct Params {
    LandmarkSource landmarks;
    std::optional<Mask> mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit HistogramStandardize(Params params) : params_(std::move(params)) {}

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo&,
                                              const StageContext& context) const override {
    if (params_.landmarks.landmarks) return nullptr;
    auto own = std::make_shared<HistogramStandardize>(*this);
    own->params_.landmarks.landmarks = landmarks_of_file(context.files);
    return own;
  }

  std::vector<StatisticsRequest> requests() const override {
    StatisticsRequest request{.mask = params_.mask.value_or(Mask{}), .over = params_.per};
    if (const auto& landmarks = params_.landmarks.landmarks) {
      request.percentiles = landmarks->percentiles;
      request.mask = params_.mask.value_or(landmarks->mask);
    }
    return {request};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const std::vector<double>& found = context.answers[0].percentiles;
    if (std::isnan(found[0])) return notice_no_voxels(context.notices, "histogram_standardize");
    const Curve curve = curve_through(found, params_.landmarks.landmarks->values, true);
    if (curve.x.size() < 2)
      return notice_unchanged(context.notices, "histogram_standardize", "range between the percentiles");
    program.curve(curve);
  }

 private:
  Landmarks landmarks_of_file(StageFiles& files) const {
    const std::string& name = params_.landmarks.file.path;
    return with_path(files.resolved(name), [&] {
      Landmarks landmarks;
      const Json json = Json::parse(files.bytes(name), nullptr, false);
      const std::string fault = json.is_discarded() ? "is not JSON" : read_landmarks(json, landmarks);
      if (!fault.empty()) throw Error(ErrorCode::input, fault + "; 'volpipe train-landmarks' writes such files");
      return landmarks;
    });
  }

  Params params_;
};

}  // namespace

StageDefinition stage_histogram_standardize() {
  using P = HistogramStandardize::Params;
  const Json landmarks = {{"percentiles", {1, 50, 99}}, {"landmarks", {0, 40, 100}}};
  return define_stage<HistogramStandardize>(
      {.op = "histogram_standardize",
       .family = "intensity",
       .summary =
           "percentiles of the finite voxels go to the landmarks of a standard scale, straight in between and on "
           "beyond the ends (Nyul and Udupa 1999, 2000); NaN and infinity stay, a constant image too",
       .example = {{"op", "histogram_standardize"}, {"landmarks", landmarks}}},
      Parameters<P>()
          .add("landmarks", &P::landmarks, {.required = true},
               "file of 'volpipe train-landmarks', or its content: percentiles and the landmarks that they go to")
          .add("mask", &P::mask, {}, "where percentiles are taken; default the one of the landmarks, else all voxels")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
