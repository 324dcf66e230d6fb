// Geometric stages that need more than the axes of one image: rotations, fields, grids of other images.
#pragma once

#include <optional>
#include <variant>

#include "stages/gather/gather.h"
#include "stages/separable/separable.h"
#include "stages/stage.h"
#include "stages/stage_context.h"

namespace volpipe {

/// A geometric map in the cheapest form that is exact, and what it does in the world.
struct SpatialMap {
  std::variant<GridMap, GatherMap> form;
  PointMap pull{};    ///< world point of the output -> world point of the input; the identity when nothing moves
  Notices notices{};  ///< what a user should know about it

  const VolumeInfo& output() const {
    return std::visit([](const auto& map) -> const VolumeInfo& { return map.output; }, form);
  }
};

class GatherStage : public Stage {
 public:
  virtual SpatialMap map(const VolumeInfo& input, const StageContext& context) const = 0;
};

/// A block of voxels [begin, end).
struct IndexBox {
  Index3 begin{}, end{};
};

/// A stage whose geometry depends on voxels: on where an image's selected voxels lie.
class MeasuringStage : public Stage {
 public:
  struct Request {
    std::string image;  ///< empty: the first image the stage acts on
    Mask mask;
  };
  struct Measurement {
    std::string image;  ///< the one that was asked for
    VolumeInfo info;
    std::optional<IndexBox> box;  ///< its smallest block that holds all selected voxels; empty when there are none
    bool guessed = false;         ///< no voxel was looked at yet and the box is the whole image: what a smaller box
                                  ///< would mend is no fault
  };
  virtual Request request() const = 0;
  virtual GridMap map(const std::string& image, const VolumeInfo& input, const Measurement& measured) const = 0;
};

/// A stage that moves whole components or blocks between images of the item: it takes some away and makes others.
class RearrangingStage : public Stage {
 public:
  /// A block of a source image to a place in the result: `count` components and `extent` voxels of axis `axis` (3:
  /// none, the whole grid).
  struct Part {
    std::string image;
    std::int64_t component = 0, target_component = 0, count = 1;
    int axis = 3;
    std::int64_t begin = 0, target_begin = 0, extent = 0;
  };
  struct Result {
    std::string image;
    VolumeInfo info;
    std::vector<Part> parts;
  };
  /// Names of the images it makes out of the images `on`; those of `on` that are not among them are gone.
  virtual std::vector<std::string> makes(const std::vector<std::string>& on) const = 0;
  virtual std::vector<Result> rearrange(const ImageInfos& images, const std::vector<std::string>& on) const = 0;
};

}  // namespace volpipe
