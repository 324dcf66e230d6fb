#include "stages/gather/gather_stage.h"
#include "stages/geometry/block_axis.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class Split final : public RearrangingStage {
 public:
  struct Params {
    NewImages into{};
    BlockAxis axis = BlockAxis::component;
  };

  explicit Split(Params params) : params_(std::move(params)) {}

  std::vector<std::string> makes(const std::vector<std::string>& on) const override {
    if (on.size() != 1)
      throw Error(ErrorCode::usage, "one image is split at a time, and this would be " + std::to_string(on.size()) +
                                        ": name it with \"on\"");
    return params_.into.names;
  }

  std::vector<Result> rearrange(const ImageInfos& images, const std::vector<std::string>& on) const override {
    makes(on);
    const std::string& image = on.front();
    const VolumeInfo& info = images.at(image);
    const auto parts = std::int64_t(params_.into.names.size());
    const bool by_component = params_.axis == BlockAxis::component;
    const auto axis = std::size_t(params_.axis);
    const std::int64_t size = by_component ? info.components : info.geometry.size()[axis];
    if (by_component && size != parts)
      throw Error(ErrorCode::input, "'" + image + "' has " + std::to_string(size) + " components, and 'into' names " +
                                        std::to_string(parts) + " images: name one for each");
    if (size % parts != 0)
      throw Error(ErrorCode::input, "'" + image + "' has " + std::to_string(size) + " voxels along " + "xyz"[axis] +
                                        ", which do not divide into " + std::to_string(parts) +
                                        " equal parts: crop or pad it first");
    std::vector<Result> results;
    for (std::int64_t part = 0; part < parts; ++part)
      results.push_back(by_component ? component_of(image, info, part) : block_of(image, info, part, size / parts));
    return results;
  }

 private:
  Result component_of(const std::string& image, const VolumeInfo& info, std::int64_t component) const {
    Result result{params_.into.names[std::size_t(component)], info, {{.image = image, .component = component}}};
    result.info.components = 1;  // a frame stays one, so that a stack of them is the series again
    if (info.component_axis != ComponentAxis::frames) result.info.component_axis = ComponentAxis::none;
    return result;
  }

  Result block_of(const std::string& image, const VolumeInfo& info, std::int64_t part, std::int64_t extent) const {
    const auto axis = std::size_t(params_.axis);
    Index3 size = info.geometry.size();
    size[axis] = extent;
    Affine start;
    start.offset[axis] = double(part * extent);
    Result result{
        params_.into.names[std::size_t(part)],
        info,
        {{.image = image, .count = info.components, .axis = int(axis), .begin = part * extent, .extent = extent}}};
    result.info.geometry = info.geometry.remapped(size, start);
    return result;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_split() {
  using Params = Split::Params;
  return define_stage<Split>(
      {.op = "split",
       .family = "geometry",
       .summary = "take an image apart, by its components or into blocks along an axis",
       .targets = StageTargets::images,
       .example = {{"op", "split"}, {"on", "image"}, {"into", {"first", "second"}}},
       .needs = {.components = 2}},
      Parameters<Params>()
          .add("into", &Params::into, {.required = true},
               "names of the images that are made, in order; the one that is split is gone")
          .add("axis", &Params::axis, {},
               "component: one image a component; x, y or z: blocks of the same size along that voxel axis"));
}

}  // namespace volpipe
