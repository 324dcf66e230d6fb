#include <cmath>
#include <numbers>

#include "stages/pointwise/pointwise_stage.h"
#include "stages/stage_context.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// A wave over the image: its frequency, and its phase in the first voxel as a share of a turn.
struct Stripe {
  std::array<std::int64_t, 3> frequency;
  double phase;
};

/// cos(2 pi (phase + k_x x / n_x + k_y y / n_y + k_z z / n_z)), taken apart into the cosines and sines of the axes.
Field wave(const Stripe& stripe, const Index3& size) {
  Field field;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    Field::Axis& waves = field.axes[axis];
    waves.count = waves.taps = 2;
    waves.first.assign(std::size_t(size[axis]), 0);
    for (std::int64_t i = 0; i < size[axis]; ++i) {
      const double turns = double(stripe.frequency[axis] * i % size[axis]) / double(size[axis]);
      const double angle = 2 * std::numbers::pi * (turns + (axis == 0 ? stripe.phase : 0));
      waves.weights.push_back(std::cos(angle));
      waves.weights.push_back(std::sin(angle));
    }
  }
  // The real part of (cos x + i sin x) (cos y + i sin y) (cos z + i sin z): two sines are a -1, one or three give none.
  field.coefficients = {1, 0, 0, -1, 0, -1, -1, 0};
  return field;
}

class KSpaceSpike final : public PointwiseStage {
 public:
  struct Params {
    std::optional<std::array<std::int64_t, 3>> location{};
    std::int64_t count = 1;
    double intensity = 0.1;
  };
  explicit KSpaceSpike(Params params) : params_(params) {
    if (params_.location) stripes_.push_back({*params_.location, 0});
  }

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (!params.location) return;
    if (*params.location == std::array<std::int64_t, 3>{})
      faults.add(pointer + "/location", "the frequency 0, 0, 0 is the mean and no stripe: use the stage 'shift'");
    if (params.count != 1)
      faults.add(pointer + "/count", "give 'location' for one spike, or 'count' for spikes at random, not both");
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    const Index3& size = input.geometry.size();
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (const Stripe& stripe : stripes_)
        if (2 * std::abs(stripe.frequency[axis]) > size[axis])
          throw Error(ErrorCode::input, "a location of " + std::to_string(stripe.frequency[axis]) + " along " +
                                            std::string(1, "xyz"[axis]) + " lies outside the k-space of an axis of " +
                                            std::to_string(size[axis]) + " voxels: the highest frequency is " +
                                            std::to_string(size[axis] / 2));
    return PointwiseStage::output(input);
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo& input,
                                              const StageContext& context) const override {
    if (params_.location || input.geometry.voxel_count() == 1) return nullptr;
    DrawStream draws = context.draws();
    auto drawn = std::make_shared<KSpaceSpike>(params_);
    for (std::int64_t i = 0; i < params_.count; ++i) drawn->stripes_.push_back(draw(draws, input.geometry.size()));
    return drawn;
  }

  std::vector<StatisticsRequest> requests() const override {
    return {{.range = true, .over = StatisticsRequest::Over::component}};
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const Moments& moments = context.answers[0].moments;
    if (moments.count == 0 || params_.intensity == 0) return;
    const double amplitude = params_.intensity * (moments.max - moments.min);
    for (const Stripe& stripe : stripes_)
      program.store(Operand::r0)
          .field(std::make_shared<const Field>(wave(stripe, context.input.geometry.size())))
          .add(Op::multiply, amplitude)
          .add(Op::add, Operand::r0);
  }

 private:
  /// Any frequency but 0 with the same chance.
  static Stripe draw(DrawStream& draws, const Index3& size) {
    Stripe stripe{{}, draws.uniform()};
    while (stripe.frequency == std::array<std::int64_t, 3>{})
      for (std::size_t axis = 0; axis < 3; ++axis)
        stripe.frequency[axis] = std::int64_t(draws.uniform() * double(size[axis])) - size[axis] / 2;
    return stripe;
  }

  Params params_;
  std::vector<Stripe> stripes_{};
};

}  // namespace

StageDefinition stage_kspace_spike() {
  using P = KSpaceSpike::Params;
  return define_stage<KSpaceSpike>(
      {.op = "kspace_spike",
       .family = "intensity",
       .summary = "stripes over the image, as from a spike in k-space and its conjugate: a cosine is added",
       .example = {{"op", "kspace_spike"}, {"intensity", 0.2}}},
      Parameters<P>()
          .add("location", &P::location, {},
               "where in k-space: the stripes' frequency along the voxel axes x, y, z in cycles per field of view, "
               "whole numbers of either sign up to half the axis; the first voxel lies on a crest. Default: at random")
          .add("count", &P::count, {.min = 1, .max = double(Program::kMaxFields)},
               "spikes at random places, each with a phase at random")
          .add("intensity", &P::intensity, {.min = 0},
               "height of the stripes' crests as a share of the image's range, least to greatest, of each component"));
}

}  // namespace volpipe
