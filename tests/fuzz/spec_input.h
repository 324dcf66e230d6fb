// One input of the spec fuzzer: any text is either refused with faults that lie in it, or becomes a pipeline that plans
// an item or says why it cannot.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "pipeline/plan.h"

namespace volpipe::fuzz {

inline void check_faults(const SpecError& error, std::string_view text) {
  require(error.code() == ErrorCode::usage && !error.faults().empty());
  require(error.lines().size() == error.faults().size());
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  for (const Fault& fault : error.faults()) require(!fault.message.empty() && fault.line >= 0 && fault.line <= lines);
}

/// An anisotropic image and, for labels, whole numbers on its grid.
inline ImageInfos example_images(const Pipeline& pipeline) {
  ImageInfos images;
  for (const InputSpec& input : pipeline.inputs) {
    VolumeInfo info{.geometry = Geometry::from_spacing({12, 10, 7}, {1, 1.5, 2.5}, {-3, 5, 8}), .kind = input.kind};
    if (input.kind == ImageKind::label) info.dtype = DataType::uint8;
    images[input.name] = info;
  }
  return images;
}

inline void check_plan(const Pipeline& pipeline) try {
  const Plan plan = make_plan(pipeline, example_images(pipeline), {.seed = 1, .item_id = "a"});
  require(plan.after_stage.size() == pipeline.stages.size() && plan.saved.size() <= pipeline.saved_maps.size());
  for (const auto& [name, info] : plan.outputs) check_info(info);
  for (const Group& group : plan.groups)
    for (const std::size_t stage : group.stages) require(stage < pipeline.stages.size());
} catch (const Error& error) {
  require(std::string_view(error.what()).size() > 0);
  require(error.code() != ErrorCode::internal || !pipeline.files.empty());
}

inline void run_spec(std::string_view text) {
  try {
    const Pipeline pipeline = parse_pipeline(std::string(text), "spec.json");
    require(!pipeline.outputs.empty() && pipeline.repeat >= 1);
    for (const StageEntry& stage : pipeline.stages) require(stage.definition && !stage.label.empty());
    check_plan(pipeline);
    const Pipeline again = parse_pipeline(pipeline.spec.dump(), "again.json");
    require(again.stages.size() == pipeline.stages.size() && again.outputs.size() == pipeline.outputs.size());
  } catch (const SpecError& error) { check_faults(error, text); }
}

}  // namespace volpipe::fuzz
