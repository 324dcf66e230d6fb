#include "pipeline/slab_regions.h"

#include <algorithm>
#include <set>

#include "stages/separable/correlation.h"
#include "volume/error.h"

namespace volpipe {

namespace {

Index3 size_of_box(const IndexBox& box) {
  Index3 size;
  for (std::size_t axis = 0; axis < 3; ++axis) size[axis] = box.end[axis] - box.begin[axis];
  return size;
}

AxisRange along(const IndexBox& box, std::size_t axis) { return {box.begin[axis], box.end[axis]}; }

void set_along(IndexBox& box, std::size_t axis, const AxisRange& range) {
  box.begin[axis] = range.begin;
  box.end[axis] = range.end;
}

AxisRange joined(const AxisRange& a, const AxisRange& b) {
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

void add(Regions& regions, const std::string& name, const IndexBox& box) {
  const auto [found, added] = regions.emplace(name, box);
  if (added) return;
  for (std::size_t axis = 0; axis < 3; ++axis)
    set_along(found->second, axis, joined(along(found->second, axis), along(box, axis)));
}

bool asks_questions(const Group& group) {
  if (group.kind == GroupKind::separable) return group.map.uses_fill() && group.map.fill.minimum;
  return std::any_of(group.pointwise.begin(), group.pointwise.end(),
                     [](const auto& stage) { return !stage->requests().empty(); });
}

}  // namespace

VolumeInfo part_of(const VolumeInfo& info, const IndexBox& box) {
  VolumeInfo part = info;
  Affine shift;
  for (std::size_t axis = 0; axis < 3; ++axis) shift.offset[axis] = double(box.begin[axis]);
  part.geometry = info.geometry.remapped(size_of_box(box), shift);
  return part;
}

AxisRange slab_range(std::int64_t size, std::int64_t slab, std::int64_t slabs) {
  return {size * slab / slabs, size * (slab + 1) / slabs};
}

SlabRegions::SlabRegions(const Pipeline& pipeline, const Plan& plan) : pipeline_(pipeline), plan_(plan) {
  infos_.push_back(plan.inputs);
  if (!why_not().empty()) return;
  for (const Group& group : plan.groups) {
    infos_.push_back(infos_.back());
    infos_.back()[group.image] = group.output;
    reaches_.push_back(reach_of(group));
  }
  for (const OutputSpec& output : pipeline.outputs)
    if (const auto found = infos_.back().find(output.image); found != infos_.back().end()) written_.insert(*found);
  find_needed();
}

SlabRegions::Reach SlabRegions::reach_of(const Group& group) {
  Reach reach;
  if (group.kind == GroupKind::pointwise)
    for (const Program& program : example_programs(group)) {
      reach.asks_for_place = reach.asks_for_place || program.asks_for_place();
      reach.neighbours.insert(reach.neighbours.end(), program.neighbours().begin(), program.neighbours().end());
    }
  if (group.kind == GroupKind::separable) {
    const GridPasses passes = passes_of(group.input, group.map);
    const auto correlates = [&](int axis) {
      for (int target = 0; target < 3; ++target)
        if ((passes.permutes_first ? target : group.map.source_axis[std::size_t(target)]) == axis)
          return as_correlation(group.map.matrices[std::size_t(target)]).has_value();
      return false;
    };
    reach.correlates_planes =
        !passes.copies && passes.filters[0] && passes.filters[1] && correlates(0) && correlates(1);
  }
  return reach;
}

void SlabRegions::find_needed() {
  std::set<std::string> images;
  for (const auto& [name, info] : written_) images.insert(name);
  needed_.assign(plan_.groups.size(), false);
  for (std::size_t g = plan_.groups.size(); g-- > 0;) {
    const Group& group = plan_.groups[g];
    if (images.erase(group.image) == 0) continue;
    needed_[g] = true;
    for (const WholeQuestion& question : questions(g)) {
      images.insert(question.inputs.begin(), question.inputs.end());
      if (!question.mask.empty()) images.insert(question.mask);
    }
    images.insert(group.inputs.begin(), group.inputs.end());
    if (group.kind == GroupKind::separable) images.insert(group.image);
  }
}

std::string SlabRegions::why_not() const {
  const auto label = [this](std::size_t stage) { return "'" + pipeline_.stages[stage].label + "'"; };
  if (!plan_.guessed.empty())
    return label(plan_.guessed.front()) + " measures where an image's voxels lie before its size is known";
  for (const Group& group : plan_.groups) {
    if (group.kind == GroupKind::volume) return label(group.stages.front()) + " works on whole volumes";
    if (group.kind == GroupKind::rearrange) return label(group.stages.front()) + " rearranges whole components";
    if (group.kind == GroupKind::gather)
      return label(group.stages.back()) + " samples the volume across its slices, at points off its grid";
  }
  return "";
}

std::vector<WholeQuestion> SlabRegions::questions(std::size_t g) const {
  const Group& group = plan_.groups[g];
  if (!asks_questions(group)) return {};
  if (group.kind == GroupKind::separable) return {{{group.image}}};
  std::vector<WholeQuestion> all;
  for (const auto& stage : group.pointwise)
    for (const StatisticsRequest& request : stage->requests())
      for (WholeQuestion& question : questions(g, request)) all.push_back(std::move(question));
  return all;
}

std::vector<WholeQuestion> SlabRegions::questions(std::size_t g, const StatisticsRequest& request) const {
  const Group& group = plan_.groups[g];
  const std::string mask = request.mask.kind == Mask::Kind::image ? request.mask.image : "";
  if (request.over != StatisticsRequest::Over::item) return {{group.inputs, mask}};
  std::vector<WholeQuestion> each;
  for (const std::string& image : group.together) each.push_back({{image}, mask});
  return each;
}

std::int64_t SlabRegions::most_slabs() const {
  std::int64_t most = 1;
  for (const auto& [name, info] : written_) most = std::max(most, info.geometry.size()[2]);
  return most;
}

std::int64_t SlabRegions::most_slabs(std::size_t group, const WholeQuestion& question) const {
  return before(group).at(question.inputs[0]).geometry.size()[2];
}

Regions SlabRegions::wanted(std::int64_t slab, std::int64_t slabs) const {
  Regions regions;
  for (const auto& [name, info] : written_) {
    IndexBox box{{}, info.geometry.size()};
    set_along(box, 2, slab_range(box.end[2], slab, slabs));
    if (box.begin[2] < box.end[2]) regions.emplace(name, box);
  }
  return regions;
}

Regions SlabRegions::wanted(std::size_t g, const WholeQuestion& question, std::int64_t slab, std::int64_t slabs) const {
  IndexBox box{{}, before(g).at(question.inputs[0]).geometry.size()};
  set_along(box, 2, slab_range(box.end[2], slab, slabs));
  if (box.begin[2] == box.end[2]) return {};
  Regions regions = pointwise_inputs(g, question.inputs, box);
  if (!question.mask.empty()) add(regions, question.mask, box);
  return regions;
}

std::vector<Regions> SlabRegions::back_from(std::size_t end, Regions wanted) const {
  std::vector<Regions> parts(end + 1);
  parts[end] = std::move(wanted);
  for (std::size_t g = end; g-- > 0;) {
    parts[g] = parts[g + 1];
    const auto found = parts[g + 1].find(plan_.groups[g].image);
    if (found == parts[g + 1].end()) continue;
    found->second = extended(g, found->second);
    parts[g].erase(found->first);
    for (const auto& [name, box] : inputs_for(g, found->second)) add(parts[g], name, box);
  }
  return parts;
}

/// Whether x and y of a pointwise group stay whole, because voxels know their places or several images lie side by
/// side.
bool SlabRegions::keeps_planes(std::size_t g) const {
  return reaches_[g].asks_for_place || plan_.groups[g].inputs.size() > 1;
}

IndexBox SlabRegions::extended(std::size_t g, IndexBox box) const {
  const Group& group = plan_.groups[g];
  const Index3& size = group.output.geometry.size();
  if (group.kind == GroupKind::pointwise) {
    for (std::size_t axis = 0; keeps_planes(g) && axis < 2; ++axis) set_along(box, axis, {0, size[axis]});
    return box;
  }
  if (!reaches_[g].correlates_planes) return box;
  // CUDA repeats voxels beyond the ends of an axis one by one there; a part of the axis would add them up first.
  const bool permutes_first = passes_of(group.input, group.map).permutes_first;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if ((permutes_first ? int(axis) : group.map.source_axis[axis]) < 2) set_along(box, axis, {0, size[axis]});
  return box;
}

Regions SlabRegions::pointwise_inputs(std::size_t g, const std::vector<std::string>& names, const IndexBox& box) const {
  Regions regions;
  for (const std::string& name : names) add(regions, name, box);
  const std::int64_t size = before(g).at(names[0]).geometry.size()[2];
  for (const Neighbour& neighbour : reaches_[g].neighbours) {
    if (neighbour.input >= names.size()) continue;
    IndexBox with = box;
    for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z)
      if (const std::int64_t there = fold_index(z + neighbour.offset[2], size, neighbour.boundary); there >= 0)
        set_along(with, 2, joined(along(with, 2), {there, there + 1}));
    add(regions, names[neighbour.input], with);
  }
  return regions;
}

Regions SlabRegions::inputs_for(std::size_t g, const IndexBox& box) const {
  const Group& group = plan_.groups[g];
  if (group.kind == GroupKind::pointwise) return pointwise_inputs(g, group.inputs, box);
  IndexBox input;
  for (std::size_t axis = 0; axis < 3; ++axis)
    set_along(input, std::size_t(group.map.source_axis[axis]), columns_of(group.map.matrices[axis], along(box, axis)));
  return {{group.image, input}};
}

IndexBox SlabRegions::made(std::size_t g, const Regions& held, const IndexBox& needed) const {
  const Group& group = plan_.groups[g];
  return group.kind == GroupKind::pointwise && !keeps_planes(g) ? held.at(group.inputs[0]) : needed;
}

void SlabRegions::check_reach(std::size_t g, const Program& program) const {
  const Reach& reach = reaches_[g];
  const bool known =
      std::all_of(program.neighbours().begin(), program.neighbours().end(), [&](const Neighbour& neighbour) {
        return std::any_of(reach.neighbours.begin(), reach.neighbours.end(), [&](const Neighbour& other) {
          return other.input == neighbour.input && other.offset[2] == neighbour.offset[2];
        });
      });
  if (!known || (program.asks_for_place() && !reach.asks_for_place))
    throw Error(ErrorCode::internal, "a program reads voxels that its slabs may not have");
}

Group SlabRegions::part(std::size_t g, const IndexBox& input, const IndexBox& output) const {
  const Group& whole = plan_.groups[g];
  Group group{GroupKind::separable, whole.image, whole.stages};
  group.input = part_of(whole.input, input);
  group.output = part_of(whole.output, output);
  group.map.output = group.output;
  group.map.source_axis = whole.map.source_axis;
  group.map.fill = whole.map.fill;
  group.map.computes = whole.map.computes;
  group.map.passes = passes_of(whole.input, whole.map);
  for (std::size_t axis = 0; axis < 3; ++axis)
    group.map.matrices[axis] =
        part_of(whole.map.matrices[axis], along(output, axis), along(input, std::size_t(whole.map.source_axis[axis])));
  return group;
}

std::size_t SlabRegions::scratch_of(std::size_t g, const Regions& held, const IndexBox& output) const {
  const Group& group = plan_.groups[g];
  if (group.kind != GroupKind::separable) return 0;
  const Group piece = part(g, held.at(group.image), output);
  return scratch_bytes(piece.input, piece.map);
}

std::size_t SlabRegions::peak_bytes(const std::vector<Regions>& parts, std::size_t scratch_at_end) const {
  Regions held = parts[0];
  const auto bytes_held = [&](std::size_t g) {
    std::size_t total = 0;
    for (const auto& [name, box] : held) total += part_of(before(g).at(name), box).bytes();
    return total;
  };
  const auto drop_unneeded = [&](std::size_t g) {
    std::erase_if(held, [&](const auto& image) { return !parts[g].contains(image.first); });
  };
  std::size_t peak = bytes_held(0);
  for (std::size_t g = 0; g + 1 < parts.size(); ++g) {
    drop_unneeded(g);
    const auto needed = parts[g + 1].find(plan_.groups[g].image);
    if (needed == parts[g + 1].end()) continue;
    const IndexBox box = made(g, held, needed->second);
    peak = std::max(peak, bytes_held(g) + part_of(plan_.groups[g].output, box).bytes() + scratch_of(g, held, box));
    held[plan_.groups[g].image] = box;
  }
  drop_unneeded(parts.size() - 1);
  return std::max(peak, bytes_held(parts.size() - 1) + scratch_at_end);
}

std::size_t SlabRegions::question_bytes(std::size_t g, const WholeQuestion& question, std::int64_t slab,
                                        std::int64_t slabs) const {
  Regions asked = wanted(g, question, slab, slabs);
  if (asked.empty()) return 0;
  const Index3& size = before(g).at(question.inputs[0]).geometry.size();
  const std::int64_t values = size[0] * size[1] * slab_range(size[2], slab, slabs).length();
  const Group& group = plan_.groups[g];
  const std::size_t scratch = statistics_scratch_bytes(values, group.precision, false, group.measures_general);
  return peak_bytes(back_from(g, std::move(asked)), scratch);
}

}  // namespace volpipe
