#include <algorithm>

#include "stages/intensity/intensity.h"

namespace volpipe {

namespace {

enum class Preset { lung, bone, brain, soft_tissue, liver, mediastinum };

}  // namespace

template <>
struct EnumNames<Preset> {
  static constexpr std::array names{"lung", "bone", "brain", "soft_tissue", "liver", "mediastinum"};
};

namespace {

/// In Hounsfield units.
struct CentreAndWidth {
  double centre, width;
};

constexpr CentreAndWidth window_of(Preset preset) {
  switch (preset) {
    case Preset::lung:
      return {-600, 1500};
    case Preset::bone:
      return {400, 1800};
    case Preset::brain:
      return {40, 80};
    case Preset::soft_tissue:
      return {50, 400};
    case Preset::liver:
      return {30, 150};
    case Preset::mediastinum:
      break;
  }
  return {50, 350};
}

class Window final : public PointwiseStage {
 public:
  struct Params {
    std::optional<double> center, width;
    std::optional<Preset> preset;
    std::array<double, 2> to{0, 1};
  };
  explicit Window(Params params) : params_(params) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.preset && (params.center || params.width))
      faults.add(pointer + "/preset", "'preset' cannot be combined with 'center' or 'width'");
    if (!params.preset && (!params.center || !params.width))
      faults.add(pointer, "'window' needs 'center' and 'width', or 'preset'");
  }

  void append(Program& program, const PointwiseContext&) const override {
    const CentreAndWidth window =
        params_.preset ? window_of(*params_.preset) : CentreAndWidth{*params_.center, *params_.width};
    const auto [low, high] = params_.to;
    append_linear(program, window.centre - window.width / 2, (high - low) / window.width, low);
    program.add(Op::clamp, std::min(low, high), std::max(low, high));
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_window() {
  using P = Window::Params;
  return define_stage<Window>({.op = "window",
                               .family = "intensity",
                               .summary = "maps [center - width/2, center + width/2] linearly to an output range and "
                                          "clips (DICOM's LINEAR_EXACT); NaN stays",
                               .example = {{"op", "window"}, {"preset", "soft_tissue"}}},
                              Parameters<P>()
                                  .add("center", &P::center, {}, "middle of the window")
                                  .add("width", &P::width, {.min = 0, .exclusive_min = true}, "width of the window")
                                  .add("preset", &P::preset, {},
                                       "center/width in HU: lung -600/1500, bone 400/1800, brain 40/80, soft_tissue "
                                       "50/400, liver 30/150, mediastinum 50/350")
                                  .add("to", &P::to, {}, "output range; may descend"));
}

}  // namespace volpipe
