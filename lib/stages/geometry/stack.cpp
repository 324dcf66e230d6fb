#include <algorithm>
#include <cmath>
#include <cstdio>

#include "stages/gather/gather_stage.h"
#include "stages/geometry/block_axis.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kForgiven = 1e-2;  // voxels

std::string quoted(const std::string& name) { return "'" + name + "'"; }

std::string in_mm(double mm) {
  char words[32];
  std::snprintf(words, sizeof words, "%.4g mm", mm);
  return words;
}

class Stack final : public RearrangingStage {
 public:
  struct Params {
    NewImages output{};
    BlockAxis axis = BlockAxis::component;
  };

  explicit Stack(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.output.names.size() != 1) faults.add(pointer + "/output", "'output' must be one image's name");
  }

  std::vector<std::string> makes(const std::vector<std::string>& on) const override {
    if (on.size() < 2)
      throw Error(ErrorCode::usage, "a stack takes at least two images, and there is " +
                                        (on.empty() ? "none" : quoted(on.front()) + " alone") +
                                        ": name them in their order with \"on\"");
    return params_.output.names;
  }

  std::vector<Result> rearrange(const ImageInfos& images, const std::vector<std::string>& on) const override {
    makes(on);
    for (std::size_t i = 1; i < on.size(); ++i) check_alike(on[0], images.at(on[0]), on[i], images.at(on[i]));
    return {params_.axis == BlockAxis::component ? components_of(images, on) : row_of(images, on)};
  }

 private:
  static void check_alike(const std::string& name, const VolumeInfo& first, const std::string& other,
                          const VolumeInfo& info) {
    const std::string pair = quoted(name) + " and " + quoted(other);
    if (first.kind != info.kind)
      throw Error(ErrorCode::input, pair + " cannot be stacked: one is an image, the other a label");
    if (first.dtype != info.dtype)
      throw Error(ErrorCode::input, pair + " have different pixel types, " + std::string(to_string(first.dtype)) +
                                        " and " + std::string(to_string(info.dtype)) +
                                        ": cast them to one before they are stacked");
  }

  Result components_of(const ImageInfos& images, const std::vector<std::string>& on) const {
    Result result{params_.output.names.front(), images.at(on.front()), {}};
    result.info.components = 0;
    bool frames = true;
    for (const std::string& name : on) {
      const VolumeInfo& info = images.at(name);
      if (!same_grid(info.geometry, result.info.geometry))
        throw Error(ErrorCode::input, quoted(on.front()) + " and " + quoted(name) +
                                          " lie on different grids: bring them together with resample_to first");
      result.parts.push_back({.image = name, .target_component = result.info.components, .count = info.components});
      result.info.components += info.components;
      frames = frames && info.component_axis == ComponentAxis::frames;
    }
    result.info.component_axis = frames ? ComponentAxis::frames : ComponentAxis::channels;
    return result;
  }

  /// One image after another along a voxel axis.
  Result row_of(const ImageInfos& images, const std::vector<std::string>& on) const {
    const auto axis = std::size_t(params_.axis);
    Result result{params_.output.names.front(), images.at(on.front()), {}};
    Index3 size = result.info.geometry.size();
    size[axis] = 0;
    for (std::size_t i = 0; i < on.size(); ++i) {
      const VolumeInfo& info = images.at(on[i]);
      if (i > 0) check_continues(on[i - 1], images.at(on[i - 1]), on[i], info);
      const std::int64_t extent = info.geometry.size()[axis];
      result.parts.push_back(
          {.image = on[i], .count = info.components, .axis = int(axis), .target_begin = size[axis], .extent = extent});
      size[axis] += extent;
    }
    result.info.geometry = result.info.geometry.remapped(size, {});
    return result;
  }

  /// Throws unless `next` begins where `before` ends.
  void check_continues(const std::string& before_name, const VolumeInfo& before, const std::string& next_name,
                       const VolumeInfo& next) const {
    const auto axis = std::size_t(params_.axis);
    const std::string along = std::string(" along ") + "xyz"[axis];
    const std::string does_not = quoted(next_name) + " does not continue " + quoted(before_name) + along + ": ";
    if (before.components != next.components)
      throw Error(ErrorCode::input, does_not + "it has " + std::to_string(next.components) + " components, not " +
                                        std::to_string(before.components));
    const Geometry &a = before.geometry, &b = next.geometry;
    for (std::size_t other = 0; other < 3; ++other)
      if (other != axis && a.size()[other] != b.size()[other])
        throw Error(ErrorCode::input, does_not + "it has " + std::to_string(b.size()[other]) + " voxels along " +
                                          "xyz"[other] + ", not " + std::to_string(a.size()[other]));
    const Affine to_before = a.world_to_index() * b.index_to_world();
    for (int row = 0; row < 3; ++row)
      for (std::size_t column = 0; column < 3; ++column) {
        const double off = std::abs(to_before.linear[row][column] - (row == int(column) ? 1.0 : 0.0));
        if (off * double(b.size()[column] - 1) > kForgiven)
          throw Error(
              ErrorCode::input,
              does_not + "its voxel axes run another way or have another spacing; reorient or resample it first");
      }
    Vec3 end{};
    end[axis] = double(a.size()[axis]);
    const Vec3 gap = to_before.offset - end;
    if (std::max({std::abs(gap[0]), std::abs(gap[1]), std::abs(gap[2])}) <= kForgiven) return;
    const Vec3 spacing = a.spacing();
    Vec3 aside = gap;
    aside[axis] = 0;
    const double aside_mm = norm(a.index_to_world().linear * aside), gap_mm = gap[axis] * spacing[axis];
    throw Error(ErrorCode::input, does_not + "it begins " + in_mm(std::abs(gap_mm)) +
                                      (gap_mm < 0 ? " before" : " after") + " the end of " + quoted(before_name) +
                                      (aside_mm > kForgiven * spacing[axis] ? ", " + in_mm(aside_mm) + " aside" : "") +
                                      "; \"on\" gives the order");
  }

  Params params_;
};

}  // namespace

StageDefinition stage_stack() {
  using Params = Stack::Params;
  return define_stage<Stack>(
      {.op = "stack",
       .family = "geometry",
       .summary = "put images together, as the components of one or one after another along an axis",
       .targets = StageTargets::images,
       .example = {{"op", "stack"}, {"on", {"image", "second"}}, {"output", "image"}},
       .needs = {.images = {"second"}}},
      Parameters<Params>()
          .add("output", &Params::output, {.required = true},
               "name of the image that is made; those that are stacked, in the order of \"on\", are gone")
          .add("axis", &Params::axis, {},
               "component: the images share a grid, and their components follow one another; x, y or z: each image "
               "begins where the one before ends along that voxel axis"));
}

}  // namespace volpipe
