#include <algorithm>

#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class Flip final : public SeparableStage {
 public:
  struct Params {
    AxisList axes{};
    bool move_world = false;
  };

  explicit Flip(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    std::array<AxisRule, 3> rules;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t size = input.geometry.size()[std::size_t(axis)];
      const bool flipped = std::count(params_.axes.axes.begin(), params_.axes.axes.end(), axis) > 0;
      rules[std::size_t(axis)] = whole_axis(size, flipped);
    }
    GridMap map = grid_map(input, {0, 1, 2}, std::move(rules));
    if (params_.move_world) move_in_world(map, input);
    return map;
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_flip() {
  return define_stage<Flip>(
      {.op = "flip",
       .family = "geometry",
       .summary = "reverse voxel axes",
       .targets = StageTargets::all,
       .example = {{"op", "flip"}, {"axes", "x"}}},
      Parameters<Flip::Params>()
          .add("axes", &Flip::Params::axes, {.required = true}, "voxel axes to reverse")
          .add("move_world", &Flip::Params::move_world, {},
               "mirror the image in the world (augmentation) instead of keeping every voxel's place"));
}

}  // namespace volpipe
