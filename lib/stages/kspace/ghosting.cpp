#include "stages/kspace/kspace_stage.h"

namespace volpipe {

namespace {

class Ghosting final : public KSpaceStage {
 public:
  struct Params {
    PhaseAxis axis = PhaseAxis::y;
    std::int64_t ghosts = 4;
    double intensity = 0.5;
    double restore = 0.02;
  };
  explicit Ghosting(Params params) : KSpaceStage("ghosting"), params_(params) {}

 private:
  bool changes_nothing() const override { return params_.intensity == 0; }

  void change(const KSpace& kspace) const override {
    const int axis = int(params_.axis);
    const std::vector<std::int64_t> frequencies = kspace.layout.frequencies(axis);
    const std::vector<double> shares = shares_of_nyquist(kspace.layout, axis);
    SpectrumEdit edit(kspace.layout);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      if (frequencies[i] % params_.ghosts == 0 && shares[i] > params_.restore) edit.values[std::size_t(axis)][i] = 1;
    edit.factor = 1 - params_.intensity;
    kspace.edit(edit);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_ghosting() {
  using P = Ghosting::Params;
  return define_stage<Ghosting>(
      {.op = "ghosting",
       .family = "intensity",
       .summary =
           "copies of the image along an axis, as from motion that repeats: every n-th line of k-space is weaker; "
           "the mean stays, and so do voxels that are not finite; values below 0 occur",
       .example = {{"op", "ghosting"}, {"axis", "y"}, {"ghosts", 3}, {"intensity", 0.7}}},
      Parameters<P>()
          .add("axis", &P::axis, {}, "voxel axis of the phase encoding, along which the ghosts lie")
          .add("ghosts", &P::ghosts, {.min = 2},
               "n: lines with k = 0, n, -n, 2 n, .. are damped, which adds -intensity / n times the image at every "
               "multiple of 1 / n of the field of view")
          .add("intensity", &P::intensity, {.min = 0, .max = 1},
               "those lines are multiplied by 1 - intensity: 0 changes nothing, 1 takes them out")
          .add("restore", &P::restore, {.min = 0, .max = 1},
               "share of the lines, around the middle of k-space, that is left alone: |k| <= restore times Nyquist; "
               "the line k = 0 always is"));
}

}  // namespace volpipe
