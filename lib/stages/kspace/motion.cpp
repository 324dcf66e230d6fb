#include <algorithm>

#include "stages/gather/compose.h"
#include "stages/geometry/spatial_maps.h"
#include "stages/kspace/kspace_stage.h"

namespace volpipe {

namespace {

/// Where the image lies from a time on. Times are |k| as a share of Nyquist: lines are taken from the middle outwards.
struct Pose {
  double from;
  Affine pull;  ///< world point -> the point that is there now
};

/// What the moved image is: linear interpolation, air (its lowest value) outside. An image of one slice moves in its
/// plane.
GatherMap moved_map(const VolumeInfo& info, const Affine& pull) {
  const Geometry& grid = info.geometry;
  Affine points = grid.world_to_index() * pull * grid.index_to_world();
  for (int axis = 0; axis < 3; ++axis)
    if (grid.size()[std::size_t(axis)] == 1) {
      points.linear[axis] = {};
      points.offset[std::size_t(axis)] = 0;
    }
  GatherMap map;
  map.output = info;
  map.before = identity_map(info);
  map.points = points;
  map.boundary = Boundary::grid_constant;
  map.window_end = grid.size();
  return map;
}

class Motion final : public KSpaceStage {
 public:
  struct Params {
    PerAxis<double> degrees{{10, 10, 10}};
    PerAxis<double> translation{{10, 10, 10}};
    std::int64_t movements = 2;
    PhaseAxis axis = PhaseAxis::y;
  };
  explicit Motion(Params params) : KSpaceStage("motion"), params_(params) {}

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo&,
                                              const StageContext& context) const override {
    auto drawn = std::make_shared<Motion>(params_);
    if (moves()) drawn->poses_ = draw_poses(context);
    return drawn;
  }

  std::size_t scratch_bytes(const VolumeInfo& input) const override {
    if (changes_nothing()) return 0;
    const DataType type = input.dtype == DataType::float64 ? DataType::float64 : DataType::float32;
    const VolumeInfo one = component_of(input, type);
    return KSpaceStage::scratch_bytes(input) + one.bytes() + SpectrumLayout(one.geometry.size()).bytes(type) +
           volpipe::scratch_bytes(one, moved_map(one, {}));
  }

 private:
  bool moves() const {
    const auto moves_along = [](double amplitude) { return amplitude != 0; };
    return std::any_of(params_.degrees.value.begin(), params_.degrees.value.end(), moves_along) ||
           std::any_of(params_.translation.value.begin(), params_.translation.value.end(), moves_along);
  }

  /// The i-th of m movements is at (i - 1/2 + u) / (m + 1), u in (0, 1).
  std::vector<Pose> draw_poses(const StageContext& context) const {
    DrawStream draws = context.draws();
    const auto draw_within = [&draws](double amplitude) { return amplitude * (2 * draws.uniform() - 1); };
    const Vec3 center = center_of(context.frame.geometry);
    std::vector<Pose> poses;
    for (std::int64_t i = 1; i <= params_.movements; ++i) {
      const double from = (double(i) - 0.5 + draws.uniform()) / double(params_.movements + 1);
      Matrix3 rotation = Matrix3::identity();
      for (int axis = 0; axis < 3; ++axis)
        rotation = rotation_about(axis, draw_within(params_.degrees.value[std::size_t(axis)])) * rotation;
      Vec3 translation;
      for (std::size_t axis = 0; axis < 3; ++axis) translation[axis] = draw_within(params_.translation.value[axis]);
      poses.push_back({from, about_center(rotation, center, translation).inverse()});
    }
    return poses;
  }

  bool changes_nothing() const override { return poses_.empty(); }

  void change(const KSpace& kspace) const override {
    const auto axis = std::size_t(params_.axis);
    const std::vector<double> times = shares_of_nyquist(kspace.layout, int(axis));
    Buffer spectrum = kspace.device.allocate(kspace.layout.bytes(kspace.type()));
    for (const Pose& pose : poses_) {
      SpectrumEdit later(kspace.layout);
      for (std::size_t i = 0; i < times.size(); ++i) later.values[axis][i] = times[i] > pose.from;
      const Volume moved = apply_gather(kspace.device, kspace.image, moved_map(kspace.image.info(), pose.pull),
                                        kspace.least, kspace.least, {});
      kspace.transform.forward(moved.data(), spectrum.data());
      kspace.edit_from(spectrum.data(), later);
    }
  }

  Params params_;
  std::vector<Pose> poses_{};  ///< by time; empty: nothing moves
};

}  // namespace

StageDefinition stage_motion() {
  using P = Motion::Params;
  return define_stage<Motion>(
      {.op = "motion",
       .family = "intensity",
       .summary = "rigid movements while the image is taken, alike for all images of the item: k-space is put together "
                  "from the image in its positions; the mean stays, and so do voxels that are not finite; values below "
                  "0 occur",
       .example = {{"op", "motion"}, {"degrees", 5}, {"translation", 3}, {"movements", 2}, {"axis", "y"}}},
      Parameters<P>()
          .add("degrees", &P::degrees, {.min = 0, .max = 180, .unit = "degree", .of_world = true},
               "largest rotation about the world's x, y, z through the middle of the first image: each position draws "
               "from [-degrees, degrees]")
          .add("translation", &P::translation, {.min = 0, .unit = "mm", .of_world = true},
               "largest shift along the world's x, y, z: each position draws from [-translation, translation]")
          .add("movements", &P::movements, {.min = 1, .max = 64},
               "m positions after the first, which is where the image is: the i-th is taken up at the time (i - 1/2 + "
               "u) / (m + 1), u drawn from (0, 1)")
          .add("axis", &P::axis, {},
               "voxel axis of the phase encoding: its lines k and -k are taken at the time |k| / Nyquist, from the "
               "middle outwards, so the image as a whole stays in place"));
}

}  // namespace volpipe
