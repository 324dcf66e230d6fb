#include <algorithm>

#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

class PadTo final : public SeparableStage {
 public:
  struct Params : FitParams {
    PerAxis<std::optional<std::int64_t>> size{};
  };

  explicit PadTo(Params params) : params_(std::move(params)) {}

  GridMap map(const VolumeInfo& input) const override {
    Index3 size = input.geometry.size();
    for (std::size_t axis = 0; axis < 3; ++axis)
      size[axis] = std::max(size[axis], params_.size.value[axis].value_or(1));
    return fit_map(input, size, params_);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_pad_to() {
  using Params = PadTo::Params;
  Parameters<Params> parameters;
  parameters.add("size", &Params::size, {.min = 1, .max = 1e9, .unit = "voxel", .required = true},
                 "least voxels along each axis; null keeps an axis");
  add_fit_parameters(parameters);
  return define_stage<PadTo>({.op = "pad_to",
                              .family = "geometry",
                              .summary = "pad each axis to at least a size",
                              .targets = StageTargets::all,
                              .example = {{"op", "pad_to"}, {"size", 24}}},
                             std::move(parameters));
}

}  // namespace volpipe
