#include <cmath>
#include <limits>

#include "stages/intensity/intensity.h"

namespace volpipe {

/// The value that marks voxels without data: a number, or what all corners of the image have.
struct Padding {
  std::optional<double> value;
};

template <>
struct ParameterType<Padding> {
  static std::string name() { return "number or \"auto\""; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<double>::schema(limits), {{"const", "auto"}}}}};
  }
  static std::string read(const Json& json, const Limits& limits, Padding& padding) {
    if (json == "auto") return "";
    double value = 0;
    if (!ParameterType<double>::read(json, limits, value).empty()) return name();
    padding.value = value;
    return "";
  }
  static Json write(const Padding& padding) {
    return padding.value ? ParameterType<double>::write(*padding.value) : Json("auto");
  }
};

namespace {

class ReplacePadding final : public PointwiseStage {
 public:
  struct Params {
    Padding padding;
    Fill value{0, true};
  };
  explicit ReplacePadding(Params params) : params_(params) {}

  std::vector<StatisticsRequest> requests() const override {
    std::vector<StatisticsRequest> requests;
    if (!params_.padding.value) requests.push_back({.moments = true, .of = append_corners});
    if (params_.value.minimum)
      requests.push_back({.moments = true, .of = [this](Program& program, const PointwiseContext& context) {
                            append_replacing(program, padding(context), kNothing);
                          }});
    return requests;
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    const bool keeps = !is_floating(input.dtype) && (params_.value.minimum || holds(input.dtype, params_.value.value));
    return keeps ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext& context) const override {
    const double replaced = padding(context);
    if (std::isnan(replaced))
      return context.notices.add("no_padding",
                                 "replace_padding: the corners of the image have different values; the "
                                 "image was left as it is");
    if (!params_.value.minimum) return append_replacing(program, replaced, params_.value.value);
    const Moments& rest = context.answers.back().moments;
    if (rest.count == 0) return notice_no_voxels(context.notices, "replace_padding");
    append_replacing(program, replaced, rest.min);
  }

 private:
  static constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  static constexpr double kNoNumber = std::numeric_limits<float>::max();  ///< stands for corners that are not finite

  /// Corners keep their value, all else becomes NaN, which statistics leave out.
  static void append_corners(Program& program, const PointwiseContext& context) {
    const Index3& size = context.input.geometry.size();
    program.add(Op::replace_nonfinite, kNoNumber).store(Operand::r0).add(Op::set, 1).store(Operand::r2);
    for (int axis = 0; axis < 3; ++axis) {
      program.coordinate(axis).store(Operand::r1).add(Op::equal, double(size[std::size_t(axis)] - 1));
      program.store(Operand::r3).add(Op::set, Operand::r1).add(Op::equal, 0).add(Op::logical_or, Operand::r3);
      program.add(Op::logical_and, Operand::r2).store(Operand::r2);
    }
    program.add(Op::set, Operand::r0).add(Op::select, Operand::r2, kNothing);
  }

  /// NaN where there is none.
  double padding(const PointwiseContext& context) const {
    if (params_.padding.value) return *params_.padding.value;
    const Moments& corners = context.answers[0].moments;
    return corners.min == corners.max && corners.max < kNoNumber ? corners.min : kNothing;
  }

  static void append_replacing(Program& program, double padding, double value) {
    program.store(Operand::r0).add(Op::not_equal, padding).store(Operand::r1);
    program.add(Op::set, Operand::r0).add(Op::select, Operand::r1, value);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_replace_padding() {
  using P = ReplacePadding::Params;
  return define_stage<ReplacePadding>(
      {.op = "replace_padding",
       .family = "intensity",
       .summary = "voxels that mark where there are no data, such as -2000 around a CT's field of view, take another "
                  "value; NaN and infinity stay",
       .example = {{"op", "replace_padding"}, {"padding", -2000}, {"value", "min"}}},
      Parameters<P>()
          .add("padding", &P::padding, {},
               "the value that marks them; \"auto\": the one that all eight corners of the image (of every component) "
               "have, and where they differ the image stays as it is, with a warning")
          .add("value", &P::value, {},
               "what they become: a number, or \"min\" for the least finite value of the others; integer images keep "
               "their type when it holds the value, else float32"));
}

}  // namespace volpipe
