#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class Permute final : public SeparableStage {
 public:
  struct Params {
    AxisList order{};
    bool move_world = false;
  };

  explicit Permute(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.order.axes.size() != 3)
      faults.add(pointer + "/order", "'order' must name all three axes, such as \"zyx\" or [2, 1, 0]");
  }

  GridMap map(const VolumeInfo& input) const override {
    const std::array<int, 3> order{params_.order.axes[0], params_.order.axes[1], params_.order.axes[2]};
    std::array<AxisRule, 3> rules;
    for (std::size_t axis = 0; axis < 3; ++axis)
      rules[axis] = whole_axis(input.geometry.size()[std::size_t(order[axis])]);
    GridMap map = grid_map(input, order, std::move(rules));
    if (params_.move_world) move_in_world(map, input);
    return map;
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_permute() {
  return define_stage<Permute>(
      {.op = "permute",
       .family = "geometry",
       .summary = "change the order of the voxel axes",
       .targets = StageTargets::all,
       .example = {{"op", "permute"}, {"order", "zyx"}}},
      Parameters<Permute::Params>()
          .add("order", &Permute::Params::order, {.required = true}, "new axis i is old axis order[i]")
          .add("move_world", &Permute::Params::move_world, {},
               "swap the axes in the world about the image's centre (augmentation) instead of keeping every voxel's "
               "place"));
}

}  // namespace volpipe
