#include <algorithm>

#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class PadTo final : public SeparableStage {
 public:
  struct Params {
    PerAxis<std::optional<std::int64_t>> size{};
    Boundary boundary = Boundary::constant;
    Fill fill{};
    Alignment align = Alignment::center;
  };

  explicit PadTo(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size = input.geometry.size();
    for (std::size_t axis = 0; axis < 3; ++axis)
      size[axis] = std::max(size[axis], params_.size.value[axis].value_or(1));
    return fit_map(input, size, params_.align, params_.boundary, params_.fill);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_pad_to() {
  return define_stage<PadTo>(
      {.op = "pad_to",
       .family = "geometry",
       .summary = "pad each axis to at least a size",
       .targets = StageTargets::all,
       .example = {{"op", "pad_to"}, {"size", 24}}},
      Parameters<PadTo::Params>()
          .add("size", &PadTo::Params::size, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
               "least voxels along each axis; null keeps an axis")
          .add("boundary", &PadTo::Params::boundary, {}, "what the new voxels hold")
          .add("fill", &PadTo::Params::fill, {}, "value of the new voxels for the constant boundaries")
          .add("align", &PadTo::Params::align, {},
               "where the image lies in the result: its middle voxel (number size / 2) in the middle, at the start or "
               "at the end"));
}

}  // namespace volpipe
