#include <cmath>

#include "stages/boxes/box_work.h"
#include "stages/boxes/random_boxes.h"
#include "stages/geometry/grid_maps.h"
#include "stages/pointwise/statistics.h"
#include "stages/volume_stage.h"
#include "stages/volumes.h"

namespace volpipe {

namespace {

/// What lost voxels become.
struct HoleFill {
  enum class Kind { number, minimum, mean, noise } kind = Kind::number;
  double value = 0;
};

}  // namespace

template <>
struct ParameterType<HoleFill> {
  static std::string name() { return "number, \"min\", \"mean\" or \"noise\""; }
  static Json schema(const Limits&) {
    return {{"anyOf", {{{"type", "number"}}, {{"enum", {"min", "mean", "noise"}}}}}};
  }
  static std::string read(const Json& json, const Limits& limits, HoleFill& value) {
    using Kind = HoleFill::Kind;
    if (json == "min") value.kind = Kind::minimum;
    else if (json == "mean") value.kind = Kind::mean;
    else if (json == "noise") value.kind = Kind::noise;
    else if (!ParameterType<double>::read(json, limits, value.value).empty()) return name();
    return "";
  }
  static Json write(const HoleFill& value) {
    constexpr std::array kWords{"number", "min", "mean", "noise"};
    if (value.kind == HoleFill::Kind::number) return ParameterType<double>::write(value.value);
    return kWords[std::size_t(value.kind)];
  }
};

namespace {

class CoarseDropout final : public VolumeStage {
 public:
  struct Params : BoxParams {
    HoleFill fill;
    bool invert = false;
  };

  explicit CoarseDropout(Params params) : params_(std::move(params)) {}

  std::shared_ptr<const VoxelStage> for_image(const std::string& image, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto bound = std::make_shared<CoarseDropout>(*this);
    bound->boxes_ = random_boxes(params_, context, input.geometry);
    bound->noise_key_ = context.voxel_key(image);
    return bound;
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    const Kind kind = params_.fill.kind;
    if (kind == Kind::number) check_fill(input, Boundary::constant, {params_.fill.value});
    if (input.kind == ImageKind::label && (kind == Kind::mean || kind == Kind::noise))
      throw Error(ErrorCode::usage, "'fill' " + ParameterType<HoleFill>::write(params_.fill).dump() +
                                        " makes no labels: give the label that lost voxels get, or \"min\"");
    return input;
  }
  bool computes() const override { return false; }
  std::size_t scratch_bytes(const VolumeInfo& input) const override {
    return statistics_scratch_bytes(input.geometry.voxel_count(), Precision::double_, false);
  }

  Volume run(const Volume& input, const VolumeInfo&, VolumeContext& context) const override {
    DeviceContext& device = context.device;
    const std::vector<BoxFill> fills = fills_for(input, device);
    if (!params_.invert) {
      Volume result = copy_of(device, input);
      fill_boxes(device, boxes_, fills, result);
      return result;
    }
    Volume result(input.info(), device.allocate(input.info().bytes()));
    fill_boxes(device, std::array{whole_box(input.geometry().size())}, fills, result);
    std::vector<VoxelBox> kept = boxes_;
    for (VoxelBox& box : kept) box.order = {};
    shuffle_boxes(device, kept, input, result);
    return result;
  }

 private:
  using Kind = HoleFill::Kind;

  std::vector<BoxFill> fills_for(const Volume& input, DeviceContext& device) const {
    const double value = params_.fill.value;
    std::vector<BoxFill> fills(std::size_t(input.info().components), BoxFill{value, value});
    if (params_.fill.kind == Kind::number) return fills;
    for (std::size_t c = 0; c < fills.size(); ++c) {
      const std::array inputs{ProgramInput{input.component(std::int64_t(c)), input.dtype()}};
      const SampledValues values{.inputs = inputs, .count = input.geometry().voxel_count()};
      const bool mean = params_.fill.kind == Kind::mean;
      const Moments moments = mean ? compute_moments(device, values) : compute_range(device, values);
      if (moments.count > 0) fills[c] = fill_from(moments, input.dtype());
    }
    return fills;
  }

  BoxFill fill_from(const Moments& moments, DataType type) const {
    if (params_.fill.kind == Kind::minimum) return {moments.min, moments.min};
    if (params_.fill.kind == Kind::noise) return {moments.min, moments.max, true, noise_key_};
    const double mean = is_floating(type) ? moments.mean : std::round(moments.mean);
    return {mean, mean};
  }

  Params params_;
  std::vector<VoxelBox> boxes_{};
  std::uint64_t noise_key_ = 0;
};

}  // namespace

StageDefinition stage_coarse_dropout() {
  using Params = CoarseDropout::Params;
  return define_stage<CoarseDropout>(
      {.op = "coarse_dropout",
       .family = "intensity",
       .summary = "lose the voxels in boxes at random places, the same places in the world for all images it acts on; "
                  "the other voxels keep every bit",
       .example = {{"op", "coarse_dropout"}, {"holes", 3}, {"size", {4, 12}}, {"fill", "mean"}}},
      box_parameters<Params>()
          .add("fill", &Params::fill, {},
               "what lost voxels become: a number, or of the finite voxels of each component the minimum, the mean, or "
               "uniform noise between minimum and maximum, drawn by voxel; without finite voxels 0")
          .add("invert", &Params::invert, {}, "lose all voxels but those in the boxes"));
}

}  // namespace volpipe
