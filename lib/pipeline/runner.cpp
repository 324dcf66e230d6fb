#include "pipeline/runner.h"

#include <charconv>
#include <chrono>
#include <new>

#include "pipeline/file_cache.h"
#include "pipeline/save_map.h"
#include "volume/error.h"

namespace volpipe {

namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

ImageInfos infos_of(const Images& images) {
  ImageInfos infos;
  for (const auto& [name, volume] : images) infos.emplace(name, volume.info());
  return infos;
}

bool is_written(const Pipeline& pipeline, const std::string& image) {
  for (const OutputSpec& output : pipeline.outputs)
    if (output.image == image) return true;
  return false;
}

TransferCounts difference(const TransferCounts& now, const TransferCounts& before) {
  return {now.h2d_count - before.h2d_count, now.h2d_bytes - before.h2d_bytes, now.d2h_count - before.d2h_count,
          now.d2h_bytes - before.d2h_bytes};
}

void record_error(ItemRecord& record, ErrorCode code, const std::string& message, const std::string& stage = "",
                  const std::string& path = "") {
  record.status = ItemStatus::failed;
  record.error_code = code;
  record.error_message = message;
  record.error_stage = stage;
  record.error_path = path;
}

/// An item that fails on the CPU failed, or did not fit, elsewhere before.
std::string why_on_cpu(const ItemRecord& record) {
  return record.fallback_reason.empty() ? "" : " (on the CPU, because " + record.fallback_reason + ")";
}

/// One run: the contexts it made and what it has recorded.
class Run {
 public:
  Run(const Pipeline& pipeline, const RunOptions& options)
      : pipeline_(pipeline), options_(options), device_(options.device) {}

  ItemRecord process(const Item& item) {
    ItemRecord record;
    record.id = item.id;
    record.repeat = item.repeat;
    const auto start = std::chrono::steady_clock::now();
    try {
      process_steps(item, record);
      record.status = ItemStatus::ok;
    } catch (const Error& error) {
      record_error(record, error.code(), error.what() + why_on_cpu(record), error.stage(), error.path());
    } catch (const std::bad_alloc&) {
      record_error(record, ErrorCode::out_of_memory, "host memory is short");
    } catch (const std::exception& error) { record_error(record, ErrorCode::internal, error.what()); }
    if (record.error_path.empty() && record.status == ItemStatus::failed)
      record.error_path = item.images.begin()->second.path;
    record.timing.total = ms_since(start);
    return record;
  }

  const DeviceChoice& device() const { return device_; }
  std::size_t peak_device_bytes() const { return cuda_ ? cuda_->peak_memory() : 0; }
  int threads() { return cpu_context().threads(); }

 private:
  void process_steps(const Item& item, ItemRecord& record) {
    DeviceContext* context = &run_context();
    const auto allocate = [&context](std::size_t bytes) { return context->allocate_host(bytes); };
    Images images = read_item(pipeline_, item, allocate, options_.memory_limit, record);
    fail_if_strict(record);
    ItemFiles files(files_, item);
    const ItemKey key{options_.seed, item.id, item.repeat};
    Plan plan = make_plan(pipeline_, infos_of(images), key, &files);
    for (const auto& [index, parameters] : plan.drawn)
      record.drawn.emplace_back(pipeline_.stages[index].label, parameters);
    check_memory(plan, record, context);
    try {
      images = compute_item(*context, pipeline_, plan, key, files, std::move(images), record);
    } catch (const Error& error) {
      const bool of_device = error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::device;
      if (!context->device().is_cuda() || !of_device || !options_.allow_fallback) throw;
      record.fallback_reason = error.what();
      if (error.code() == ErrorCode::device) leave_device(error.what());
      context = &cpu_context();
      record.warnings.clear();
      record.stages.clear();
      images = compute_item(*context, pipeline_, plan, key, files,
                            read_item(pipeline_, item, allocate, options_.memory_limit, record), record);
    }
    if (!record.fallback_reason.empty())
      record.warnings.push_back({"fallback", "computed on the CPU: " + record.fallback_reason});
    write_item(pipeline_, item, plan, images, options_, record);
  }

  void fail_if_strict(const ItemRecord& record) const {
    if (options_.strict && !record.warnings.empty())
      throw Error(ErrorCode::input, record.warnings.front().message + " (an error because of --strict)");
  }

  void check_memory(const Plan& plan, ItemRecord& record, DeviceContext*& context) {
    if (context->device().is_cpu()) return check_host_memory(plan);
    if (plan.peak_device_bytes <= context->free_memory()) return;
    const std::string reason = "needs " + human_bytes(plan.peak_device_bytes) + " on " + context->device().name() +
                               ", " + human_bytes(context->free_memory()) + " are free";
    if (!options_.allow_fallback) throw Error(ErrorCode::out_of_memory, reason);
    record.fallback_reason = reason;
    context = &cpu_context();
    check_host_memory(plan);
  }

  /// Before anything is allocated: what is in memory already counts as available to it.
  void check_host_memory(const Plan& plan) {
    std::size_t held = 0;
    for (const auto& [name, info] : plan.inputs) held += info.bytes();
    const std::size_t available = held + cpu_context().free_memory();
    const bool limited = options_.memory_limit && options_.memory_limit < available;
    if (plan.peak_device_bytes <= (limited ? options_.memory_limit : available)) return;
    throw Error(ErrorCode::out_of_memory,
                "needs " + human_bytes(plan.peak_device_bytes) + " for its volumes, " +
                    (limited ? "more than --memory allows" : human_bytes(available) + " are available"));
  }

  DeviceContext& cpu_context() {
    if (!cpu_) cpu_ = make_context(Device::cpu(), options_.threads);
    return *cpu_;
  }

  DeviceContext& run_context() {
    if (device_.used.is_cpu()) return cpu_context();
    if (cuda_) return *cuda_;
    try {
      cuda_ = make_context(device_.used, options_.threads);
      return *cuda_;
    } catch (const Error& error) {
      if (!options_.allow_fallback) throw;
      leave_device(error.what());
      return cpu_context();
    }
  }

  /// The rest of the run stays on the CPU.
  void leave_device(const std::string& reason) {
    device_.used = Device::cpu();
    device_.fallback_reason = reason;
  }

  const Pipeline& pipeline_;
  const RunOptions& options_;
  DeviceChoice device_;
  std::unique_ptr<DeviceContext> cpu_, cuda_;
  FileCache files_;
};

ItemRecord record_of(const ItemFault& fault) {
  ItemRecord record;
  record.id = fault.id;
  record_error(record, ErrorCode::input, fault.message, "", fault.path);
  return record;
}

}  // namespace

DeviceChoice choose_device(const std::string& requested, bool allow_fallback) {
  DeviceChoice choice{requested, Device::cpu(), ""};
  if (requested == "cpu") return choice;
  int index = 0;
  if (requested.starts_with("cuda:")) {
    const char* begin = requested.data() + 5;
    const char* end = requested.data() + requested.size();
    const auto [stop, fault] = std::from_chars(begin, end, index);
    if (fault != std::errc{} || stop != end || index < 0)
      throw Error(
          ErrorCode::usage,
          "--device '" + requested + "' is not a device: use auto, cpu, cuda or cuda:N; 'volpipe devices' lists them");
  } else if (requested != "auto" && requested != "cuda") {
    throw Error(ErrorCode::usage, "--device '" + requested +
                                      "' is not a device: use auto, cpu, cuda or cuda:N; 'volpipe devices' lists them");
  }
  choice.fallback_reason = why_cuda_unusable(index);
  if (choice.fallback_reason.empty()) choice.used = Device::cuda(index);
  else if (!allow_fallback && requested != "auto")
    throw Error(ErrorCode::device, requested + " cannot be used: " + choice.fallback_reason);
  return choice;
}

Images read_item(const Pipeline& pipeline, const Item& item, const io::HostAllocator& allocate,
                 std::size_t memory_limit, ItemRecord& record) {
  Images images;
  record.inputs.clear();
  std::size_t held = 0;
  for (const InputSpec& input : pipeline.inputs) {
    const auto found = item.images.find(input.name);
    if (found == item.images.end()) continue;
    const io::Source& source = found->second;
    Notices notices;
    const auto bounded = [&](std::size_t bytes) {
      held += bytes;
      if (memory_limit && held > memory_limit)
        throw Error(ErrorCode::out_of_memory, "needs " + human_bytes(held) + " to be read, more than --memory allows");
      return allocate(bytes);
    };
    io::ReadTiming timing;
    Volume volume = with_path(source.path, [&] { return io::read(source, bounded, notices, &timing); });
    VolumeInfo info = volume.info();
    info.kind = input.kind;
    if (input.kind == ImageKind::label && is_floating(info.dtype))
      notices.add("float_label", "label image '" + input.name + "' is stored as " + std::string(to_string(info.dtype)) +
                                     "; its values are kept as they are");
    Buffer buffer = std::move(volume).take_buffer();
    images.emplace(input.name, Volume(info, std::move(buffer)));
    record.timing.read += timing.read_ms;
    record.timing.decode += timing.decode_ms;
    record.inputs.push_back({input.name, source.path, info});
    record.warnings.insert(record.warnings.end(), notices.list().begin(), notices.list().end());
  }
  return images;
}

Images compute_item(DeviceContext& context, const Pipeline& pipeline, Plan& plan, const ItemKey& key, StageFiles& files,
                    Images images, ItemRecord& record) {
  record.device = context.device().name();
  const TransferCounts before = context.transfers();
  Notices notices;
  const auto upload_start = std::chrono::steady_clock::now();
  Images on_device;
  for (auto& [name, volume] : images) on_device.emplace(name, context.to_device(std::move(volume)));
  record.timing.upload = context.device().is_cpu() ? 0 : ms_since(upload_start);

  std::vector<std::unique_ptr<TimePoint>> times;
  times.push_back(context.record_time());
  record.saturated_voxels = 0;
  ItemStatistics statistics;
  const auto run_until = [&](std::span<const Group> groups) {
    while (times.size() <= groups.size()) {
      record.saturated_voxels +=
          run_group(context, pipeline, groups[times.size() - 1], on_device, statistics, notices).saturated;
      times.push_back(context.record_time());
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
  context.synchronize();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const double ms = context.elapsed_ms(*times[g], *times[g + 1]);
    for (std::size_t index : plan.groups[g].stages)
      record.stages.push_back(
          {pipeline.stages[index].definition->op, pipeline.stages[index].label, plan.groups[g].image, ms, int(g)});
  }
  record.timing.compute = context.elapsed_ms(*times.front(), *times.back());

  const auto download_start = std::chrono::steady_clock::now();
  Images results;
  for (auto& [name, volume] : on_device)
    if (is_written(pipeline, name)) results.emplace(name, context.to_host(std::move(volume)));
  record.timing.download = context.device().is_cpu() ? 0 : ms_since(download_start);
  record.transfers = difference(context.transfers(), before);
  record.warnings.insert(record.warnings.end(), notices.list().begin(), notices.list().end());
  return results;
}

void write_item(const Pipeline& pipeline, const Item& item, const Plan& plan, const Images& images,
                const RunOptions& options, ItemRecord& record) {
  for (const OutputSpec& output : pipeline.outputs) {
    const auto found = images.find(output.image);
    if (found == images.end()) continue;
    const std::string path = output_path(output, item, options.output_directory);
    io::WriteTiming timing;
    with_path(path, [&] { io::write(found->second, path, {.overwrite = options.overwrite}, &timing); });
    record.timing.encode += timing.encode_ms;
    record.timing.write += timing.write_ms;
    record.outputs.push_back({output.image, path, found->second.info()});
  }
  for (std::size_t i = 0; i < pipeline.saved_maps.size(); ++i) {
    const std::string path = output_path(pipeline.saved_maps[i].path, "", item, options.output_directory);
    with_path(path, [&] { save_map(plan.saved[i], path, options.overwrite); });
  }
}

RunRecord run_items(const Pipeline& pipeline, const Items& items, const RunOptions& options,
                    const std::atomic<int>& interrupted, const ItemObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  RunRecord run;
  run.notices = pipeline.notices.list();
  run.notices.insert(run.notices.end(), items.notices.list().begin(), items.notices.list().end());
  const std::size_t total = items.items.size() + items.faults.size();
  const auto finish = [&](ItemRecord record) {
    run.items.push_back(std::move(record));
    if (run.items.back().status != ItemStatus::skipped) observer(run.items.back(), run.items.size(), total);
  };
  for (const ItemFault& fault : items.faults) finish(record_of(fault));

  Run work(pipeline, options);
  bool stopped = options.stop_on_error && !items.faults.empty();
  for (const Item& item : items.items) {
    if (stopped || interrupted) {
      ItemRecord skipped;
      skipped.id = item.id;
      skipped.repeat = item.repeat;
      finish(std::move(skipped));
      continue;
    }
    finish(work.process(item));
    const ItemRecord& last = run.items.back();
    stopped = last.status == ItemStatus::failed && (options.stop_on_error || last.error_code == ErrorCode::output);
  }
  run.interrupted = interrupted != 0;
  run.device = work.device();
  run.peak_device_bytes = work.peak_device_bytes();
  run.threads = work.threads();
  run.wall_ms = ms_since(start);
  return run;
}

}  // namespace volpipe
