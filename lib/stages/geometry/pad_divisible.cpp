#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class PadDivisible final : public SeparableStage {
 public:
  struct Params : FitParams {
    PerAxis<std::int64_t> k{};
  };

  explicit PadDivisible(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size = input.geometry.size();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t k = params_.k.value[axis];
      size[axis] = (size[axis] + k - 1) / k * k;
    }
    return fit_map(input, size, params_);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_pad_divisible() {
  using Params = PadDivisible::Params;
  Parameters<Params> parameters;
  parameters.add("k", &Params::k, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
                 "sizes become multiples of k");
  add_fit_parameters(parameters);
  return define_stage<PadDivisible>({.op = "pad_divisible",
                                     .family = "geometry",
                                     .summary = "pad each axis to a multiple of k voxels",
                                     .targets = StageTargets::all,
                                     .example = {{"op", "pad_divisible"}, {"k", 16}}},
                                    std::move(parameters));
}

}  // namespace volpipe
