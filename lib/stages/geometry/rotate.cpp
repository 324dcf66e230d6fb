#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

/// One angle, or one for each axis.
struct Angles {
  std::vector<double> degrees;
};

}  // namespace

template <>
struct ParameterType<Angles> {
  using List = ParameterType<std::vector<double>>;
  static std::string name() { return "number, or one for each of 'axes'"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<double>::schema(limits), List::schema(limits)}}};
  }
  static std::string read(const Json& json, const Limits& limits, Angles& value) {
    return List::read(json.is_array() ? json : Json::array({json}), limits, value.degrees).empty() ? "" : "a " + name();
  }
  static Json write(const Angles& value) { return List::write(value.degrees); }
};

namespace {

class Rotate final : public GatherStage {
 public:
  struct Params : MovingParams, GridParams {
    Angles angles{};
    AxisList axes{{0, 1, 2}};
    Center center{};
  };

  explicit Rotate(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.angles.degrees.size() != params.axes.axes.size())
      faults.add(pointer + "/angles", "'angles' has " + std::to_string(params.angles.degrees.size()) +
                                          " and 'axes' names " + std::to_string(params.axes.axes.size()) +
                                          ": give one angle for each axis, such as \"angles\": 15, \"axes\": \"z\"");
    check_grid(params, pointer, faults);
  }

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    Matrix3 rotation = Matrix3::identity();
    for (std::size_t i = 0; i < params_.axes.axes.size(); ++i)
      rotation = rotation_about(params_.axes.axes[i], params_.angles.degrees[i]) * rotation;
    const Affine push = about_center(rotation, params_.center.of(context));
    return sample_moved(input, PointMap(push.inverse()), params_, params_, context);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_rotate() {
  using Params = Rotate::Params;
  Parameters<Params> parameters;
  parameters
      .add("angles", &Params::angles, {.unit = "degree", .required = true},
           "one for each of 'axes', right-hand rule; the image turns")
      .add("axes", &Params::axes, {},
           "axes of the world (x to Right, y to Anterior, z to Superior), turned about in order")
      .add("center", &Params::center, {.unit = "mm"},
           "fixed point: the middle of the first image, or a point in RAS mm");
  add_grid_parameters(parameters);
  add_sampling_parameters(parameters);
  return define_stage<Rotate>({.op = "rotate",
                               .family = "geometry",
                               .summary = "turn the image in the world, rigidly whatever its spacing",
                               .targets = StageTargets::all,
                               .example = {{"op", "rotate"}, {"angles", {10, 0, 25}}}},
                              std::move(parameters));
}

}  // namespace volpipe
