#include "stages/geometry/field_source.h"
#include "stages/geometry/moved_grid.h"
#include "stages/geometry/transform_file.h"

namespace volpipe {

namespace {

enum class Convention : std::uint8_t { itk, ras, fsl };

}  // namespace

template <>
struct EnumNames<Convention> {
  static constexpr std::array names{"itk", "ras", "fsl"};
};

namespace {

class Warp final : public GatherStage {
 public:
  struct Params : MovingParams {
    std::optional<ImageOrFile> field{};
    std::optional<ImageOrFile> svf{};
    Convention convention = Convention::itk;
    double scale = 1;
    bool invert = false;
    std::optional<ImageOrFile> reference{};
  };

  explicit Warp(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.field.has_value() == params.svf.has_value()) faults.add(pointer, "give 'field' or 'svf'");
    if (params.svf && params.convention == Convention::fsl)
      faults.add(pointer + "/convention", "a velocity field is in \"itk\" or \"ras\" millimetres");
  }

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const std::string& name = params_.field ? params_.field->name : params_.svf->name;
    const FieldSource source = field_source(name, context);
    const Geometry target = params_.reference ? reference_geometry(params_.reference->name, context) : input.geometry;
    PointMap pull = displaced(source, context);
    if (params_.invert && !params_.svf) pull = pull.inverse();
    else check_covers(source, target, name);
    return sample_grid(input, target, std::move(pull), params_, context, params_.reference ? kHeaderSnap : 1e-9);
  }

 private:
  PointMap displaced(const FieldSource& source, const StageContext& context) const {
    FieldStep step;
    step.field = source.field;
    step.to_grid = source.geometry.world_to_index();
    // The inverse of exp(v) is exp(-v).
    const double scale = params_.svf && params_.invert ? -params_.scale : params_.scale;
    const double flip = params_.convention == Convention::itk ? -1 : 1;
    step.linear = {{{{scale * flip, 0, 0}, {0, scale * flip, 0}, {0, 0, scale}}}};
    step.field.exponential = params_.svf.has_value();
    if (params_.convention != Convention::fsl) return PointMap(std::move(step));
    // FNIRT: from scaled voxels of the field's grid to those of the image as it was read.
    const Affine from = fsl_to_world(source.geometry), to = fsl_to_world(context.frame_as_read);
    step.to_grid = step.to_grid * from;
    return PointMap(to).after(PointMap(std::move(step))).after(PointMap(from.inverse()));
  }

  Params params_;
};

}  // namespace

StageDefinition stage_warp() {
  using Params = Warp::Params;
  Parameters<Params> parameters;
  parameters
      .add(
          "field", &Params::field, {},
          "displacement field, an image of the item or a file: a point p of the result shows the input at p + field(p)")
      .add("svf", &Params::svf, {},
           "stationary velocity field instead; its exponential, by scaling and squaring, is the displacement")
      .add("convention", &Params::convention, {},
           "itk: mm in LPS (ITK, ANTs); ras: mm in RAS; fsl: FNIRT's relative warps")
      .add("scale", &Params::scale, {}, "factor on the field")
      .add("invert", &Params::invert, {}, "use the inverse (of a displacement field by fixed-point iteration)")
      .add("reference", &Params::reference, {},
           "image or file whose grid the result has: the one that the field was made for (default: the input's)");
  add_sampling_parameters(parameters);
  return define_stage<Warp>({.op = "warp",
                             .family = "geometry",
                             .summary = "deform by a displacement field",
                             .targets = StageTargets::all,
                             .example = {{"op", "warp"}, {"field", "field"}, {"on", "image"}},
                             .needs = {.images = {"field"}, .components = 3}},
                            std::move(parameters));
}

}  // namespace volpipe
