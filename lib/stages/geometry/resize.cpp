#include <algorithm>
#include <cmath>

#include "stages/geometry/spatial_maps.h"

namespace volpipe {

namespace {

enum class Align : std::uint8_t { edges, centers };

}  // namespace

template <>
struct EnumNames<Align> {
  static constexpr std::array names{"edges", "centers"};
};

namespace {

/// Source coordinates of SciPy's zoom: grid_mode=True for edges, False for centers. Where centers leaves no spacing
/// (one voxel on either side) the geometry keeps the first centre, or the extent of a single source voxel.
AxisSamples zoom_samples(std::int64_t n, std::int64_t m, Align align) {
  const double ratio = double(n) / double(m);
  if (align == Align::edges) return regular_samples(m, ratio, (ratio - 1) / 2);
  if (m > 1 && n > 1) return regular_samples(m, double(n - 1) / double(m - 1), 0);
  AxisSamples samples{std::vector<double>(std::size_t(m), 0.0), 1, 0};
  if (m > 1) {
    samples.scale = ratio;
    samples.offset = (ratio - 1) / 2;
  }
  return samples;
}

class Resize final : public GatherStage {
 public:
  struct Params : SamplingParams {
    std::optional<PerAxis<std::optional<std::int64_t>>> size{};
    std::optional<PerAxis<double>> scale{};
    std::optional<std::int64_t> longest{};
    Align align = Align::edges;
  };

  explicit Resize(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (int(params.size.has_value()) + int(params.scale.has_value()) + int(params.longest.has_value()) != 1)
      faults.add(pointer, "give one of 'size', 'scale' and 'longest'");
  }

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const Index3& n = input.geometry.size();
    const Vec3 size = target_size(n);
    check_grid_size(input, size);
    std::array<AxisSamples, 3> axes;
    for (std::size_t axis = 0; axis < 3; ++axis)
      axes[axis] = zoom_samples(n[axis], std::int64_t(size[axis]), params_.align);
    return sample_axes(input, axes, params_, context);
  }

 private:
  Vec3 target_size(const Index3& n) const {
    const double longest = double(*std::max_element(n.begin(), n.end()));
    Vec3 size;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (params_.size) size[axis] = double(params_.size->value[axis].value_or(n[axis]));
      else
        size[axis] = round_half_up(double(n[axis]) *
                                   (params_.scale ? params_.scale->value[axis] : double(*params_.longest) / longest));
    }
    return size;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_resize() {
  using Params = Resize::Params;
  Parameters<Params> parameters;
  parameters
      .add("size", &Params::size, {.min = 1, .max = 1e9, .unit = "voxel"}, "voxels along each axis; null keeps an axis")
      .add("scale", &Params::scale, {.min = 0, .exclusive_min = true},
           "factor on the number of voxels; sizes round half up")
      .add("longest", &Params::longest, {.min = 1, .max = 1e9, .unit = "voxel"},
           "voxels along the longest axis; the others keep the proportions");
  add_sampling_parameters(parameters);
  parameters.add("align", &Params::align, {},
                 "edges: the field of view is kept (SciPy zoom grid_mode=True); centers: the outer voxel centres are "
                 "kept (False)");
  return define_stage<Resize>({.op = "resize",
                               .family = "geometry",
                               .summary = "sample on a grid of another size",
                               .targets = StageTargets::all,
                               .example = {{"op", "resize"}, {"size", {20, 24, 16}}}},
                              std::move(parameters));
}

}  // namespace volpipe
