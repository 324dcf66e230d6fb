#include "pipeline/execute.h"

#include <algorithm>
#include <array>

#include "pipeline/execute_pointwise.h"
#include "stages/gather/bounding_box.h"
#include "stages/gather/copy_part.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// What a fill stands for: its number, or the least finite voxel of `volume`.
double fill_value(DeviceContext& context, const Fill& fill, bool used, const Volume& volume) {
  if (!fill.minimum || !used) return fill.value;
  const std::array<ProgramInput, 1> inputs{ProgramInput{volume.data(), volume.dtype()}};
  const Precision precision = fits_float32(volume.dtype()) ? Precision::single : Precision::double_;
  const Moments range =
      compute_range(context, {.inputs = inputs, .count = volume.info().value_count(), .precision = precision});
  return range.count ? range.min : 0.0;
}

Volume run_gather(DeviceContext& context, const Group& group, const Images& images) {
  const Volume& input = images.at(group.image);
  const GatherMap& map = group.gather;
  return apply_gather(context, input, map, fill_value(context, map.fill, has_fill(map.boundary), input),
                      fill_value(context, map.before.fill, map.before.uses_fill(), input), finder(images));
}

/// The group of a volume stage's twin.
Group twin_group(const Group& group, std::shared_ptr<const PointwiseStage> twin) {
  Group alone{GroupKind::pointwise, group.image, group.stages};
  alone.inputs = {group.inputs[0]};
  for (const std::string& name : twin->reads()) alone.inputs.push_back(name);
  alone.input = group.input;
  alone.output = group.output;
  alone.precision = twin->needs_double() ? Precision::double_ : group.precision;
  alone.pointwise = {std::move(twin)};
  return alone;
}

GroupResult run_volume_stage(DeviceContext& context, const Group& group, Images& images, Notices& notices) {
  VolumeContext around{context, finder(images), notices};
  Volume output = group.volume->run(images.at(group.inputs[0]), group.output, around);
  add_notices(around.converted, group, notices);
  images.insert_or_assign(group.image, std::move(output));
  return {around.converted.saturated};
}

void run_rearrange(DeviceContext& context, const Group& group, Images& images) {
  Images made;
  for (const auto& result : group.makes) {
    Volume volume(result.info, context.allocate(result.info.bytes()));
    for (const auto& part : result.parts) copy_part(context, part, images.at(part.image), volume);
    made.emplace(result.image, std::move(volume));
  }
  for (const std::string& name : group.takes) images.erase(name);
  images.merge(made);
}

}  // namespace

GroupResult run_group(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                      ItemStatistics& statistics, Notices& notices) {
  if (group.kind == GroupKind::pointwise) return run_pointwise(context, pipeline, group, images, statistics, notices);
  const auto twin =
      group.kind == GroupKind::volume && context.device().is_cpu() ? group.volume->twin_on_cpu() : nullptr;
  if (twin) return run_pointwise(context, pipeline, twin_group(group, twin), images, statistics, notices);
  return with_stage(pipeline.stages[group.stages.front()].label, [&]() -> GroupResult {
    if (group.kind == GroupKind::volume) return run_volume_stage(context, group, images, notices);
    if (group.kind == GroupKind::rearrange) {
      run_rearrange(context, group, images);
      return {};
    }
    Volume& input = images.at(group.image);
    if (group.kind == GroupKind::gather) input = run_gather(context, group, images);
    else
      input = apply_map(context, input, group.map, fill_value(context, group.map.fill, group.map.uses_fill(), input));
    return {};
  });
}

std::optional<IndexBox> measure(DeviceContext& context, const MeasuringStage::Request& request, const Images& images) {
  const Volume& volume = images.at(request.image);
  std::optional<IndexBox> box;
  for (std::int64_t c = 0; c < volume.info().components; ++c) {
    const std::array<ProgramInput, 1> inputs{ProgramInput{volume.component(c), volume.dtype()}};
    const SampledValues values{.inputs = inputs,
                               .count = volume.geometry().voxel_count(),
                               .precision = fits_float32(volume.dtype()) ? Precision::single : Precision::double_};
    const Selection selection = selection_of(context, request.mask, values, volume.info(), c, finder(images));
    const auto part = bounding_box(context, inputs[0], selection, volume.geometry().size());
    if (!part) continue;
    if (!box) box = part;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      box->begin[axis] = std::min(box->begin[axis], part->begin[axis]);
      box->end[axis] = std::max(box->end[axis], part->end[axis]);
    }
  }
  return box;
}

}  // namespace volpipe
