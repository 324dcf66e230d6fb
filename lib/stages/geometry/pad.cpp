#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class Pad final : public SeparableStage {
 public:
  struct Params : PaddingParams {
    PerAxis<std::int64_t> before{};
    PerAxis<std::int64_t> after{};
  };

  explicit Pad(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 start, size;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      start[axis] = -params_.before.value[axis];
      size[axis] = input.geometry.size()[axis] + params_.before.value[axis] + params_.after.value[axis];
    }
    return window_map(input, start, size, params_);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_pad() {
  using Params = Pad::Params;
  Parameters<Params> parameters;
  parameters.add("before", &Params::before, {.min = 0, .max = 1e9, .unit = "voxel"}, "voxels added before the first")
      .add("after", &Params::after, {.min = 0, .max = 1e9, .unit = "voxel"}, "voxels added after the last");
  add_padding_parameters(parameters);
  return define_stage<Pad>({.op = "pad",
                            .family = "geometry",
                            .summary = "add voxels before and after each axis",
                            .targets = StageTargets::all,
                            .example = {{"op", "pad"}, {"before", 2}, {"after", {1, 2, 3}}, {"boundary", "reflect"}}},
                           std::move(parameters));
}

}  // namespace volpipe
