#include <cmath>

#include "stages/kspace/kspace_stage.h"

namespace volpipe {

namespace {

class Gibbs final : public KSpaceStage {
 public:
  struct Params {
    double alpha = 0.3;
  };
  explicit Gibbs(Params params) : KSpaceStage("gibbs"), params_(params) {}

 private:
  bool changes_nothing() const override { return params_.alpha == 0; }

  void change(const KSpace& kspace) const override {
    SpectrumEdit edit(kspace.layout);
    int axes = 0;
    for (int axis = 0; axis < 3; ++axis) {
      if (kspace.layout.volume_size()[std::size_t(axis)] == 1) continue;
      ++axes;
      edit.values[std::size_t(axis)] = shares_of_nyquist(kspace.layout, axis);
      for (double& share : edit.values[std::size_t(axis)]) share *= share;
    }
    const double kept = 1 - params_.alpha;
    edit.limit = kept * kept * axes * (1 + 1e-12);  // what lies on the ellipsoid is kept, however it is rounded
    edit.factor = 0;
    kspace.edit(edit);
  }

  Params params_;
};

}  // namespace

StageDefinition stage_gibbs() {
  using P = Gibbs::Params;
  return define_stage<Gibbs>(
      {.op = "gibbs",
       .family = "intensity",
       .summary = "ringing at edges: high frequencies are cut off; the mean stays, and so do voxels that are not "
                  "finite; values below 0 occur",
       .example = {{"op", "gibbs"}, {"alpha", 0.6}}},
      Parameters<P>().add("alpha", &P::alpha, {.min = 0, .max = 1},
                          "how much of k-space is cut: what stays is the ellipsoid sum over the d axes (those of more "
                          "than one voxel) of (k / Nyquist)^2 <= d (1 - alpha)^2, so 0 cuts nothing and 1 all but the "
                          "mean"));
}

}  // namespace volpipe
