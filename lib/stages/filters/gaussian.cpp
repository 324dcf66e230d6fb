#include <cmath>
#include <cstdio>

#include "stages/geometry/grid_maps.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kLongestRadius = 16384;  // voxels

class Gaussian final : public SeparableStage {
 public:
  struct Params {
    PerAxis<double> sigma{};
    Units units = Units::mm;
    PerAxis<std::int64_t> order{};
    double truncate = 4;
    Boundary boundary = Boundary::reflect;
    Fill fill{};
  };

  explicit Gaussian(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (params.order.value[axis] > 0 && params.sigma.value[axis] == 0)
        return faults.add(pointer + "/order", "a derivative needs a 'sigma' above 0 on its axis");
  }

  GridMap map(const VolumeInfo& input) const override {
    if (input.kind == ImageKind::label)
      throw Error(ErrorCode::usage, "gaussian would mix label values: let it act on images with \"on\"");
    // The last pass puts the derivatives into their unit, so that 'fill' is as much as the voxels in every pass.
    std::array<std::vector<double>, 3> kernels;
    std::size_t last = 0;
    double per_unit = 1;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      kernels[axis] = kernel(input.geometry, axis);
      if (kernels[axis].size() > 1) last = axis;
      per_unit *= std::pow(unit(input.geometry, axis), -double(params_.order.value[axis]));
    }
    for (double& weight : kernels[last]) weight *= per_unit;
    std::array<AxisRule, 3> rules;
    for (std::size_t axis = 0; axis < 3; ++axis)
      rules[axis] = {correlate_axis(input.geometry.size()[axis], kernels[axis], params_.boundary)};
    GridMap map = grid_map(input, {0, 1, 2}, std::move(rules), params_.fill);
    map.computes = true;
    map.output.dtype = DataType::float32;
    return map;
  }

 private:
  double unit(const Geometry& geometry, std::size_t axis) const {
    return params_.units == Units::mm ? geometry.spacing()[axis] : 1.0;
  }

  std::vector<double> kernel(const Geometry& geometry, std::size_t axis) const {
    const double sigma = params_.sigma.value[axis] / unit(geometry, axis);
    if (!(params_.truncate * sigma <= kLongestRadius)) {
      char words[160];
      std::snprintf(words, sizeof words,
                    "'sigma' reaches over %.6g voxels, at most %.0f are possible: use a smaller 'sigma' or 'truncate'",
                    params_.truncate * sigma, kLongestRadius);
      throw Error(ErrorCode::usage, words);
    }
    return gaussian_kernel(sigma, int(params_.order.value[axis]), params_.truncate);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_gaussian() {
  using Params = Gaussian::Params;
  return define_stage<Gaussian>(
      {.op = "gaussian",
       .family = "filters",
       .summary = "Gaussian smoothing, or derivatives of a Gaussian",
       .targets = StageTargets::images,
       .example = {{"op", "gaussian"}, {"sigma", 1.0}}},
      Parameters<Params>()
          .add("sigma", &Params::sigma, {.min = 0, .unit = "mm", .required = true},
               "standard deviation; 0 leaves an axis alone")
          .add("units", &Params::units, {}, "unit of sigma and of the derivatives")
          .add("order", &Params::order, {.min = 0, .max = 3}, "derivative along each axis, per 'units'; 0 smooths")
          .add("truncate", &Params::truncate, {.min = 0, .exclusive_min = true},
               "radius of the kernel in standard deviations")
          .add("boundary", &Params::boundary, {}, "what lies outside the image")
          .add("fill", &Params::fill, {},
               "value outside the image for the constant boundaries; in each pass (x, then y, then z) as SciPy's cval, "
               "so also "
               "outside a derivative"));
}

}  // namespace volpipe
