#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class PadDivisible final : public SeparableStage {
 public:
  struct Params {
    PerAxis<std::int64_t> k{};
    Boundary boundary = Boundary::constant;
    Fill fill{};
    Alignment align = Alignment::center;
  };

  explicit PadDivisible(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size = input.geometry.size();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t k = params_.k.value[axis];
      size[axis] = (size[axis] + k - 1) / k * k;
    }
    return fit_map(input, size, params_.align, params_.boundary, params_.fill);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_pad_divisible() {
  return define_stage<PadDivisible>(
      {.op = "pad_divisible",
       .family = "geometry",
       .summary = "pad each axis to a multiple of k voxels",
       .targets = StageTargets::all,
       .example = {{"op", "pad_divisible"}, {"k", 16}}},
      Parameters<PadDivisible::Params>()
          .add("k", &PadDivisible::Params::k, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
               "sizes become multiples of k")
          .add("boundary", &PadDivisible::Params::boundary, {}, "what the new voxels hold")
          .add("fill", &PadDivisible::Params::fill, {}, "value of the new voxels for the constant boundaries")
          .add("align", &PadDivisible::Params::align, {},
               "where the image lies in the result: its middle voxel (number size / 2) in the middle, at the start or "
               "at the end"));
}

}  // namespace volpipe
