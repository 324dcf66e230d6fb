#include "pipeline/runner.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <new>
#include <numeric>
#include <thread>

#include "pipeline/bounded_queue.h"
#include "pipeline/file_cache.h"
#include "pipeline/item_computer.h"
#include "pipeline/item_work.h"
#include "pipeline/memory_budget.h"
#include "pipeline/working_device.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr int kStreamsPerGpu = 3;  // one uploads, one computes, one downloads
constexpr std::size_t kLeastReaders = 2, kMostReaders = 32;
constexpr std::size_t kLeastWriters = 4, kMostWriters = 8;  // they wait for the disk, too
constexpr auto kTick = std::chrono::milliseconds(100);

void record_error(ItemRecord& record, ErrorCode code, const std::string& message, const std::string& stage = "",
                  const std::string& path = "") {
  record.status = ItemStatus::failed;
  record.error_code = code;
  record.error_message = message;
  record.error_stage = stage;
  record.error_path = path;
}

ItemRecord record_of(const ItemFault& fault) {
  ItemRecord record;
  record.id = fault.id;
  record_error(record, ErrorCode::input, fault.message, "", fault.path);
  return record;
}

/// Bytes of the item's input files; what cannot be found counts nothing.
double file_bytes(const Item& item) {
  double bytes = 0;
  for (const auto& [name, source] : item.images)
    for (const std::string& file : io::input_files(source)) {
      std::error_code failure;
      const auto size = std::filesystem::file_size(file, failure);
      if (!failure) bytes += double(size);
    }
  return bytes;
}

using WorkPointer = std::unique_ptr<ItemWork>;

class Engine {
 public:
  Engine(const Pipeline& pipeline, const Items& items, const RunOptions& options, const std::atomic<int>& interrupted,
         RunObserver& observer)
      : on_gpu_(options.device.used.front().is_cuda()),
        host_{std::make_shared<const HostThreads>(options.threads),
              on_gpu_ ? pinned_host_memory(options.device.used.front()) : HostMemory::pageable()},
        pipeline_(pipeline),
        items_(items.items),
        options_(with_threads(options, *host_.threads)),
        interrupted_(interrupted),
        observer_(observer),
        host_bound_{options.memory_limit, available_host_memory()},
        files_(options_.reading),
        budget_(options.memory_limit ? options.memory_limit : host_bound_.available / 2),
        computer_(pipeline_, host_.threads, host_bound_, budget_, options.allow_fallback),
        ready_(2 * std::size_t(workers())),
        computed_(2 * std::size_t(workers())) {
    for (const Device& device : options.device.used)
      devices_.push_back(std::make_unique<WorkingDevice>(device, host_, options.device_memory));
    for (const ItemFault& fault : items.faults) faults_.push_back(record_of(fault));
    for (const Item& item : items_) {
      records_.push_back(record_of(item));
      file_bytes_.push_back(file_bytes(item));
    }
    progress_.total = faults_.size() + items_.size();
    progress_.bytes_total = std::accumulate(file_bytes_.begin(), file_bytes_.end(), 0.0);
  }

  RunRecord run() {
    for (const ItemRecord& fault : faults_) note_finished(fault, 0.0);
    if (options_.stop_on_error && !faults_.empty()) stop();
    work_on_items();
    RunRecord result;
    result.items = faults_;
    result.items.insert(result.items.end(), std::make_move_iterator(records_.begin()),
                        std::make_move_iterator(records_.end()));
    result.interrupted = interrupted_ != 0 && result.count(ItemStatus::skipped) > 0;
    result.device = device_used();
    for (const auto& device : devices_) result.peak_device_bytes += device->peak_memory();
    result.threads = host_.threads->count();
    result.wall_ms = host_clock_ms() - start_ms_;
    return result;
  }

 private:
  static RunOptions with_threads(RunOptions options, const HostThreads& threads) {
    options.reading.threads = &threads;
    return options;
  }

  int workers() const { return on_gpu_ ? kStreamsPerGpu * int(options_.device.used.size()) : 1; }

  /// Who takes from a queue starts before those who fill it, and ends after them.
  void work_on_items() {
    order_items();
    if (interrupted_) stop();
    running_ = true;
    std::thread watcher([this] { watch(); });
    std::vector<std::thread> readers, computers, writers;
    const auto threads = std::size_t(host_.threads->count());
    guard([&] {
      start(writers, std::clamp(threads, kLeastWriters, kMostWriters), [this](int i) { write_items(i); });
      for (const auto& device : devices_)
        start(computers, std::size_t(workers()) / devices_.size(),
              [this, &device](int i) { compute_items(*device, i); });
      start(readers, std::clamp(threads, kLeastReaders, kMostReaders), [this](int i) { read_items(i); });
    });
    join(readers);
    ready_.close();
    join(computers);
    computed_.close();
    join(writers);
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
      changed_.notify_all();
    }
    watcher.join();
    if (fault_) std::rethrow_exception(fault_);
  }

  template <class Body>
  void start(std::vector<std::thread>& threads, std::size_t count, Body body) {
    count = std::min(count, std::max<std::size_t>(items_.size(), 1));
    threads.reserve(threads.size() + count);
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back([this, body, i] { guard([&] { body(int(i) + 1); }); });
  }

  static void join(std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
  }

  /// One GPU works through items in their order; several get the large ones first, so that they end together.
  void order_items() {
    order_.resize(items_.size());
    std::iota(order_.begin(), order_.end(), std::size_t(0));
    if (devices_.size() > 1)
      std::stable_sort(order_.begin(), order_.end(),
                       [this](std::size_t a, std::size_t b) { return file_bytes_[a] > file_bytes_[b]; });
  }

  // What escapes is no fault of an item.
  template <class Body>
  void guard(Body&& body) {
    try {
      body();
    } catch (...) {
      stop();
      ready_.abandon();
      computed_.abandon();
      const std::lock_guard lock(mutex_);
      if (!fault_) fault_ = std::current_exception();
    }
  }

  void stop() {
    stopping_ = true;
    budget_.close();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (running_) {
      changed_.wait_for(lock, kTick);
      if (interrupted_ && !told_) observer_.interrupted();
      told_ = interrupted_ != 0;
      if (interrupted_ && !stopping_) stop();
      if (running_) observer_.tick(progress());
    }
  }

  /// Runs one step of an item; false when the item has ended with it.
  template <class Step>
  bool take_step(ItemWork& work, Step&& step) {
    try {
      return step();
    } catch (const Error& error) {
      record_error(work.record, error.code(), error.what() + why_on_cpu(work.record), error.stage(), error.path());
    } catch (const std::bad_alloc&) {
      record_error(work.record, ErrorCode::out_of_memory, "host memory is short");
    } catch (const std::exception& error) { record_error(work.record, ErrorCode::internal, error.what()); }
    if (work.record.error_path.empty()) work.record.error_path = work.item.images.begin()->second.path;
    work.images.clear();
    finish(work);
    return false;
  }

  /// An item that fails on the CPU failed, or did not fit, elsewhere before.
  static std::string why_on_cpu(const ItemRecord& record) {
    return record.fallback_reason.empty() ? "" : " (on the CPU, because " + record.fallback_reason + ")";
  }

  void finish(ItemWork& work) {
    work.record.timing.total = host_clock_ms() - work.start_ms;
    ItemRecord& record = records_[work.index];
    record = std::move(work.record);
    const bool of_output = record.status == ItemStatus::failed && record.error_code == ErrorCode::output;
    if (of_output) outputs_fail_ = true;
    if (record.status == ItemStatus::failed && (options_.stop_on_error || of_output)) stop();
    note_finished(record, file_bytes_[work.index]);
  }

  void note_finished(const ItemRecord& record, double bytes) {
    const std::lock_guard lock(mutex_);
    ++progress_.done;
    progress_.bytes_done += bytes;
    for (const ImageRecord& image : record.inputs) progress_.voxel_bytes += double(image.info.bytes());
    observer_.finished(record, progress());
  }

  /// With the lock held.
  const RunProgress& progress() {
    const double now = host_clock_ms(), since = now - asked_ms_;
    progress_.elapsed_ms = now - start_ms_;
    if (since >= double(kTick.count())) {
      progress_.load.clear();
      for (const auto& device : devices_)
        progress_.load.emplace_back(device->device().name(), std::min(1.0, device->take_busy_ms() / since));
      asked_ms_ = now;
    }
    return progress_;
  }

  // ---- reading

  void read_items(int number) {
    const Tracing tracing{options_.trace, "reader " + std::to_string(number)};
    for (std::size_t next = next_++; next < order_.size() && !stopping_; next = next_++) {
      auto work = std::make_unique<ItemWork>(order_[next], items_[order_[next]], files_);
      if (take_step(*work, [&] { return read(*work, tracing); })) ready_.push(std::move(work));
    }
  }

  bool read(ItemWork& work, const Tracing& tracing) {
    work.key = {options_.seed, work.item.id, work.item.repeat};
    OpenItem files(pipeline_, work.item, options_.reading, work.record);
    work.plan = make_plan(pipeline_, files.infos(), work.key, &work.files);
    const std::size_t bytes = host_bytes(work.plan);
    host_bound_.check(bytes);
    auto share = budget_.acquire(bytes);
    if (!share) return false;
    work.memory = std::move(*share);
    const TraceSpan span(tracing.trace, tracing.track, "read", work.item.id);
    if (options_.journal) work.origins = origins_of(pipeline_, work.item);
    host_.threads->run(
        [&] { work.images = files.read([this](std::size_t n) { return host_.memory->allocate(n); }, work.record); });
    replan_if_narrowed(work);
    for (const auto& [index, parameters] : work.plan.drawn)
      work.record.drawn.emplace_back(pipeline_.stages[index].label, parameters);
    if (options_.strict && !work.record.warnings.empty())
      throw Error(ErrorCode::input, work.record.warnings.front().message + " (an error because of --strict)");
    return true;
  }

  /// The header does not say which 32-bit type 64-bit integers fit into.
  void replan_if_narrowed(ItemWork& work) {
    const ImageInfos read = infos_of(work.images);
    const bool same = std::all_of(read.begin(), read.end(), [&](const auto& image) {
      return work.plan.inputs.at(image.first).dtype == image.second.dtype;
    });
    if (!same) work.plan = make_plan(pipeline_, read, work.key, &work.files);
  }

  bool computes_on_cpu() const {
    return std::all_of(devices_.begin(), devices_.end(),
                       [](const auto& device) { return device->device().is_cpu() || device->lost(); });
  }

  /// A GPU needs what goes up and what comes down.
  std::size_t host_bytes(const Plan& plan) const {
    if (computes_on_cpu()) return plan.peak_device_bytes;
    std::size_t bytes = 0;
    for (const auto& [name, info] : plan.inputs) bytes += info.bytes();
    for (const auto& [name, info] : plan.outputs)
      if (is_written(pipeline_, name)) bytes += info.bytes();
    return bytes;
  }

  // ---- computing

  void compute_items(WorkingDevice& device, int number) {
    const std::string stream = " stream " + std::to_string(number);
    const Tracing tracing{options_.trace, device.device().name() + (device.device().is_cuda() ? stream : "")};
    std::unique_ptr<DeviceContext> context;
    while (!device.lost() || computes_on_cpu()) {
      auto work = ready_.pop();
      if (!work) return;
      if (stopping_) continue;
      if (take_step(**work, [&] { return compute(**work, device, context, tracing); }))
        computed_.push(std::move(*work));
    }
  }

  bool compute(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context, const Tracing& tracing) {
    computer_.compute(work, device, context, tracing);
    std::size_t bytes = 0;
    for (const auto& [name, volume] : work.images) bytes += volume.info().bytes();
    work.memory.shrink(bytes);
    return true;
  }

  // ---- writing

  void write_items(int number) {
    const Tracing tracing{options_.trace, "writer " + std::to_string(number)};
    while (auto work = computed_.pop()) {
      if (outputs_fail_ || (stopping_ && options_.stop_on_error)) continue;
      if (take_step(**work, [&] { return write(**work, tracing); })) finish(**work);
    }
  }

  bool write(ItemWork& work, const Tracing& tracing) {
    const TraceSpan span(tracing.trace, tracing.track, "write", work.item.id);
    write_item(pipeline_, work.item, work.plan, work.images, options_.output_directory,
               {.overwrite = options_.overwrite, .compression = 0, .threads = host_.threads.get()}, work.record);
    work.images.clear();
    work.record.status = ItemStatus::ok;
    if (options_.journal) options_.journal->append(work.record, work.origins);
    return true;
  }

  DeviceChoice device_used() const {
    DeviceChoice choice = options_.device;
    std::erase_if(choice.used, [this](const Device& device) {
      return std::any_of(devices_.begin(), devices_.end(),
                         [&](const auto& working) { return working->device() == device && working->lost(); });
    });
    for (const auto& device : devices_)
      if (device->lost() && choice.fallback_reason.empty()) choice.fallback_reason = device->why_lost();
    if (choice.used.empty()) choice.used.push_back(Device::cpu());
    return choice;
  }

  const bool on_gpu_;
  const HostResources host_;
  const Pipeline& pipeline_;
  const std::vector<Item>& items_;
  const RunOptions options_;
  const std::atomic<int>& interrupted_;
  RunObserver& observer_;
  const HostBound host_bound_;
  const double start_ms_ = host_clock_ms();

  FileCache files_;
  MemoryBudget budget_;
  std::vector<std::unique_ptr<WorkingDevice>> devices_;
  ItemComputer computer_;
  BoundedQueue<WorkPointer> ready_, computed_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopping_{false}, outputs_fail_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false, told_ = false;
  std::exception_ptr fault_;
  std::vector<ItemRecord> faults_, records_;
  std::vector<double> file_bytes_;
  RunProgress progress_;
  double asked_ms_ = start_ms_;
};

}  // namespace

RunRecord run_items(const Pipeline& pipeline, const Items& items, const RunOptions& options,
                    const std::atomic<int>& interrupted, RunObserver& observer) {
  RunRecord run = Engine(pipeline, items, options, interrupted, observer).run();
  run.notices = pipeline.notices.list();
  run.notices.insert(run.notices.end(), items.notices.list().begin(), items.notices.list().end());
  return run;
}

}  // namespace volpipe
