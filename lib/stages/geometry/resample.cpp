#include <cmath>

#include "stages/geometry/spatial_maps.h"

namespace volpipe {

namespace {

enum class Grid : std::uint8_t { extent, center };

}  // namespace

template <>
struct EnumNames<Grid> {
  static constexpr std::array names{"extent", "center"};
};

namespace {

class Resample final : public GatherStage {
 public:
  struct Params : SamplingParams {
    PerAxis<std::optional<double>> spacing{};
    Grid grid = Grid::extent;
  };

  explicit Resample(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Vec3 spacing = input.geometry.spacing();
    const Index3& n = input.geometry.size();
    Vec3 scale, size;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double factor = params_.spacing.value[axis].value_or(spacing[axis]) / spacing[axis];
      scale[axis] =
          std::abs(factor - 1) <= 1e-6 ? 1.0 : factor;  // a rounded header does not make an axis worth resampling
      size[axis] = params_.grid == Grid::extent ? round_half_up(double(n[axis]) / scale[axis])
                                                : std::floor(double(n[axis] - 1) / scale[axis] + 0.5 + 1e-3) + 1;
    }
    check_grid_size(input, size);
    std::array<AxisSamples, 3> axes;
    for (std::size_t axis = 0; axis < 3; ++axis)
      axes[axis] = regular_samples(std::int64_t(size[axis]), scale[axis],
                                   params_.grid == Grid::extent ? (scale[axis] - 1) / 2 : 0.0);
    return sample_axes(input, axes, params_, context);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_resample() {
  using Params = Resample::Params;
  Parameters<Params> parameters;
  parameters.add("spacing", &Params::spacing, {.min = 0, .exclusive_min = true, .unit = "mm", .required = true},
                 "distance between voxel centres; null keeps an axis");
  add_sampling_parameters(parameters);
  parameters.add("grid", &Params::grid, {},
                 "extent: the field of view is kept; center: the first voxel's centre is kept");
  return define_stage<Resample>({.op = "resample",
                                 .family = "geometry",
                                 .summary = "sample on a grid of another spacing",
                                 .targets = StageTargets::all,
                                 .example = {{"op", "resample"}, {"spacing", {1.5, nullptr, 2}}}},
                                std::move(parameters));
}

}  // namespace volpipe
