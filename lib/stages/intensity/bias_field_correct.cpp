#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "stages/geometry/grid_maps.h"
#include "stages/intensity/intensity.h"
#include "stages/n4/n4.h"
#include "stages/volume_stage.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class BiasFieldCorrect final : public VolumeStage {
 public:
  struct Params {
    Mask mask{Mask::Kind::foreground};
    PerAxis<std::int64_t> shrink{{4, 4, 4}};
    std::vector<std::int64_t> iterations{50, 50, 50, 50};
    double convergence = 0.001;
    std::optional<PerAxis<std::int64_t>> control_points;
    std::optional<PerAxis<double>> spacing;
    std::int64_t order = 3, bins = 200;
    double fwhm = 0.15, wiener = 0.01;
  };
  explicit BiasFieldCorrect(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.control_points && params.spacing)
      faults.add(pointer + "/spacing", "'control_points' and 'spacing' say the same: give one of them");
    if (params.control_points &&
        *std::min_element(params.control_points->value.begin(), params.control_points->value.end()) <= params.order)
      faults.add(pointer + "/control_points", "a spline needs more control points than its 'order'");
    if (params.iterations.size() > 8) faults.add(pointer + "/iterations", "there may be at most 8 levels");
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    if (input.kind == ImageKind::label)
      throw Error(ErrorCode::usage, "a label image has no bias field: leave it out of \"on\"");
    settings_for(input.geometry);
    return VolumeStage::output(input);
  }
  std::size_t scratch_bytes(const VolumeInfo& input) const override {
    constexpr std::size_t kOfItk = 64;  // bytes a sample that its filter takes, measured
    const auto axes = sampled(input.geometry);
    const auto samples = std::size_t(axes[0].count * axes[1].count * axes[2].count);
    return samples * (kOfItk + 2 * sizeof(double) * std::size_t(input.components)) +
           statistics_scratch_bytes(input.geometry.voxel_count(), Precision::double_, false);
  }
  std::vector<std::string> reads() const override {
    if (params_.mask.kind == Mask::Kind::image) return {params_.mask.image};
    return {};
  }
  bool on_host() const override { return true; }

  Volume run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const override {
    Volume result(output, context.device.allocate(output.bytes()));
    const Volume samples = download(input, context.device);
    std::optional<Volume> mask;
    if (params_.mask.kind == Mask::Kind::image) mask = download(context.image(params_.mask.image), context.device);
    for (std::int64_t c = 0; c < output.components; ++c) {
      const Selection selection = selection_for(input, c, context);
      const N4Image image = image_from(samples, mask ? *mask : samples, c, selection, context.notices);
      apply(input, c, program_for(image, input.geometry(), context), context, result);
    }
    return result;
  }

 private:
  std::array<SampledAxis, 3> sampled(const Geometry& geometry) const {
    std::array<SampledAxis, 3> axes;
    for (std::size_t axis = 0; axis < 3; ++axis)
      axes[axis] = SampledAxis::shrunk(geometry.size()[axis], params_.shrink.value[axis]);
    return axes;
  }

  N4Settings settings_for(const Geometry& geometry) const {
    constexpr double kMostPoints = 1 << 22;
    N4Settings settings{.iterations = params_.iterations,
                        .convergence = params_.convergence,
                        .order = int(params_.order),
                        .bins = int(params_.bins),
                        .fwhm = params_.fwhm,
                        .wiener = params_.wiener};
    double points = 1;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      double spans = 1;
      if (params_.control_points) spans = double(params_.control_points->value[axis] - params_.order);
      if (params_.spacing) {
        const double length = geometry.spacing()[axis] * double(geometry.size()[axis] - 1);
        spans = std::max(1.0, std::ceil(length / params_.spacing->value[axis] - 1e-6));
      }
      points *= std::ldexp(spans, int(params_.iterations.size()) - 1) + double(params_.order);
      settings.control_points[axis] = std::int64_t(std::min(spans, kMostPoints)) + params_.order;
    }
    if (points > kMostPoints)
      throw Error(ErrorCode::usage,
                  "the last level of the bias field would have more than 4194304 control points: "
                  "space them wider, or give fewer levels of 'iterations'");
    return settings;
  }

  /// Every few voxels of an image, on the host.
  Volume download(const Volume& volume, DeviceContext& device) const {
    std::array<AxisSamples, 3> samples;
    const auto axes = sampled(volume.geometry());
    for (std::size_t axis = 0; axis < 3; ++axis)
      samples[axis] = regular_samples(axes[axis].count, double(axes[axis].step), double(axes[axis].first));
    const GridMap map = sampling_map(volume.info(), {0, 1, 2}, samples, {.interpolation = Interpolation::nearest});
    return device.to_host(apply_map(device, volume, map, 0));
  }

  Selection selection_for(const Volume& input, std::int64_t component, VolumeContext& context) const {
    const std::array inputs{ProgramInput{input.component(component), input.dtype()}};
    return selection_of(context.device, params_.mask, {.inputs = inputs, .count = input.geometry().voxel_count()},
                        input.info(), component, context.image);
  }

  static std::vector<double> doubles(const Volume& volume, std::int64_t component) {
    std::vector<double> values(std::size_t(volume.geometry().voxel_count()));
    visit(volume.dtype(), [&]<class Tag>(Tag) {
      const auto* voxels = static_cast<const typename Tag::type*>(volume.component(component));
      std::copy_n(voxels, values.size(), values.begin());
    });
    return values;
  }

  /// The mask keeps what `selection` selects by the voxels of `deciders`, as far as it has a logarithm.
  static N4Image image_from(const Volume& samples, const Volume& deciders, std::int64_t component,
                            const Selection& selection, Notices& notices) {
    const std::vector<double> values = doubles(samples, component);
    const std::vector<double> decider = doubles(deciders, deciders.info().components == 1 ? 0 : component);
    N4Image image{samples.geometry().size(), {}, {}};
    std::int64_t selected = 0, not_positive = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = float(values[i]);
      const bool above = selection.kind == Selection::Kind::above;
      const bool wanted = std::isfinite(value) && (above ? decider[i] > selection.threshold : decider[i] != 0);
      selected += wanted;
      not_positive += wanted && value <= 0;
      image.values.push_back(std::isfinite(value) ? value : 0);
      image.mask.push_back(wanted && value > 0);
    }
    if (not_positive > 0)
      notices.add("not_positive", "bias_field_correct: " + std::to_string(not_positive) + " of " +
                                      std::to_string(selected) +
                                      " voxels looked at are not above 0 and have no logarithm; the field was "
                                      "estimated without them");
    return image;
  }

  /// Voxel -> voxel without its field; empty where there is none to be found.
  Program program_for(const N4Image& image, const Geometry& geometry, VolumeContext& context) const {
    Program program;
    if (!varies(image)) {
      context.notices.add("no_voxels",
                          "bias_field_correct: the mask selects no two voxels above 0 that differ; the "
                          "image was left as it is");
      return program;
    }
    const SplineLattice lattice = fit_bias_field(image, settings_for(geometry), *context.device.host().threads);
    program.store(Operand::r0).field(field_over(lattice, sampled(geometry)));
    program.add(Op::exp).add(Op::divide_by, Operand::r0);
    return program;
  }

  static bool varies(const N4Image& image) {
    std::optional<float> first;
    for (std::size_t i = 0; i < image.values.size(); ++i) {
      if (!image.mask[i]) continue;
      if (first && *first != image.values[i]) return true;
      first = image.values[i];
    }
    return false;
  }

  static void apply(const Volume& input, std::int64_t component, const Program& program, VolumeContext& context,
                    Volume& result) {
    const std::array inputs{ProgramInput{input.component(component), input.dtype()}};
    run_program(context.device, program, inputs, result.component(component), result.dtype(),
                result.geometry().voxel_count(),
                result.dtype() == DataType::float64 ? Precision::double_ : Precision::single,
                {.size = result.geometry().size()});
  }

  Params params_;
};

}  // namespace

StageDefinition stage_bias_field_correct() {
  using P = BiasFieldCorrect::Params;
  return define_stage<BiasFieldCorrect>(
      {.op = "bias_field_correct",
       .family = "intensity",
       .summary =
           "divide by the bias field that N4 finds (Tustison 2010, ITK's filter, on the host), each component by "
           "itself",
       .example = {{"op", "bias_field_correct"}, {"iterations", {20, 20}}}},
      Parameters<P>()
          .add("mask", &P::mask, {},
               "where the field is estimated, as far as voxels are above 0; it is applied to every voxel")
          .add("shrink", &P::shrink, {.min = 1, .max = 64, .unit = "voxel"},
               "the field is estimated from every so many voxels along each axis; fewer where an axis would keep less "
               "than 8")
          .add("iterations", &P::iterations, {.min = 1, .max = 10000},
               "most iterations of each level; from level to level the control points lie twice as close")
          .add("convergence", &P::convergence, {.min = 0},
               "a level ends when the field changes by less: the coefficient of variation of new over old")
          .add("control_points", &P::control_points, {.min = 2, .max = 1000},
               "how many at the first level along each axis; default order + 1, a single span")
          .add("spacing", &P::spacing, {.min = 0, .exclusive_min = true, .unit = "mm"},
               "instead of 'control_points': their greatest distance at the first level along each axis")
          .add("order", &P::order, {.min = 1, .max = 3}, "of the splines")
          .add("bins", &P::bins, {.min = 16, .max = 65536}, "of the histogram of logarithms")
          .add("fwhm", &P::fwhm, {.min = 0, .exclusive_min = true},
               "full width at half maximum of the Gaussian by which the field widens that histogram")
          .add("wiener", &P::wiener, {.min = 0, .exclusive_min = true}, "noise of the Wiener filter that sharpens it"));
}

}  // namespace volpipe
