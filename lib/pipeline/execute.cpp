#include "pipeline/execute.h"

#include <algorithm>
#include <array>

#include "stages/gather/bounding_box.h"
#include "stages/gather/copy_part.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Some components of a volume that a program runs over together.
struct ComponentRange {
  const Volume& volume;
  std::int64_t first, count;

  ProgramInput input() const { return {volume.component(first), volume.dtype()}; }
  std::int64_t values() const { return count * volume.geometry().voxel_count(); }
};

/// Answers one stage's question about the values of `program` over a range of components.
class StatisticsPass {
 public:
  StatisticsPass(DeviceContext& context, const Group& group, const Images& images, const Program& program)
      : context_(context), group_(group), images_(images), program_(program) {}

  StatisticsResult answer(const StatisticsRequest& request, const ComponentRange& range) const {
    if (request.mask.kind == Mask::Kind::image && range.count > 1) return answer_by_component(request, range);
    const std::array<ProgramInput, 1> inputs{range.input()};
    SampledValues values{inputs, &program_, range.values(), {}, group_.precision};
    values.selection = selection(request.mask, values, range);
    StatisticsResult result;
    if (request.moments) result.moments = compute_moments(context_, values);
    if (!request.percentiles.empty()) result.percentiles = compute_percentiles(context_, values, request.percentiles);
    return result;
  }

  Selection selection(const Mask& mask, const SampledValues& values, const ComponentRange& range) const {
    switch (mask.kind) {
      case Mask::Kind::all:
        return {};
      case Mask::Kind::nonzero:
        return {Selection::Kind::nonzero};
      case Mask::Kind::above:
        return {Selection::Kind::above, mask.threshold};
      case Mask::Kind::foreground:
        return {Selection::Kind::above, otsu_threshold(context_, values)};
      case Mask::Kind::image:
        break;
    }
    const Volume& volume = images_.at(mask.image);
    if (volume.info().components != 1 && volume.info().components != range.volume.info().components)
      throw Error(ErrorCode::input, "the mask '" + mask.image + "' has " + std::to_string(volume.info().components) +
                                        " components; expected 1, or as many as the image");
    const std::int64_t component = volume.info().components == 1 ? 0 : range.first;
    return {Selection::Kind::mask, 0, {volume.component(component), volume.dtype()}};
  }

 private:
  /// A mask has one component; statistics over several are merged, which percentiles cannot be.
  StatisticsResult answer_by_component(const StatisticsRequest& request, const ComponentRange& range) const {
    if (!request.percentiles.empty())
      throw Error(
          ErrorCode::unsupported,
          "percentiles of several components together under a mask are not supported; say \"per\": \"component\"");
    StatisticsResult result;
    for (std::int64_t c = 0; c < range.count; ++c)
      result.moments = merge(result.moments, answer(request, {range.volume, range.first + c, 1}).moments);
    return result;
  }

  DeviceContext& context_;
  const Group& group_;
  const Images& images_;
  const Program& program_;
};

ConversionCounts run_pointwise_range(DeviceContext& context, const Pipeline& pipeline, const Group& group,
                                     const Images& images, const ComponentRange& range, void* result,
                                     Notices& notices) {
  Program program;
  VolumeInfo info = group.input;
  for (std::size_t i = 0; i < group.pointwise.size(); ++i)
    with_stage(pipeline.stages[group.stages[i]].label, [&] {
      const PointwiseStage& stage = *group.pointwise[i];
      const auto request = stage.request();
      const StatisticsResult statistics =
          request ? StatisticsPass(context, group, images, program).answer(*request, range) : StatisticsResult{};
      stage.append(program, info, statistics, notices);
      info = stage.output(info);
    });
  const std::array<ProgramInput, 1> inputs{range.input()};
  return run_program(context, program, inputs, result, group.output.dtype, range.values(), group.precision);
}

void add_notices(const ConversionCounts& counts, const Group& group, Notices& notices) {
  const std::string type(to_string(group.output.dtype));
  if (counts.saturated)
    notices.add("saturated", std::to_string(counts.saturated) + " voxels of '" + group.image +
                                 "' met the limits of an integer type (output " + type + ")");
  if (counts.nan)
    notices.add("nan_to_integer", std::to_string(counts.nan) + " NaN voxels of '" + group.image +
                                      "' became 0 as integers (output " + type + ")");
}

GroupResult run_pointwise(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                          Notices& notices) {
  Volume& input = images.at(group.image);
  Volume output(group.output, context.allocate(group.output.bytes()));
  bool per_component = false;
  for (const auto& stage : group.pointwise)
    if (const auto request = stage->request()) per_component |= request->per_component;
  const std::int64_t components = group.input.components, step = per_component ? 1 : components;
  ConversionCounts counts;
  for (std::int64_t first = 0; first < components; first += step) {
    const ConversionCounts part =
        run_pointwise_range(context, pipeline, group, images, {input, first, step}, output.component(first), notices);
    counts.saturated += part.saturated;
    counts.nan += part.nan;
  }
  add_notices(counts, group, notices);
  input = std::move(output);
  return {counts.saturated};
}

/// What a fill stands for: its number, or the least finite voxel of `volume`.
double fill_value(DeviceContext& context, const Fill& fill, bool used, const Volume& volume) {
  if (!fill.minimum || !used) return fill.value;
  const Program program;
  const std::array<ProgramInput, 1> inputs{ProgramInput{volume.data(), volume.dtype()}};
  const Precision precision = fits_float32(volume.dtype()) ? Precision::single : Precision::double_;
  const Moments moments = compute_moments(context, {inputs, &program, volume.info().value_count(), {}, precision});
  return moments.count ? moments.min : 0.0;
}

Volume run_gather(DeviceContext& context, const Group& group, const Images& images) {
  const Volume& input = images.at(group.image);
  const GatherMap& map = group.gather;
  return apply_gather(context, input, map, fill_value(context, map.fill, has_fill(map.boundary), input),
                      fill_value(context, map.before.fill, map.before.uses_fill(), input),
                      [&images](const std::string& name) -> const Volume& { return images.at(name); });
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
                      Notices& notices) {
  if (group.kind == GroupKind::pointwise) return run_pointwise(context, pipeline, group, images, notices);
  with_stage(pipeline.stages[group.stages.front()].label, [&] {
    if (group.kind == GroupKind::rearrange) return run_rearrange(context, group, images);
    Volume& input = images.at(group.image);
    if (group.kind == GroupKind::gather) input = run_gather(context, group, images);
    else
      input = apply_map(context, input, group.map, fill_value(context, group.map.fill, group.map.uses_fill(), input));
  });
  return {};
}

std::optional<IndexBox> measure(DeviceContext& context, const MeasuringStage::Request& request, const Images& images) {
  const Volume& volume = images.at(request.image);
  const Program program;
  std::optional<IndexBox> box;
  for (std::int64_t c = 0; c < volume.info().components; ++c) {
    const ComponentRange range{volume, c, 1};
    const std::array<ProgramInput, 1> inputs{range.input()};
    const SampledValues values{
        inputs, &program, range.values(), {}, fits_float32(volume.dtype()) ? Precision::single : Precision::double_};
    Group group{GroupKind::pointwise, request.image, {}};
    const Selection selection = StatisticsPass(context, group, images, program).selection(request.mask, values, range);
    const auto part = bounding_box(context, range.input(), selection, volume.geometry().size());
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
