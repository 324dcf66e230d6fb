#include "pipeline/item_steps.h"

#include <algorithm>
#include <optional>

#include "device/named_range.h"
#include "pipeline/save_map.h"
#include "volume/error.h"

namespace volpipe {

namespace {

void add_warnings(const Notices& notices, ItemRecord& record) {
  record.warnings.insert(record.warnings.end(), notices.list().begin(), notices.list().end());
}

TransferCounts difference(const TransferCounts& now, const TransferCounts& before) {
  return {now.h2d_count - before.h2d_count, now.h2d_bytes - before.h2d_bytes, now.d2h_count - before.d2h_count,
          now.d2h_bytes - before.d2h_bytes};
}

std::string name_of(const Pipeline& pipeline, const Group& group) {
  std::string name;
  for (const std::size_t stage : group.stages) name += (name.empty() ? "" : " + ") + pipeline.stages[stage].label;
  return name.empty() ? "convert" : name;
}

void record_groups(const Pipeline& pipeline, const Plan& plan, const std::vector<double>& group_ms,
                   const DeviceContext& context, ItemRecord& record) {
  record.device = context.device().name();
  record.stages.clear();
  record.timing.compute = 0;
  for (std::size_t g = 0; g < group_ms.size(); ++g) {
    record.timing.compute += group_ms[g];
    for (const std::size_t index : plan.groups[g].stages)
      record.stages.push_back({pipeline.stages[index].definition->op, pipeline.stages[index].label,
                               plan.groups[g].image, group_ms[g], int(g)});
  }
}

/// The steps of one item in the order of its context, with the time each took there.
class Timeline {
 public:
  explicit Timeline(DeviceContext& context) : context_(context) { points_.push_back(context_.record_time()); }

  void end(std::string name) {
    points_.push_back(context_.record_time());
    names_.push_back(std::move(name));
  }
  /// Of step `i`; waits for it.
  double ms(std::size_t i) { return context_.elapsed_ms(*points_[i], *points_[i + 1]); }

  void add_to(const Tracing& tracing, const std::string& item) {
    if (!tracing.trace) return;
    for (std::size_t i = 0; i < names_.size(); ++i)
      tracing.trace->add(tracing.track, names_[i], start_ms_ + context_.elapsed_ms(*points_[0], *points_[i]),
                         start_ms_ + context_.elapsed_ms(*points_[0], *points_[i + 1]), item);
  }

 private:
  DeviceContext& context_;
  const double start_ms_ = host_clock_ms();  // the context has nothing else to do now
  std::vector<std::unique_ptr<TimePoint>> points_;
  std::vector<std::string> names_;
};

}  // namespace

OpenItem::OpenItem(const Pipeline& pipeline, const Item& item, const io::ReadOptions& options, ItemRecord& record) {
  for (const InputSpec& input : pipeline.inputs) {
    const auto found = item.images.find(input.name);
    if (found == item.images.end()) continue;
    Notices notices;
    files_.push_back({&input, found->second.path, io::open(found->second, notices, options)});
    add_warnings(notices, record);
  }
}

ImageInfos OpenItem::infos() const {
  ImageInfos infos;
  for (const File& file : files_) {
    VolumeInfo info = file.volume->info();
    info.kind = file.input->kind;
    infos.emplace(file.input->name, info);
  }
  return infos;
}

Images OpenItem::read(const io::HostAllocator& allocate, ItemRecord& record) {
  Images images;
  for (File& file : files_) {
    Notices notices;
    io::ReadTiming timing;
    Volume volume = with_path(file.path, [&] { return file.volume->read(allocate, notices, &timing); });
    file.volume.reset();
    VolumeInfo info = volume.info();
    info.kind = file.input->kind;
    if (info.kind == ImageKind::label && is_floating(info.dtype))
      notices.add("float_label", "label image '" + file.input->name + "' is stored as " +
                                     std::string(to_string(info.dtype)) + "; its values are kept as they are");
    images.emplace(file.input->name, Volume(info, std::move(volume).take_buffer()));
    record.timing.read += timing.read_ms;
    record.timing.decode += timing.decode_ms;
    record.inputs.push_back({file.input->name, file.path, info});
    add_warnings(notices, record);
  }
  return images;
}

bool is_written(const Pipeline& pipeline, const std::string& image) {
  return std::any_of(pipeline.outputs.begin(), pipeline.outputs.end(),
                     [&](const OutputSpec& output) { return output.image == image; });
}

Images compute_item(DeviceContext& context, const Pipeline& pipeline, Plan& plan, const ItemKey& key, StageFiles& files,
                    Images& images, ItemRecord& record, const Tracing& tracing) {
  const NamedRange named(context, record.id);
  const bool on_cpu = context.device().is_cpu();
  const TransferCounts before = context.transfers();
  Notices notices;
  Timeline timeline(context);
  Images on_device;
  for (auto& [name, volume] : images)
    on_device.emplace(name, on_cpu ? context.to_device(std::move(volume)) : context.copy_to_device(volume));
  if (on_cpu) images.clear();
  timeline.end("upload");

  std::int64_t saturated = 0;
  ItemStatistics statistics;
  std::size_t done = 0;
  const auto run_until = [&](std::span<const Group> groups) {
    for (; done < groups.size(); ++done) {
      const NamedRange group_range(context, name_of(pipeline, groups[done]));
      saturated += run_group(context, pipeline, groups[done], on_device, statistics, notices).saturated;
      timeline.end(name_of(pipeline, groups[done]));
    }
  };
  if (!plan.guessed.empty())
    plan = make_plan(pipeline, plan.inputs, key, &files,
                     [&](std::span<const Group> planned, const MeasuringStage::Request& request) {
                       run_until(planned);
                       return measure(context, request, on_device);
                     });
  run_until(plan.groups);
  for (const Notice& notice : plan.notices.list()) notices.add(notice.code, notice.message);

  Images results;
  for (auto& [name, volume] : on_device)
    if (is_written(pipeline, name)) results.emplace(name, context.to_host(std::move(volume)));
  timeline.end("download");
  context.synchronize();

  std::vector<double> group_ms;
  for (std::size_t g = 0; g < done; ++g) group_ms.push_back(timeline.ms(g + 1));
  record_groups(pipeline, plan, group_ms, context, record);
  record.timing.upload = on_cpu ? 0 : timeline.ms(0);
  record.timing.download = on_cpu ? 0 : timeline.ms(done + 1);
  record.transfers = difference(context.transfers(), before);
  record.saturated_voxels = saturated;
  add_warnings(notices, record);
  timeline.add_to(tracing, record.id);
  return results;
}

Images compute_item_in_slabs(DeviceContext& context, const Pipeline& pipeline, const Plan& plan, const SlabPlan& slabs,
                             const Images& images, ItemRecord& record, const Tracing& tracing) {
  const NamedRange named(context, record.id);
  const TraceSpan span(tracing.trace, tracing.track, "slabs", record.id);
  const double start_ms = host_clock_ms();
  const TransferCounts before = context.transfers();
  Notices notices;
  SlabResults results = compute_in_slabs(context, pipeline, plan, slabs, images, notices);
  record_groups(pipeline, plan, results.group_ms, context, record);
  // Copies and kernels alternate: what is no kernel counts as transfer, half each way.
  const double copying_ms = std::max(0.0, host_clock_ms() - start_ms - record.timing.compute);
  record.timing.upload = record.timing.download = copying_ms / 2;
  record.transfers = difference(context.transfers(), before);
  record.saturated_voxels = results.saturated;
  notices.add("slabs", "computed in " + std::to_string(slabs.slabs) + " slabs, because the whole needs " +
                           human_bytes(plan.peak_device_bytes) + " on " + record.device);
  add_warnings(notices, record);
  return std::move(results.images);
}

void write_item(const Pipeline& pipeline, const Item& item, const Plan& plan, const Images& images,
                const std::string& output_directory, const io::WriteOptions& options, ItemRecord& record) {
  for (const OutputSpec& output : pipeline.outputs) {
    const auto found = images.find(output.image);
    if (found == images.end()) continue;
    const std::string path = output_path(output, item, output_directory);
    io::WriteOptions own = options;
    own.compression = output.compression;
    io::WriteTiming timing;
    with_path(path, [&] { io::write(found->second, path, own, &timing); });
    record.timing.encode += timing.encode_ms;
    record.timing.write += timing.write_ms;
    record.outputs.push_back({output.image, path, found->second.info()});
  }
  for (std::size_t i = 0; i < pipeline.saved_maps.size(); ++i) {
    const std::string path = output_path(pipeline.saved_maps[i].path, "", item, output_directory);
    with_path(path, [&] { save_map(plan.saved[i], path, options.overwrite); });
    record.saved_maps.push_back(path);
  }
}

}  // namespace volpipe
