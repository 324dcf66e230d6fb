#include "stages/geometry/grid_maps.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class Reorient final : public SeparableStage {
 public:
  struct Params {
    std::string axes = "RAS";
    bool closest = false;
  };

  explicit Reorient(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    try {
      axis_order_for(Geometry(), params.axes);
    } catch (const Error& error) { faults.add(pointer + "/axes", error.what()); }
    if (params.closest && params.axes != "RAS")
      faults.add(pointer + "/closest", "'closest' means the canonical RAS orientation: leave out 'axes' or 'closest'");
  }

  GridMap map(const VolumeInfo& input) const override {
    const AxisOrder order = axis_order_for(input.geometry, params_.axes);
    std::array<AxisRule, 3> rules;
    for (std::size_t axis = 0; axis < 3; ++axis)
      rules[axis] = whole_axis(input.geometry.size()[std::size_t(order.source_axis[axis])], order.flipped[axis]);
    return grid_map(input, order.source_axis, std::move(rules));
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_reorient() {
  return define_stage<Reorient>(
      {.op = "reorient",
       .family = "geometry",
       .summary = "bring the voxel axes to an orientation such as RAS, exactly",
       .targets = StageTargets::all,
       .example = {{"op", "reorient"}, {"axes", "RAS"}}},
      Parameters<Reorient::Params>()
          .add("axes", &Reorient::Params::axes, {},
               "where the x, y and z axes run to: one letter each of R/L, A/P and S/I")
          .add("closest", &Reorient::Params::closest, {}, "the nearest canonical orientation: RAS"));
}

}  // namespace volpipe
