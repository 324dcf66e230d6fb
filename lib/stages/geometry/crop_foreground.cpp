#include <algorithm>
#include <cmath>

#include "stages/gather/gather_stage.h"
#include "stages/geometry/grid_maps.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kForgiven = 1e-3;  // voxels
constexpr double kFarthest = 1e15;  // voxels: beyond, doubles miss whole numbers

std::string in_words(const Mask& mask) { return ParameterType<Mask>::write(mask).dump(); }

class CropForeground final : public MeasuringStage {
 public:
  struct Params : PaddingParams {
    ImageName source{};
    Mask mask{Mask::Kind::nonzero};
    PerAxis<double> margin{};
    Units units = Units::mm;
    PerAxis<std::int64_t> k_divisible{{1, 1, 1}};
    bool allow_padding = false;
  };

  explicit CropForeground(Params params) : params_(std::move(params)) {}

  Request request() const override { return {params_.source.name, params_.mask}; }

  GridMap map(const std::string& image, const VolumeInfo& input, const Measurement& measured) const override {
    if (!measured.box)
      throw Error(ErrorCode::input, "the mask " + in_words(params_.mask) + " selects no voxel of '" + measured.image +
                                        "', so there is no foreground to crop to");
    IndexBox block = with_margin(*measured.box, measured.info.geometry);
    if (!same_grid(input.geometry, measured.info.geometry))
      block = covering_block(block, measured.info.geometry, input.geometry);
    Index3 size;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t n = input.geometry.size()[axis];
      std::int64_t &begin = block.begin[axis], &end = block.end[axis];
      if (end <= 0 || begin >= n)
        throw Error(ErrorCode::input, "no part of the foreground of '" + measured.image + "' lies in '" + image +
                                          "': leave that image out with \"on\", or bring them together first");
      if (!params_.allow_padding) {
        begin = std::max<std::int64_t>(begin, 0);
        end = std::min(end, n);
      }
      const std::int64_t extent = end - begin;
      size[axis] = multiple_above(extent, params_.k_divisible.value[axis]);
      begin -= (size[axis] - extent) / 2;
      if (params_.allow_padding) continue;
      if (size[axis] > n) {
        if (!measured.guessed) throw no_room(image, axis, extent, size[axis], n);
        size[axis] = n;
      }
      begin = std::clamp<std::int64_t>(begin, 0, n - size[axis]);
    }
    return window_map(input, block.begin, size, params_);
  }

 private:
  IndexBox with_margin(IndexBox block, const Geometry& geometry) const {
    const Vec3 spacing = geometry.spacing();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double margin = params_.margin.value[axis] / (params_.units == Units::mm ? spacing[axis] : 1.0);
      const auto voxels = std::int64_t(std::min(std::ceil(margin - kForgiven), kFarthest));
      block.begin[axis] -= voxels;
      block.end[axis] += voxels;
    }
    return block;
  }

  /// The voxels of `to` that a block of `from` reaches into, from outer edge to outer edge.
  static IndexBox covering_block(const IndexBox& block, const Geometry& from, const Geometry& to) {
    Box3 edges;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      edges.low[axis] = double(block.begin[axis]) - 0.5;
      edges.high[axis] = double(block.end[axis]) - 0.5;
    }
    const Box3 around = box_around(to.world_to_index() * from.index_to_world(), edges);
    IndexBox covering;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double begin = std::floor(around.low[axis] + 0.5 + kForgiven);
      const double end = std::max(std::ceil(around.high[axis] + 0.5 - kForgiven), begin + 1);
      covering.begin[axis] = std::int64_t(std::clamp(begin, -kFarthest, kFarthest));
      covering.end[axis] = std::int64_t(std::clamp(end, -kFarthest, kFarthest));
    }
    return covering;
  }

  static std::int64_t multiple_above(std::int64_t size, std::int64_t k) { return (size + k - 1) / k * k; }

  Error no_room(const std::string& image, std::size_t axis, std::int64_t foreground, std::int64_t wanted,
                std::int64_t n) const {
    return Error(ErrorCode::input, std::string("along ") + "xyz"[axis] + " the foreground has " +
                                       std::to_string(foreground) + " voxels and the next multiple of " +
                                       std::to_string(params_.k_divisible.value[axis]) + " is " +
                                       std::to_string(wanted) + ", but '" + image + "' has " + std::to_string(n) +
                                       ": set \"allow_padding\": true, or a smaller 'k_divisible'");
  }

  Params params_;
};

}  // namespace

StageDefinition stage_crop_foreground() {
  using Params = CropForeground::Params;
  Parameters<Params> parameters;
  parameters
      .add("source", &Params::source, {},
           "the image whose foreground counts; without it the first image the stage acts on")
      .add("mask", &Params::mask, {}, "which of its voxels are foreground")
      .add("margin", &Params::margin, {.min = 0, .max = 1e9, .unit = "mm or voxel"},
           "kept around the foreground, along each axis of the source, rounded up to whole voxels")
      .add("units", &Params::units, {}, "what 'margin' is given in")
      .add(
          "k_divisible", &Params::k_divisible, {.min = 1, .max = 1e9, .unit = "voxel"},
          "in every image the box grows to a multiple of this, half of it before and half after (the odd voxel after); "
          "without padding it moves inside the image, and an image that is too small for the multiple is an error")
      .add("allow_padding", &Params::allow_padding, {},
           "margins and multiples may reach beyond the image; otherwise the box ends where the image does");
  add_padding_parameters(parameters);
  return define_stage<CropForeground>({.op = "crop_foreground",
                                       .family = "geometry",
                                       .summary = "crop all images of the item to the foreground of one of them",
                                       .targets = StageTargets::all,
                                       .example = {{"op", "crop_foreground"}, {"margin", 5}}},
                                      std::move(parameters));
}

}  // namespace volpipe
