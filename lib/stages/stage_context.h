// What a stage may know of an item besides the image it acts on.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "spec/variables.h"
#include "stages/gather/point_map.h"
#include "volume/error.h"
#include "volume/volume.h"

namespace volpipe {

/// The files that stages name: references, transforms, fields. `path` may hold fields of the item, such as {stem}. All
/// throw Error(input) with the path.
class StageFiles {
 public:
  virtual ~StageFiles() = default;
  virtual VolumeInfo info(const std::string& path) = 0;
  virtual std::shared_ptr<const Volume> volume(
      const std::string& path) = 0;                           ///< in host memory, float32 or float64 kept
  virtual std::string bytes(const std::string& path) = 0;     ///< of a small file, at most 64 MiB
  virtual std::string resolved(const std::string& path) = 0;  ///< the item's fields filled in
};

/// What an earlier stage did to an image, for the stage that undoes it.
struct AppliedStage {
  VolumeInfo before;
  PointMap pull;  ///< world point of its output -> world point of its input; identity when it was left out
};

struct StageContext {
  const ImageInfos& images;  ///< all images of the item, as they are before this stage
  /// The first image the stage acts on. What is said relative to "the image" (its centre, its extent) is relative to
  /// this one, so that all images of the item move alike in the world.
  const VolumeInfo& frame;
  const Geometry& frame_as_read;                       ///< its grid in its file, or where a stage made it
  const std::map<std::string, AppliedStage>& applied;  ///< earlier stages on this image, by name
  StageFiles& files;
  bool double_precision = false;  ///< the spec says "precision": "double"
  std::uint64_t seed = 0;
  std::string item_id{};
  std::uint32_t repeat = 0, stage_index = 0;

  /// The item's image of that name; null when `name` is that of a file, which is absolute. Throws Error(input) when the
  /// item lacks the image.
  const VolumeInfo* find_image(const std::string& name) const {
    if (const auto found = images.find(name); found != images.end()) return &found->second;
    if (name.starts_with("/")) return nullptr;
    throw Error(ErrorCode::input, "the image '" + name + "' is missing from this item");
  }

  /// Random numbers of the stage's own (a displacement field), apart from those of its parameters.
  DrawStream draws() const { return {seed, item_id, repeat, stage_index | 0x80000000u}; }
  /// Key of a stream with one draw a voxel of `image` (noise); `number` tells the streams of one stage apart.
  std::uint64_t voxel_key(const std::string& image, std::uint32_t number = 0) const;
};

}  // namespace volpipe
