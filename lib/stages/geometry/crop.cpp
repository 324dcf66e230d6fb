#include <algorithm>
#include <cmath>

#include "stages/geometry/grid_maps.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// A block of voxels, which may reach outside the grid.
struct Block {
  Index3 start, size;
};

std::string in_words(const Index3& index) {
  return "[" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + "]";
}

class Crop final : public SeparableStage {
 public:
  struct Params {
    std::optional<PerAxis<std::int64_t>> start{};
    std::optional<Vec3> center{};
    std::optional<PerAxis<std::int64_t>> size{};
    std::optional<std::array<Vec3, 2>> box{};
    bool clip = false;
  };

  explicit Crop(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const int ways = int(params.start.has_value()) + int(params.center.has_value()) + int(params.box.has_value());
    if (ways != 1 || params.size.has_value() == params.box.has_value())
      faults.add(pointer, "give 'start' and 'size', or 'center' and 'size', or 'box'");
  }

  GridMap map(const VolumeInfo& input) const override {
    Block block = params_.box ? block_of_box(input.geometry) : block_of_size();
    const Index3& n = input.geometry.size();
    bool outside = false, empty = false;
    Block kept = block;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t begin = std::max<std::int64_t>(block.start[axis], 0);
      const std::int64_t end = std::min(n[axis], block.start[axis] + block.size[axis]);
      outside = outside || begin != block.start[axis] || end != block.start[axis] + block.size[axis];
      empty = empty || end <= begin;
      kept.start[axis] = begin;
      kept.size[axis] = end - begin;
    }
    if (empty || (outside && !params_.clip))
      throw Error(ErrorCode::usage,
                  "the crop starts at voxel " + in_words(block.start) + " with " + size_in_words(block.size) +
                      ", the image has " + size_in_words(n) +
                      (empty ? ": nothing is left; move the crop" : ": keep inside it, or set \"clip\": true"));
    return window_map(input, kept.start, kept.size, {});
  }

 private:
  Block block_of_size() const {
    Block block{{}, params_.size->value};
    for (std::size_t axis = 0; axis < 3; ++axis)
      block.start[axis] = params_.start
                              ? params_.start->value[axis]
                              : std::int64_t(std::floor((*params_.center)[axis] + 0.5)) - block.size[axis] / 2;
    return block;
  }

  /// Voxels whose centres lie between the two corners, in voxel space; a thousandth of a voxel is forgiven.
  Block block_of_box(const Geometry& geometry) const {
    const Box3 around = box_around(geometry.world_to_index(), {params_.box->front(), params_.box->back()});
    Block block;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double begin = std::clamp(std::ceil(around.low[axis] - 1e-3), -1e15, 1e15);
      const double end = std::clamp(std::floor(around.high[axis] + 1e-3), -1e15, 1e15);
      block.start[axis] = std::int64_t(begin);
      block.size[axis] = std::int64_t(end - begin) + 1;
    }
    return block;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_crop() {
  return define_stage<Crop>(
      {.op = "crop",
       .family = "geometry",
       .summary = "keep a block of voxels",
       .targets = StageTargets::all,
       .example = {{"op", "crop"}, {"start", {0, 0, 0}}, {"size", {8, 8, 8}}, {"clip", true}}},
      Parameters<Crop::Params>()
          .add("start", &Crop::Params::start, {.min = -1e9, .max = 1e9, .unit = "voxel"},
               "first voxel kept along each axis, with 'size'")
          .add("center", &Crop::Params::center, {.min = -1e9, .max = 1e9, .unit = "voxel"},
               "voxel that becomes number size / 2, with 'size'")
          .add("size", &Crop::Params::size, {.min = 1, .max = 1e9, .unit = "voxel"}, "voxels kept along each axis")
          .add("box", &Crop::Params::box, {.min = -1e9, .max = 1e9, .unit = "mm"},
               "two opposite corners in RAS world millimetres: voxels whose centres lie inside; on an oblique grid the "
               "block around the box")
          .add("clip", &Crop::Params::clip, {}, "keep what lies inside the image instead of failing"));
}

}  // namespace volpipe
