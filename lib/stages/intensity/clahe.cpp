#include "stages/clahe/clahe.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "stages/geometry/grid_maps.h"
#include "stages/intensity/intensity.h"
#include "stages/volume_stage.h"
#include "volume/error.h"

namespace volpipe {

namespace {

enum class SliceAxis { x, y, z };

}  // namespace

template <>
struct EnumNames<SliceAxis> {
  static constexpr std::array names{"x", "y", "z"};
};

namespace {

class Clahe final : public VolumeStage {
 public:
  struct Params {
    std::optional<PerAxis<double>> kernel;
    Units units = Units::mm;
    double clip_limit = 0.01;
    std::int64_t bins = 256;
    std::optional<SliceAxis> slices;
    Mask mask;
    std::array<double, 2> to{0, 1};
  };
  explicit Clahe(Params params) : params_(std::move(params)) {}

  VolumeInfo output(const VolumeInfo& input) const override {
    if (input.kind == ImageKind::label)
      throw Error(ErrorCode::usage, "a label image has no contrast to equalize: leave it out of \"on\"");
    return VolumeStage::output(input);
  }
  std::size_t scratch_bytes(const VolumeInfo& input) const override {
    return clahe_scratch_bytes(grid_of(input.geometry), levels_over(0, 1)) +
           statistics_scratch_bytes(input.geometry.voxel_count(), Precision::double_, false);
  }
  std::vector<std::string> reads() const override {
    if (params_.mask.kind == Mask::Kind::image) return {params_.mask.image};
    return {};
  }

  Volume run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const override {
    Volume result(output, context.device.allocate(output.bytes()));
    for (std::int64_t c = 0; c < output.components; ++c) equalize(input, c, context, result);
    return result;
  }

 private:
  ClaheGrid grid_of(const Geometry& geometry) const {
    std::array<ClaheAxis, 3> axes;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t n = geometry.size()[axis];
      const double voxel = params_.units == Units::mm ? geometry.spacing()[axis] : 1;
      std::int64_t tile = std::max<std::int64_t>(1, n / 8);
      if (params_.kernel) tile = std::int64_t(std::min(double(n), round_half_up(params_.kernel->value[axis] / voxel)));
      if (params_.slices == SliceAxis(axis)) tile = 1;
      axes[axis] = {n, tile};
    }
    return {axes[0], axes[1], axes[2]};
  }

  ClaheLevels levels_over(double low, double high) const { return {low, high, int(params_.bins)}; }

  void equalize(const Volume& input, std::int64_t component, VolumeContext& context, Volume& result) const {
    const std::array inputs{ProgramInput{input.component(component), input.dtype()}};
    SampledValues values{.inputs = inputs, .count = input.geometry().voxel_count()};
    values.selection = selection_of(context.device, params_.mask, values, input.info(), component, context.image);
    const Moments moments = compute_range(context.device, values);
    if (moments.count > 0 && moments.min < moments.max) {
      const bool masked = values.selection.kind == Selection::Kind::mask;
      clahe_levels(context.device,
                   {grid_of(input.geometry()),
                    levels_over(moments.min, moments.max),
                    params_.clip_limit,
                    inputs[0],
                    masked ? values.selection.mask : inputs[0],
                    {values.selection.kind, values.selection.threshold}},
                   result.component(component), result.dtype());
      return stretch(inputs[0], component, context, result);
    }
    Program program;
    if (moments.count == 0) notice_no_voxels(context.notices, "clahe");
    else become_constant(program, "range", context.notices);
    run(program, inputs, component, context, result);
  }

  /// Levels become values of `to`, the least and the greatest its ends.
  void stretch(const ProgramInput& original, std::int64_t component, VolumeContext& context, Volume& result) const {
    const std::array inputs{ProgramInput{result.component(component), result.dtype()}, original};
    const Moments levels =
        compute_range(context.device, {.inputs = {inputs.data(), 1}, .count = result.geometry().voxel_count()});
    const auto [low, high] = params_.to;
    Program program;
    if (levels.min < levels.max) {
      program.add(Op::subtract, levels.min).add(Op::divide, levels.max - levels.min);
      if (low != 0 || high != 1) program.add(Op::fma, high - low, low);
      program.add(Op::clamp, std::min(low, high), std::max(low, high));
    } else {
      become_constant(program, "range of the equalized image", context.notices);
    }
    if (params_.mask.kind == Mask::Kind::nonzero)
      program.store(Operand::r0).load(1).store(Operand::r1).add(Op::set, Operand::r0).add(Op::select, Operand::r1, 0.0);
    run(program, inputs, component, context, result);
  }

  void become_constant(Program& program, const std::string& measure, Notices& notices) const {
    append_constant(program, params_.to[0]);
    notice_constant(notices, "clahe", measure, params_.to[0]);
  }

  static void run(const Program& program, std::span<const ProgramInput> inputs, std::int64_t component,
                  VolumeContext& context, Volume& result) {
    run_program(context.device, program, inputs, result.component(component), result.dtype(),
                result.geometry().voxel_count(),
                result.dtype() == DataType::float64 ? Precision::double_ : Precision::single);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_clahe() {
  using P = Clahe::Params;
  return define_stage<Clahe>(
      {.op = "clahe",
       .family = "intensity",
       .summary =
           "contrast-limited adaptive histogram equalization in 3-D or slice by slice, each component by itself; "
           "infinity goes to the ends of the range, NaN stays and is not counted",
       .example = {{"op", "clahe"}, {"kernel", 16}, {"clip_limit", 0.02}}},
      Parameters<P>()
          .add("kernel", &P::kernel, {.min = 0, .exclusive_min = true, .unit = "mm or voxel"},
               "size of a tile, whose histogram makes a map of intensities, between which voxels interpolate; at least "
               "a "
               "voxel, at most the image; default an eighth of the image along each axis")
          .add("units", &P::units, {}, "what 'kernel' is given in")
          .add("clip_limit", &P::clip_limit, {.min = 0, .max = 1},
               "most that one bin may hold, as a share of a tile's voxels: lower is less contrast; 0 or 1 is no limit")
          .add("bins", &P::bins, {.min = 2, .max = 2048}, "of a tile's histogram, over the range of the finite voxels")
          .add(
              "slices", &P::slices, {},
              "the axis across which each slice is worked on by itself (with the range of the whole image); without it "
              "tiles are blocks in 3-D")
          .add("mask", &P::mask, {},
               "where the range and the histograms are taken; the maps apply to every voxel, except that under "
               "\"nonzero\" a 0 means no data and stays 0")
          .add("to", &P::to, {}, "output range, which the equalized image fills; may descend"));
}

}  // namespace volpipe
