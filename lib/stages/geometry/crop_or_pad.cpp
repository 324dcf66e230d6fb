#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class CropOrPad final : public SeparableStage {
 public:
  struct Params : FitParams {
    PerAxis<std::optional<std::int64_t>> size{};
  };

  explicit CropOrPad(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size;
    for (std::size_t axis = 0; axis < 3; ++axis)
      size[axis] = params_.size.value[axis].value_or(input.geometry.size()[axis]);
    return fit_map(input, size, params_);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_crop_or_pad() {
  using Params = CropOrPad::Params;
  Parameters<Params> parameters;
  parameters.add("size", &Params::size, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
                 "voxels along each axis; null keeps an axis");
  add_fit_parameters(parameters);
  return define_stage<CropOrPad>({.op = "crop_or_pad",
                                  .family = "geometry",
                                  .summary = "crop or pad each axis to a size",
                                  .targets = StageTargets::all,
                                  .example = {{"op", "crop_or_pad"}, {"size", {16, 24, nullptr}}}},
                                 std::move(parameters));
}

}  // namespace volpipe
