#include "pipeline/slabs.h"

#include <algorithm>
#include <utility>

#include "pipeline/execute_pointwise.h"
#include "pipeline/report.h"
#include "pipeline/slab_regions.h"
#include "stages/pointwise/pieced_statistics.h"
#include "volume/error.h"

namespace volpipe {

namespace {

struct SlabCount {
  std::int64_t slabs;
  std::size_t bytes;  ///< the most that one of them needs
};

/// bytes_of(slab, slabs) for the slab that needs most; stops where that is more than `limit`.
template <class BytesOf>
std::size_t most_bytes(std::int64_t slabs, std::size_t limit, const BytesOf& bytes_of) {
  std::size_t most = 0;
  for (std::int64_t slab = 0; slab < slabs && most <= limit; ++slab) most = std::max(most, bytes_of(slab, slabs));
  return most;
}

/// The fewest slabs within `limit`, or `most_slabs` of them where none is.
template <class BytesOf>
SlabCount fewest_slabs(std::int64_t most_slabs, std::size_t limit, const BytesOf& bytes_of) {
  std::int64_t too_few = 0;
  SlabCount fitting{1, most_bytes(1, limit, bytes_of)};
  while (fitting.bytes > limit) {
    if (fitting.slabs == most_slabs) return {most_slabs, most_bytes(most_slabs, ~std::size_t(0), bytes_of)};
    too_few = fitting.slabs;
    fitting.slabs = std::min(2 * fitting.slabs, most_slabs);
    fitting.bytes = most_bytes(fitting.slabs, limit, bytes_of);
  }
  while (fitting.slabs - too_few > 1) {
    const std::int64_t slabs = too_few + (fitting.slabs - too_few) / 2;
    const std::size_t bytes = most_bytes(slabs, limit, bytes_of);
    if (bytes <= limit) fitting = {slabs, bytes};
    else too_few = slabs;
  }
  return fitting;
}

/// Blocks of images on the device.
struct HeldImages {
  Images volumes{};
  Regions boxes{};

  void keep_only(const Regions& needed) {
    const auto unneeded = [&](const auto& image) { return !needed.contains(image.first); };
    std::erase_if(volumes, unneeded);
    std::erase_if(boxes, unneeded);
  }
  void put(const std::string& name, Volume volume, const IndexBox& box) {
    volumes.insert_or_assign(name, std::move(volume));
    boxes[name] = box;
  }

  bool has_components(const std::string& name) const { return volumes.at(name).info().components > 1; }

  /// Component `c` of an image, or its only one, from slice z of the whole image on.
  ProgramInput from_slice(const std::string& name, std::int64_t c, std::int64_t z) const {
    const Volume& volume = volumes.at(name);
    const Index3& size = volume.geometry().size();
    const std::int64_t before = (z - boxes.at(name).begin[2]) * size[0] * size[1];
    const void* component = volume.component(has_components(name) ? c : 0);
    return {static_cast<const std::byte*>(component) + before * std::int64_t(size_of(volume.dtype())), volume.dtype()};
  }
  std::vector<ProgramInput> from_slice(const std::vector<std::string>& names, std::int64_t c, std::int64_t z) const {
    std::vector<ProgramInput> inputs;
    for (const std::string& name : names) inputs.push_back(from_slice(name, c, z));
    return inputs;
  }
};

/// Where values of component `c` from slice z on lie in their whole volume.
ProgramGrid grid_from(const VolumeInfo& whole, std::int64_t c, std::int64_t z) {
  const Index3& size = whole.geometry.size();
  return {size, c * whole.geometry.voxel_count(), z * size[0] * size[1]};
}

/// Copies a block of a whole volume on the host to a volume of its size on the device.
void upload(DeviceContext& context, const Volume& whole, const IndexBox& box, Volume& part) {
  const Index3 &n = whole.geometry().size(), &m = part.geometry().size();
  const std::size_t element = size_of(whole.dtype());
  const bool whole_rows = m[0] == n[0], whole_planes = whole_rows && m[1] == n[1];
  const std::int64_t components = whole.info().components;
  const auto copy = [&](std::int64_t c, std::int64_t z, std::int64_t run, std::int64_t pitch, std::int64_t target_pitch,
                        std::int64_t rows) {
    const std::int64_t from = ((box.begin[2] + z) * n[1] + box.begin[1]) * n[0] + box.begin[0];
    context.upload({static_cast<const std::byte*>(whole.component(c)) + std::size_t(from) * element,
                    static_cast<std::byte*>(part.component(c)) + std::size_t(z * m[0] * m[1]) * element,
                    std::size_t(run) * element, std::size_t(pitch) * element, std::size_t(target_pitch) * element,
                    std::size_t(rows)});
  };
  const std::int64_t part_plane = m[0] * m[1], plane = n[0] * n[1];
  if (whole_planes) return copy(0, 0, part_plane * m[2], plane * n[2], part_plane * m[2], components);
  for (std::int64_t c = 0; c < components; ++c) {
    if (whole_rows) {
      copy(c, 0, part_plane, plane, part_plane, m[2]);
      continue;
    }
    for (std::int64_t z = 0; z < m[2]; ++z) copy(c, z, m[0], n[0], m[0], m[1]);
  }
}

class SlabRun {
 public:
  SlabRun(DeviceContext& context, const Pipeline& pipeline, const SlabRegions& regions, const SlabPlan& plan,
          const Images& on_host, Notices& notices)
      : context_(context),
        pipeline_(pipeline),
        regions_(regions),
        plan_(plan),
        on_host_(on_host),
        notices_(notices),
        groups_(regions.groups().size()) {}

  SlabResults run() {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (regions_.is_needed(g)) answer_questions(g);
    SlabResults results;
    for (const auto& [name, info] : regions_.written())
      results.images.emplace(name, Volume(info, context_.allocate_host(info.bytes())));
    for (std::int64_t slab = 0; slab < plan_.slabs; ++slab) run_slab(slab, results.images);
    context_.synchronize();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      add_notices(groups_[g].counts, regions_.groups()[g], notices_);
      results.saturated += groups_[g].counts.saturated;
      results.group_ms.push_back(groups_[g].ms);
    }
    for (const Lap& lap : laps_) results.group_ms[lap.group] += context_.elapsed_ms(*lap.from, *lap.to);
    return results;
  }

 private:
  /// What is known and counted of a group.
  struct GroupState {
    std::vector<Program> programs{};  ///< of a pointwise group: for each component, or one for all
    double fill = 0;                  ///< of a separable group's "min" fill
    std::optional<IndexBox> counted{};
    ConversionCounts counts{};
    double ms = 0;
  };
  struct Lap {
    std::size_t group;
    std::unique_ptr<TimePoint> from, to;
  };

  void answer_questions(std::size_t g) {
    const Group& group = regions_.groups()[g];
    if (group.kind == GroupKind::separable) {
      for (const WholeQuestion& question : regions_.questions(g)) groups_[g].fill = least_voxel(g, question);
      return;
    }
    const std::int64_t components = group.input.components, step = each_by_itself(group) ? 1 : components;
    for (std::int64_t first = 0; first < components; first += step) {
      const auto answers = [&](const StatisticsRequest& request, const Program& measured) {
        return answer(g, request, measured, first, step);
      };
      groups_[g].programs.push_back(complete_program(pipeline_, group, statistics_, notices_, answers));
      regions_.check_reach(g, groups_[g].programs.back());
    }
  }

  double least_voxel(std::size_t g, const WholeQuestion& question) {
    const Group& group = regions_.groups()[g];
    const Precision precision = fits_float32(group.input.dtype) ? Precision::single : Precision::double_;
    const auto pieces = [&](const auto& visit) {
      visit_pieces(g, question, kIdentity, 0, group.input.components, precision, visit);
    };
    const Moments range = measure_pieces(context_, {.range = true}, pieces).moments;
    return range.count ? range.min : 0.0;
  }

  StatisticsResult answer(std::size_t g, const StatisticsRequest& request, const Program& measured, std::int64_t first,
                          std::int64_t count) {
    regions_.check_reach(g, measured);
    const Group& group = regions_.groups()[g];
    const ImageInfos& images = regions_.before(g);
    const bool together = request.over == StatisticsRequest::Over::item;
    const auto has_components = [&](const std::string& image) { return images.at(image).components > 1; };
    if (!together && count > 1 && !differs_by_component(group, request.mask, measured, has_components)) count = 1;
    return measure_pieces(context_, request, [&](const auto& visit) {
      for (const WholeQuestion& question : regions_.questions(g, request)) {
        const VolumeInfo& image = images.at(question.inputs[0]);
        if (!question.mask.empty()) check_mask_components(question.mask, images.at(question.mask), image);
        visit_pieces(g, question, measured, first, together ? image.components : count, group.precision, visit);
      }
    });
  }

  /// visit(piece) for components [first, first + count) of every slab of what is asked about.
  template <class Visit>
  void visit_pieces(std::size_t g, const WholeQuestion& question, const Program& program, std::int64_t first,
                    std::int64_t count, Precision precision, const Visit& visit) {
    const VolumeInfo& whole = regions_.before(g).at(question.inputs[0]);
    const Index3& size = whole.geometry.size();
    for (std::int64_t slab = 0; slab < plan_.question_slabs[g]; ++slab) {
      const AxisRange slices = slab_range(size[2], slab, plan_.question_slabs[g]);
      if (slices.length() == 0) continue;
      const HeldImages held =
          run_groups(regions_.back_from(g, regions_.wanted(g, question, slab, plan_.question_slabs[g])));
      for (std::int64_t c = first; c < first + count; ++c) {
        const auto inputs = held.from_slice(question.inputs, c, slices.begin);
        SampledValues piece{inputs, &program,  size[0] * size[1] * slices.length(),
                            {},     precision, grid_from(whole, c, slices.begin)};
        if (!question.mask.empty())
          piece.selection = {Selection::Kind::mask, 0, held.from_slice(question.mask, c, slices.begin)};
        visit(piece);
      }
    }
  }

  /// Uploads the first of `parts` and runs the groups up to the last.
  HeldImages run_groups(const std::vector<Regions>& parts, bool counting = false) {
    HeldImages held;
    for (const auto& [name, box] : parts[0]) {
      const Volume& whole = on_host_.at(name);
      const VolumeInfo info = part_of(whole.info(), box);
      Volume part(info, context_.allocate(info.bytes()));
      upload(context_, whole, box, part);
      held.put(name, std::move(part), box);
    }
    for (std::size_t g = 0; g + 1 < parts.size(); ++g) {
      held.keep_only(parts[g]);
      const auto needed = parts[g + 1].find(regions_.groups()[g].image);
      if (needed == parts[g + 1].end()) continue;
      auto start = context_.record_time();
      const IndexBox box = regions_.made(g, held.boxes, needed->second);
      if (regions_.groups()[g].kind == GroupKind::separable) run_separable(g, box, held);
      else run_pointwise(g, box, counting, held);
      laps_.push_back({g, std::move(start), context_.record_time()});
    }
    held.keep_only(parts.back());
    return held;
  }

  void run_separable(std::size_t g, const IndexBox& box, HeldImages& held) {
    const std::string& image = regions_.groups()[g].image;
    Group group = regions_.part(g, held.boxes.at(image), box);
    if (group.map.fill.minimum) group.map.fill = {.value = groups_[g].fill};
    run_group(context_, pipeline_, group, held.volumes, statistics_, notices_);
    held.boxes[image] = box;
  }

  void run_pointwise(std::size_t g, const IndexBox& box, bool counting, HeldImages& held) {
    const Group& group = regions_.groups()[g];
    const VolumeInfo info = part_of(group.output, box);
    Volume output(info, context_.allocate(info.bytes()));
    const AxisRange slices{box.begin[2], box.end[2]}, known = counting ? known_slices(g, box) : AxisRange{};
    const std::int64_t cuts[] = {slices.begin, std::clamp(known.begin, slices.begin, slices.end),
                                 std::clamp(known.end, slices.begin, slices.end), slices.end};
    for (int piece = 0; piece < 3; ++piece) {
      if (cuts[piece] >= cuts[piece + 1]) continue;
      const ConversionCounts counts = run_slices(g, {cuts[piece], cuts[piece + 1]}, box, held, output);
      if (!counting || (piece == 1 && known.length() > 0)) continue;
      groups_[g].counts.saturated += counts.saturated;
      groups_[g].counts.nan += counts.nan;
    }
    held.put(group.image, std::move(output), box);
  }

  ConversionCounts run_slices(std::size_t g, const AxisRange& slices, const IndexBox& box, const HeldImages& held,
                              Volume& output) {
    const Group& group = regions_.groups()[g];
    const GroupState& state = groups_[g];
    const std::int64_t plane = output.geometry().size()[0] * output.geometry().size()[1];
    const std::int64_t skipped = (slices.begin - box.begin[2]) * plane;
    ConversionCounts total;
    for (std::int64_t c = 0; c < output.info().components; ++c) {
      auto* target = static_cast<std::byte*>(output.component(c)) + std::size_t(skipped) * size_of(output.dtype());
      const Program& program = state.programs[state.programs.size() > 1 ? std::size_t(c) : 0];
      const ConversionCounts counts =
          run_program(context_, program, held.from_slice(group.inputs, c, slices.begin), target, output.dtype(),
                      slices.length() * plane, group.precision, grid_from(group.input, c, slices.begin));
      total.saturated += counts.saturated;
      total.nan += counts.nan;
    }
    return total;
  }

  /// Slices of a group's result that earlier slabs counted; from now on with those of `box`.
  AxisRange known_slices(std::size_t g, const IndexBox& box) {
    std::optional<IndexBox>& counted = groups_[g].counted;
    const auto same_along = [&](std::size_t axis) {
      return counted->begin[axis] == box.begin[axis] && counted->end[axis] == box.end[axis];
    };
    if (!counted || !same_along(0) || !same_along(1)) {
      counted = box;
      return {};
    }
    const AxisRange known{counted->begin[2], counted->end[2]};
    counted->begin[2] = std::min(counted->begin[2], box.begin[2]);
    counted->end[2] = std::max(counted->end[2], box.end[2]);
    return known;
  }

  void run_slab(std::int64_t slab, Images& results) {
    const Regions wanted = regions_.wanted(slab, plan_.slabs);
    const HeldImages held = run_groups(regions_.back_from(groups_.size(), wanted), true);
    for (const auto& [name, box] : wanted) {
      Volume& whole = results.at(name);
      const Volume& part = held.volumes.at(name);
      const std::size_t element = size_of(whole.dtype());
      const std::int64_t plane = whole.geometry().size()[0] * whole.geometry().size()[1];
      context_.download({held.from_slice(name, 0, box.begin[2]).data,
                         static_cast<std::byte*>(whole.data()) + std::size_t(box.begin[2] * plane) * element,
                         std::size_t((box.end[2] - box.begin[2]) * plane) * element,
                         std::size_t(part.geometry().voxel_count()) * element,
                         std::size_t(whole.geometry().voxel_count()) * element, std::size_t(whole.info().components)});
    }
  }

  DeviceContext& context_;
  const Pipeline& pipeline_;
  const SlabRegions& regions_;
  const SlabPlan& plan_;
  const Images& on_host_;
  Notices& notices_;
  ItemStatistics statistics_;
  std::vector<GroupState> groups_;
  std::vector<Lap> laps_;
};

}  // namespace

SlabChoice plan_slabs(const Pipeline& pipeline, const Plan& plan, std::size_t device_bytes) {
  const SlabRegions regions(pipeline, plan);
  if (std::string reason = regions.why_not(); !reason.empty()) return {{}, std::move(reason)};
  SlabPlan slabs;
  const auto choose = [&](std::int64_t most, const auto& bytes_of) {
    const SlabCount count = fewest_slabs(most, device_bytes, bytes_of);
    slabs.peak_device_bytes = std::max(slabs.peak_device_bytes, count.bytes);
    return count.slabs;
  };
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    slabs.question_slabs.push_back(0);
    if (!regions.is_needed(g)) continue;
    for (const WholeQuestion& question : regions.questions(g)) {
      const auto bytes_of = [&](std::int64_t slab, std::int64_t count) {
        return regions.question_bytes(g, question, slab, count);
      };
      slabs.question_slabs.back() =
          std::max(slabs.question_slabs.back(), choose(regions.most_slabs(g, question), bytes_of));
    }
  }
  slabs.slabs = choose(regions.most_slabs(), [&](std::int64_t slab, std::int64_t count) {
    return regions.peak_bytes(regions.back_from(plan.groups.size(), regions.wanted(slab, count)));
  });
  if (slabs.peak_device_bytes > device_bytes)
    return {{},
            "even one slice at a time needs " + human_bytes(slabs.peak_device_bytes) + " on the device, " +
                human_bytes(device_bytes) + " are free"};
  return {std::move(slabs), ""};
}

SlabResults compute_in_slabs(DeviceContext& context, const Pipeline& pipeline, const Plan& plan,
                             const SlabPlan& slab_plan, const Images& on_host, Notices& notices) {
  const SlabRegions regions(pipeline, plan);
  if (const std::string reason = regions.why_not(); !reason.empty())
    throw Error(ErrorCode::internal, "the item cannot be computed slab by slab: " + reason);
  return SlabRun(context, pipeline, regions, slab_plan, on_host, notices).run();
}

}  // namespace volpipe
