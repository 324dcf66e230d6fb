// Changes that vary smoothly and at random over the image: of the intensity, of the contrast.
#include "stages/intensity/intensity.h"
#include "stages/intensity/random_fields.h"

namespace volpipe {

namespace {

struct FieldParams {
  PerAxis<double> spacing{{30, 30, 30}};
  std::array<double, 2> range{0.5, 1.5};

  static void check(const FieldParams& params, const std::string& pointer, Faults& faults) {
    if (params.range[0] > params.range[1])
      faults.add(pointer + "/range", "the first value must not be above the second");
  }
  std::shared_ptr<const Field> draw(const VolumeInfo& input, const StageContext& context) const {
    return random_spline_field(input, context, spacing.value, range);
  }
};

class SmoothIntensity final : public PointwiseStage {
 public:
  using Params = FieldParams;
  explicit SmoothIntensity(Params params) : params_(params) {}
  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    FieldParams::check(params, pointer, faults);
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto own = std::make_shared<SmoothIntensity>(*this);
    own->field_ = params_.draw(input, context);
    return own;
  }

  void append(Program& program, const PointwiseContext&) const override {
    program.store(Operand::r0).field(field_).add(Op::multiply, Operand::r0);
  }

 private:
  Params params_;
  std::shared_ptr<const Field> field_;
};

class SmoothContrast final : public PointwiseStage {
 public:
  struct Params : FieldParams {
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit SmoothContrast(Params params) : params_(params) {}
  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    FieldParams::check(params, pointer, faults);
    if (params.range[0] <= 0) faults.add(pointer + "/range", "exponents must be above 0");
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto own = std::make_shared<SmoothContrast>(*this);
    own->field_ = params_.draw(input, context);
    return own;
  }

  std::vector<StatisticsRequest> requests() const override { return {{.range = true, .over = params_.per}}; }

  void append(Program& program, const PointwiseContext& context) const override {
    const Moments& moments = context.answers[0].moments;
    if (moments.count == 0) return notice_no_voxels(context.notices, "smooth_contrast");
    if (moments.min == moments.max) return notice_unchanged(context.notices, "smooth_contrast", "range");
    append_to_unit(program, moments.min, moments.max);
    program.store(Operand::r0).field(field_).store(Operand::r1);
    program.add(Op::set, Operand::r0).add(Op::power, Operand::r1);
    append_from_unit(program, moments.min, moments.max);
  }

 private:
  Params params_;
  std::shared_ptr<const Field> field_;
};

/// The parameters of both, P their struct.
template <class P>
Parameters<P> field_parameters(const std::string& range) {
  return Parameters<P>()
      .add("spacing", static_cast<PerAxis<double> P::*>(&FieldParams::spacing),
           {.min = 0, .exclusive_min = true, .unit = "mm"},
           "distance of the control points along the first image's axes")
      .add("range", static_cast<std::array<double, 2> P::*>(&FieldParams::range), {}, range);
}

}  // namespace

StageDefinition stage_smooth_intensity() {
  return define_stage<SmoothIntensity>(
      {.op = "smooth_intensity",
       .family = "intensity",
       .summary =
           "v * f, f a random cubic B-spline over the place, one in the world for all images and components; NaN "
           "and infinity stay",
       .example = {{"op", "smooth_intensity"}, {"spacing", 10}, {"range", {0.8, 1.2}}}},
      field_parameters<FieldParams>("least and greatest factor: control points draw from [low, high]"));
}

StageDefinition stage_smooth_contrast() {
  using P = SmoothContrast::Params;
  return define_stage<SmoothContrast>(
      {.op = "smooth_contrast",
       .family = "intensity",
       .summary = "((v - min) / (max - min)) ^ f * (max - min) + min over the finite voxels' range, f a random cubic "
                  "B-spline over the place, one in the world for all images and components; infinity goes to the ends, "
                  "NaN stays",
       .example = {{"op", "smooth_contrast"}, {"spacing", 10}}},
      field_parameters<P>("least and greatest exponent, above 0: control points draw from [low, high]")
          .add("per", &P::per, {}, kPerHelp));
}

}  // namespace volpipe
