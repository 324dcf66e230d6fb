// What will be done to one item, known from headers alone: stages in groups that each read one volume and write one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/group_program.h"
#include "pipeline/pipeline.h"
#include "stages/gather/gather_stage.h"
#include "stages/pointwise/pointwise_stage.h"
#include "stages/separable/separable.h"
#include "stages/volume_stage.h"

namespace volpipe {

enum class GroupKind : std::uint8_t { pointwise, separable, gather, volume, rearrange };

/// Consecutive stages on one image that run as one pass: pointwise stages as one program, geometric stages as one map.
struct Group {
  GroupKind kind;
  std::string image;
  std::vector<std::size_t> stages;  ///< indices into the pipeline's stages; empty: conversion to the output's type
  std::vector<std::shared_ptr<const PointwiseStage>> pointwise{};
  std::vector<std::string> inputs{};    ///< pointwise: images that the program's inputs are; volume: that are read
  std::vector<std::string> together{};  ///< pointwise: images whose statistics the first stage takes together
  std::shared_ptr<const VolumeStage> volume{};
  GridMap map{};                                  ///< separable: the composed map
  GatherMap gather{};                             ///< gather: the composed map
  std::vector<RearrangingStage::Result> makes{};  ///< rearrange: what the item has instead of `takes`
  std::vector<std::string> takes{};
  VolumeInfo input{}, output{};
  Precision precision = Precision::single;  ///< pointwise, and of a volume stage's twin
  ProgramUse use{};                         ///< pointwise
  bool measures_general = false;            ///< pointwise: statistics are taken of a program of the general machine
  std::string ended_by{};                   ///< why the next stage on this image is not in the group; empty at the end
};

struct Plan {
  std::vector<Group> groups;  ///< in the order they run
  ImageInfos inputs, outputs;
  std::vector<std::size_t> skipped;     ///< stages left out by their probability
  std::vector<ImageInfos> after_stage;  ///< for each stage of the pipeline, what the images are after it
  std::map<std::size_t, Json> drawn;    ///< random stages: the parameters as drawn
  std::vector<std::size_t> guessed;     ///< stages whose geometry depends on voxels that were not looked at
  std::vector<PointMap> saved{};        ///< maps of Pipeline::saved_maps, in their order
  Notices notices{};                    ///< oddities that stages saw
  std::size_t peak_device_bytes = 0;    ///< most bytes of volumes and scratch at one time
};

/// One item of a run, as random draws and file names know it.
struct ItemKey {
  std::uint64_t seed = 0;
  std::string item_id{};
  std::uint32_t repeat = 0;
};

/// Runs what is planned so far and says where the selected voxels of an image lie.
using Measure =
    std::function<std::optional<IndexBox>(std::span<const Group> planned, const MeasuringStage::Request& request)>;

/// Without `measure`, stages that depend on voxels are planned for the whole image. Without `files`, a stage that names
/// a file is Error(internal). Throws Error (stage set) when a stage cannot act on what it is given.
Plan make_plan(const Pipeline& pipeline, const ImageInfos& inputs, const ItemKey& key, StageFiles* files = nullptr,
               const Measure& measure = {});

}  // namespace volpipe
