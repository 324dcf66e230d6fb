// What a stage is: an immutable description of arithmetic, free of any device. The planner groups stages and runs each
// group on the context it is given.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spec/parameters.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe {

/// Which images of an item a stage acts on unless "on" says otherwise.
enum class StageTargets : std::uint8_t { all, images, labels };

struct StageContext;

/// One of the kinds that the planner knows: PointwiseStage, SeparableStage, GatherStage, VolumeStage, MeasuringStage,
/// RearrangingStage. What comes out for what goes in is known without voxels (but for MeasuringStage); asking throws
/// Error(input | usage) when the stage cannot act on it.
class Stage {
 public:
  virtual ~Stage() = default;
};

/// A stage that gives each voxel of the grid a new value: PointwiseStage or VolumeStage.
class VoxelStage : public Stage {
 public:
  /// The stage for one image of one item, where it needs files or random draws, or must look at the grid; null: as it
  /// is.
  virtual std::shared_ptr<const VoxelStage> for_image(const std::string& /*image*/, const VolumeInfo& /*input*/,
                                                      const StageContext& /*context*/) const {
    return nullptr;
  }
  /// Other images of the item that it reads, on the same grid, with one component or as many.
  virtual std::vector<std::string> reads() const { return {}; }
  /// A new image of the item that holds the result, instead of the one that the stage acts on; empty: none.
  virtual std::string makes() const { return {}; }
  /// Default: the same grid in float32.
  virtual VolumeInfo output(const VolumeInfo& input) const {
    VolumeInfo result = input;
    result.dtype = DataType::float32;
    return result;
  }
};

/// The new image that a stage makes of those it acts on; empty: none.
inline std::string made_by(const Stage& stage) {
  const auto* voxel = dynamic_cast<const VoxelStage*>(&stage);
  return voxel ? voxel->makes() : std::string();
}

struct StageDefinition {
  std::string op;
  std::string family;   ///< "geometry", "intensity", "filters", "custom"
  std::string summary;  ///< one line of help
  StageTargets targets = StageTargets::images;
  bool runs_given_code = false;  ///< code of the spec's own, which `volpipe run` must be allowed to
  Json example;  ///< a spec entry, {"op": ..., ...}: it runs on any 3-D image, unless `needs` says what else there must
                 ///< be
  struct Needs {
    Json stages = Json::array();        ///< that come before the example
    std::vector<std::string> images{};  ///< of the item, besides "image", on its grid
    std::int64_t components = 1;        ///< of those, or of "image" when there are none
  };
  Needs needs{};
  std::vector<ParameterInfo> parameters{};
  /// Builds the stage from its spec entry; faults are placed at pointer/<parameter>. Null when there were faults.
  std::function<std::shared_ptr<const Stage>(const Json& entry, const std::string& pointer, Faults& faults)> make{};
};

/// Completes a definition from a stage class S with `using Params`, `S(Params)`, and its parameters. S may have
/// `static void check(const Params&, const std::string& pointer, Faults&)` for rules between parameters.
template <class S>
StageDefinition define_stage(StageDefinition definition, Parameters<typename S::Params> parameters) {
  definition.parameters = parameters.infos();
  definition.make = [parameters = std::move(parameters)](const Json& entry, const std::string& pointer,
                                                         Faults& faults) -> std::shared_ptr<const Stage> {
    const std::size_t before = faults.list().size();
    auto values = parameters.read(entry, pointer, faults);
    if constexpr (requires { S::check(values, pointer, faults); })
      if (faults.list().size() == before) S::check(values, pointer, faults);
    if (faults.list().size() != before) return nullptr;
    return std::make_shared<const S>(std::move(values));
  };
  return definition;
}

}  // namespace volpipe
