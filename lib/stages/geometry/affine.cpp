#include "stages/geometry/moved_grid.h"
#include "stages/geometry/transform_file.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class AffineStage final : public GatherStage {
 public:
  struct Params : MovingParams, GridParams {
    std::optional<AffineMatrix> matrix{};
    std::optional<FileName> file{};
    std::optional<Vec3> translate{};
    std::optional<Vec3> rotate{};
    std::optional<PerAxis<double>> scale{};
    std::optional<Vec3> shear{};
    Center center{};
    Units units = Units::mm;
    bool invert = false;
  };

  explicit AffineStage(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const bool parts = params.translate || params.rotate || params.scale || params.shear;
    if (int(params.matrix.has_value()) + int(params.file.has_value()) + int(parts) != 1)
      faults.add(pointer, "give one of 'matrix', 'file' and any of 'translate', 'rotate', 'scale', 'shear'");
    if (params.matrix && is_singular(params.matrix->affine.linear))
      faults.add(pointer + "/matrix", "'matrix' is singular: it would flatten the image, and cannot be undone");
    if (params.scale)
      for (const double factor : params.scale->value)
        if (factor == 0) faults.add(pointer + "/scale", "'scale' must not be 0: it would flatten the image");
    check_grid(params, pointer, faults);
  }

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    PointMap pull = params_.file ? read_file(context) : PointMap(push(context).inverse());
    if (params_.invert) pull = pull.inverse();
    return sample_moved(input, std::move(pull), params_, params_, context);
  }

 private:
  PointMap read_file(const StageContext& context) const {
    const std::string path = context.files.resolved(params_.file->path);
    std::optional<Geometry> reference;
    if (params_.reference) reference = reference_geometry(params_.reference->name, context);
    return with_path(path, [&] {
      return read_transform(context.files.bytes(params_.file->path), path,
                            {&context.frame_as_read, reference ? &*reference : nullptr});
    });
  }

  /// Scaled first, then sheared, turned about x, y and z in turn, and translated.
  Affine push(const StageContext& context) const {
    if (params_.matrix) return params_.matrix->affine;
    Matrix3 linear = Matrix3::identity();
    if (params_.scale)
      for (std::size_t axis = 0; axis < 3; ++axis) linear[int(axis)][axis] = params_.scale->value[axis];
    if (params_.shear) {
      Matrix3 shear = Matrix3::identity();
      shear[0][1] = (*params_.shear)[0];
      shear[0][2] = (*params_.shear)[1];
      shear[1][2] = (*params_.shear)[2];
      linear = shear * linear;
    }
    if (params_.rotate)
      for (int axis = 0; axis < 3; ++axis) linear = rotation_about(axis, (*params_.rotate)[std::size_t(axis)]) * linear;
    Vec3 translation = params_.translate.value_or(Vec3{});
    if (params_.units == Units::voxel) translation = context.frame.geometry.index_to_world().linear * translation;
    return about_center(linear, params_.center.of(context), translation);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_affine() {
  using Params = AffineStage::Params;
  Parameters<Params> parameters;
  parameters
      .add("matrix", &Params::matrix, {},
           "4x4 in RAS world millimetres; moves the image: a point of the input goes to matrix * point")
      .add("file", &Params::file, {},
           "transform file: ITK .tfm, .txt or .mat (as antsApplyTransforms and ResampleImageFilter use it), FSL FLIRT "
           ".mat (with 'reference'), or a plain 4x4 as 'matrix'")
      .add("translate", &Params::translate, {.unit = "mm"},
           "shift along the world's x, y, z; with \"units\": \"voxel\" along the image's axes")
      .add("rotate", &Params::rotate, {.unit = "degree"},
           "angles about the world's x, then y, then z axis, right-hand rule")
      .add("scale", &Params::scale, {.of_world = true},
           "factors along the world's axes: 2 makes the image twice as large")
      .add("shear", &Params::shear, {}, "xy, xz, yz: x gains xy * y + xz * z, y gains yz * z")
      .add("center", &Params::center, {.unit = "mm"},
           "fixed point of scale, shear and rotate: the middle of the first image, or a point in RAS mm")
      .add("units", &Params::units, {}, "of 'translate'")
      .add("invert", &Params::invert, {}, "use the inverse");
  add_grid_parameters(parameters);
  add_sampling_parameters(parameters);
  return define_stage<AffineStage>({.op = "affine",
                                    .family = "geometry",
                                    .summary = "move the image by an affine transform of the world",
                                    .targets = StageTargets::all,
                                    .example = {{"op", "affine"}, {"rotate", {0, 0, 20}}, {"translate", {1, 0, -2}}}},
                                   std::move(parameters));
}

}  // namespace volpipe
