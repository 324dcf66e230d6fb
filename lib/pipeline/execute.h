// Runs the groups of a plan on the context they are given.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/context.h"
#include "pipeline/plan.h"
#include "stages/pointwise/volume_statistics.h"

namespace volpipe {

/// The volumes of an item on one device, by image name.
using Images = std::map<std::string, Volume>;

inline ImageInfos infos_of(const Images& images) {
  ImageInfos infos;
  for (const auto& [name, volume] : images) infos.emplace(name, volume.info());
  return infos;
}

inline FindImage finder(const Images& images) {
  return [&images](const std::string& name) -> const Volume& { return images.at(name); };
}

/// What stages found out about all images of an item together, by stage: found once, used for each image.
using ItemStatistics = std::map<std::size_t, std::vector<StatisticsResult>>;

struct GroupResult {
  std::int64_t saturated = 0;  ///< voxels that met the limits of an integer type
};

/// Runs one group: replaces or makes images[group.image]. Throws Error with the stage's label. `statistics` is kept
/// from group to group of an item.
GroupResult run_group(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                      ItemStatistics& statistics, Notices& notices);

/// Where the selected voxels of an image lie, over all its components; empty when none is selected.
std::optional<IndexBox> measure(DeviceContext& context, const MeasuringStage::Request& request, const Images& images);

}  // namespace volpipe
