#include <cmath>

#include "stages/geometry/spatial_maps.h"

namespace volpipe {

namespace {

enum class Grid : std::uint8_t { extent, center };

/// Ratios of spacings that a header's rounding to float32 keeps from being simple ones are: 1.1 mm to 2.2 mm is 2, and
/// whether a place half-way between two voxels (ties of nearest and label_linear) is one does not depend on the file.
/// Nor is an axis worth resampling for as much as 1e-6.
double without_header_rounding(double factor) {
  constexpr double kHeaderRounding = 2e-7;
  constexpr int kLargestDivisor = 16;
  if (std::abs(factor - 1) <= 1e-6) return 1;
  for (int divisor = 1; divisor <= kLargestDivisor; ++divisor) {
    const double multiple = factor * divisor, whole = std::round(multiple);
    if (std::abs(multiple - whole) <= kHeaderRounding * whole) return whole / divisor;
  }
  return factor;
}

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
      scale[axis] = without_header_rounding(params_.spacing.value[axis].value_or(spacing[axis]) / spacing[axis]);
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
