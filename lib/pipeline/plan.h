// What will be done to one item, known from headers alone: stages in groups that each read one volume and write one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pipeline/pipeline.h"
#include "stages/pointwise/pointwise_stage.h"
#include "stages/separable/separable.h"

namespace volpipe {

enum class GroupKind : std::uint8_t { pointwise, separable };

/// Consecutive stages on one image that run as one pass: pointwise stages as one program, stages on the grid as one
/// map.
struct Group {
  GroupKind kind;
  std::string image;
  std::vector<std::size_t> stages;  ///< indices into the pipeline's stages; empty: conversion to the output's type
  std::vector<std::shared_ptr<const PointwiseStage>> pointwise;
  GridMap map;  ///< separable: the composed map
  VolumeInfo input, output;
  Precision precision = Precision::single;
  std::size_t instructions = 0;     ///< pointwise: length of the program
  std::string ended_by;  ///< why the next stage on this image is not in the group; empty at the end
};

/// The volumes of an item at one point of the plan, by image name.
using ImageInfos = std::map<std::string, VolumeInfo>;

struct Plan {
  std::vector<Group> groups;  ///< in the order they run
  ImageInfos inputs, outputs;
  std::vector<std::size_t> skipped;     ///< stages left out by their probability
  std::vector<ImageInfos> after_stage;  ///< for each stage of the pipeline, what the images are after it
  std::map<std::size_t, Json> drawn;    ///< random stages: the parameters as drawn
  std::size_t peak_device_bytes = 0;    ///< most bytes of volumes and scratch at one time
};

/// Key of the random draws of one item.
struct DrawKey {
  std::uint64_t seed = 0;
  std::string item_id;
  std::uint32_t repeat = 0;
};

/// Throws Error (stage set) when a stage cannot act on what it is given.
Plan make_plan(const Pipeline& pipeline, const ImageInfos& inputs, const DrawKey& key);

}  // namespace volpipe
