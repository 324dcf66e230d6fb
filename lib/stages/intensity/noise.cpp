#include <algorithm>

#include "stages/intensity/intensity.h"
#include "stages/stage_context.h"

namespace volpipe {

namespace {

enum class NoiseKind : std::uint8_t { gaussian, rician, poisson, salt_pepper, speckle };

}  // namespace

template <>
struct EnumNames<NoiseKind> {
  static constexpr std::array names{"gaussian", "rician", "poisson", "salt_pepper", "speckle"};
};

namespace {

class Noise final : public PointwiseStage {
 public:
  struct Params {
    NoiseKind kind = NoiseKind::gaussian;
    std::optional<double> mean, std;
    std::optional<bool> relative;
    std::optional<Mask> mask;
    std::optional<double> scale, amount, salt;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit Noise(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const NoiseKind kind = params.kind;
    const std::string word = ParameterType<NoiseKind>::write(kind).get<std::string>();
    const auto check_belongs = [&](bool given, const char* name) {
      if (given && !takes(kind, name))
        faults.add(pointer + "/" + name, std::string("'") + name + "' does not belong to noise of kind " + word +
                                             ", which takes " + quoted_list(parameters_of(kind)));
    };
    check_belongs(params.mean.has_value(), "mean");
    check_belongs(params.std.has_value(), "std");
    check_belongs(params.relative.has_value(), "relative");
    check_belongs(params.mask.has_value(), "mask");
    check_belongs(params.scale.has_value(), "scale");
    check_belongs(params.amount.has_value(), "amount");
    check_belongs(params.salt.has_value(), "salt");
    if (takes(kind, "std") && !params.std) faults.add(pointer, "'std' is missing: noise of kind " + word + " needs it");
    if (params.mask && takes(kind, "mask") && !params.relative.value_or(false))
      faults.add(pointer + "/mask", "'mask' needs 'relative', for else no statistics are taken");
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string& image, const VolumeInfo&,
                                              const StageContext& context) const override {
    auto own = std::make_shared<Noise>(*this);
    for (std::uint32_t i = 0; i < own->keys_.size(); ++i) own->keys_[i] = context.voxel_key(image, i);
    return own;
  }

  std::vector<StatisticsRequest> requests() const override {
    if (params_.kind == NoiseKind::salt_pepper) return {{.range = true, .over = params_.per}};
    if (!relative()) return {};
    return {{.moments = true, .mask = params_.mask.value_or(Mask{}), .over = params_.per}};
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    const bool keeps = params_.kind == NoiseKind::salt_pepper && !is_floating(input.dtype) &&
                       params_.per != StatisticsRequest::Over::item;
    return keeps ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (!context.answers.empty() && context.answers[0].moments.count == 0)
      return notice_no_voxels(context.notices, "noise");
    switch (params_.kind) {
      case NoiseKind::gaussian:
        program.store(Operand::r0);
        append_normal(program, 0, params_.mean.value_or(0), std_of(context));
        return (void)program.add(Op::add, Operand::r0);
      case NoiseKind::speckle:
        program.store(Operand::r0);
        append_normal(program, 0, 1 + params_.mean.value_or(0), std_of(context));
        return (void)program.add(Op::multiply, Operand::r0);
      case NoiseKind::rician:
        return append_rician(program, std_of(context));
      case NoiseKind::poisson:
        program.add(Op::maximum, 0).add(Op::multiply, params_.scale.value_or(1));
        return (void)program.random(Op::random_poisson, keys_[0]).add(Op::divide, params_.scale.value_or(1));
      case NoiseKind::salt_pepper:
        return append_salt_and_pepper(program, context.answers[0].moments);
    }
  }

 private:
  static std::vector<std::string> parameters_of(NoiseKind kind) {
    switch (kind) {
      case NoiseKind::gaussian:
        return {"mean", "std", "relative", "mask"};
      case NoiseKind::rician:
        return {"std", "relative", "mask"};
      case NoiseKind::poisson:
        return {"scale"};
      case NoiseKind::salt_pepper:
        return {"amount", "salt"};
      case NoiseKind::speckle:
        break;
    }
    return {"mean", "std"};
  }
  static bool takes(NoiseKind kind, const std::string& name) {
    const std::vector<std::string> names = parameters_of(kind);
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  bool relative() const { return params_.relative.value_or(false); }

  double std_of(const PointwiseContext& context) const {
    if (!relative()) return *params_.std;
    const double std = context.answers[0].moments.std();
    if (std == 0)
      context.notices.add("constant_image", "noise: the standard deviation of the image is 0, and so is the noise's");
    return *params_.std * std;
  }

  void append_normal(Program& program, std::size_t stream, double mean, double std) const {
    program.random(Op::random_normal, keys_[stream]).add(Op::fma, std, mean);
  }

  void append_rician(Program& program, double std) const {
    program.store(Operand::r0);
    append_normal(program, 0, 0, std);
    program.add(Op::add, Operand::r0).store(Operand::r0).add(Op::multiply, Operand::r0).store(Operand::r0);
    append_normal(program, 1, 0, std);
    program.store(Operand::r1).add(Op::multiply, Operand::r1).add(Op::add, Operand::r0).add(Op::sqrt);
  }

  void append_salt_and_pepper(Program& program, const Moments& range) const {
    const double amount = params_.amount.value_or(0.05), salt = params_.salt.value_or(0.5);
    program.store(Operand::r0).random(Op::random_uniform, keys_[0]).store(Operand::r1);
    program.add(Op::greater_equal, amount).store(Operand::r2);
    program.add(Op::set, Operand::r0).add(Op::select, Operand::r2, range.min).store(Operand::r0);
    program.add(Op::set, Operand::r1).add(Op::greater_equal, amount * salt).store(Operand::r2);
    program.add(Op::set, Operand::r0).add(Op::select, Operand::r2, range.max);
  }

  Params params_;
  std::array<std::uint64_t, 2> keys_{};
};

}  // namespace

StageDefinition stage_noise() {
  using P = Noise::Params;
  return define_stage<Noise>(
      {.op = "noise",
       .family = "intensity",
       .summary = "random noise, one draw a voxel, the same on every device and for any number of threads; NaN stays",
       .example = {{"op", "noise"}, {"kind", "gaussian"}, {"std", 0.1}, {"relative", true}}},
      Parameters<P>()
          .add("kind", &P::kind, {},
               "gaussian: v + n with n of `mean` and `std`; rician: sqrt((v + n1)^2 + n2^2); poisson: P(max(v, 0) "
               "scale) / "
               "scale, P(m) a whole number of mean m; salt_pepper: some voxels, NaN too, become the finite maximum or "
               "minimum, integer images keep their type (else float32); speckle: v + v n")
          .add("mean", &P::mean, {}, "gaussian, speckle: mean of n, default 0")
          .add("std", &P::std, {.min = 0}, "gaussian, rician, speckle: standard deviation of n; needed there")
          .add("relative", &P::relative, {},
               "gaussian, rician: `std` is a share of the standard deviation of the image's finite voxels")
          .add("mask", &P::mask, {}, "where that is taken; the noise is everywhere")
          .add("scale", &P::scale, {.min = 0, .exclusive_min = true},
               "poisson: counts for each unit of intensity, default 1")
          .add("amount", &P::amount, {.min = 0, .max = 1},
               "salt_pepper: share of the voxels that are replaced, default 0.05")
          .add("salt", &P::salt, {.min = 0, .max = 1},
               "salt_pepper: share of those that become the maximum, default 0.5")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
