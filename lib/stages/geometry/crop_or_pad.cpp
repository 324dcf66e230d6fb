#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class CropOrPad final : public SeparableStage {
 public:
  struct Params {
    PerAxis<std::optional<std::int64_t>> size{};
    Boundary boundary = Boundary::constant;
    Fill fill{};
    Alignment align = Alignment::center;
  };

  explicit CropOrPad(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size;
    for (std::size_t axis = 0; axis < 3; ++axis)
      size[axis] = params_.size.value[axis].value_or(input.geometry.size()[axis]);
    return fit_map(input, size, params_.align, params_.boundary, params_.fill);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_crop_or_pad() {
  return define_stage<CropOrPad>(
      {.op = "crop_or_pad",
       .family = "geometry",
       .summary = "crop or pad each axis to a size",
       .targets = StageTargets::all,
       .example = {{"op", "crop_or_pad"}, {"size", {16, 24, nullptr}}}},
      Parameters<CropOrPad::Params>()
          .add("size", &CropOrPad::Params::size, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
               "voxels along each axis; null keeps an axis")
          .add("boundary", &CropOrPad::Params::boundary, {}, "what new voxels hold")
          .add("fill", &CropOrPad::Params::fill, {}, "value of new voxels for the constant boundaries")
          .add("align", &CropOrPad::Params::align, {},
               "which part of the image stays: its middle voxel (number size / 2), its start or its end"));
}

}  // namespace volpipe
