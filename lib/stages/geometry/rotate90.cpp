#include <utility>

#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class Rotate90 final : public SeparableStage {
 public:
  struct Params {
    AxisList axes{{0, 1}};
    std::int64_t k = 1;
    bool move_world = false;
  };

  explicit Rotate90(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.axes.axes.size() != 2)
      faults.add(pointer + "/axes", "'axes' must name two axes, such as \"xy\" or [0, 1]");
  }

  GridMap map(const VolumeInfo& input) const override {
    const auto first = std::size_t(params_.axes.axes[0]), second = std::size_t(params_.axes.axes[1]);
    const std::int64_t quarters = (params_.k % 4 + 4) % 4;
    std::array<int, 3> source_axis{0, 1, 2};
    std::array<bool, 3> reversed{};
    if (quarters % 2 == 1) std::swap(source_axis[first], source_axis[second]);
    reversed[first] = quarters == 1 || quarters == 2;
    reversed[second] = quarters == 2 || quarters == 3;
    std::array<AxisRule, 3> rules;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t size = input.geometry.size()[std::size_t(source_axis[axis])];
      rules[axis] = whole_axis(size, reversed[axis]);
    }
    GridMap map = grid_map(input, source_axis, std::move(rules));
    if (params_.move_world) move_in_world(map, input);
    return map;
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_rotate90() {
  return define_stage<Rotate90>(
      {.op = "rotate90",
       .family = "geometry",
       .summary = "turn the voxel axes by quarter turns, exactly",
       .targets = StageTargets::all,
       .example = {{"op", "rotate90"}, {"axes", "xy"}, {"k", 1}}},
      Parameters<Rotate90::Params>()
          .add("axes", &Rotate90::Params::axes, {},
               "the two voxel axes of the plane; a quarter turn takes the first towards the second (numpy.rot90)")
          .add("k", &Rotate90::Params::k, {}, "quarter turns; negative ones turn back")
          .add("move_world", &Rotate90::Params::move_world, {},
               "turn the image in the world about its centre (augmentation) instead of keeping every voxel's place"));
}

}  // namespace volpipe
