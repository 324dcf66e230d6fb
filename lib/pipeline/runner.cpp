#include "pipeline/runner.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <new>
#include <numeric>
#include <thread>

#include "pipeline/bounded_queue.h"
#include "pipeline/file_cache.h"
#include "pipeline/memory_budget.h"
#include "pipeline/slabs.h"
#include "pipeline/working_device.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr int kStreamsPerGpu = 3;  // one uploads, one computes, one downloads
constexpr int kMostReaders = 32, kMostWriters = 8;
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

ItemRecord record_of(const Item& item) {
  ItemRecord record;
  record.id = item.id;
  record.repeat = item.repeat;
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

/// An item on its way.
struct ItemWork {
  std::size_t index;  ///< among the run's items
  const Item& item;
  ItemFiles files;
  ItemRecord record;
  std::vector<io::FileIdentity> identities{};
  ItemKey key{};
  Plan plan{};
  Images images{};  ///< as read, then as computed; on the host
  MemoryBudget::Share memory{};
  double start_ms = host_clock_ms();

  ItemWork(std::size_t place, const Item& the_item, FileCache& cache)
      : index(place), item(the_item), files(cache, the_item), record(record_of(the_item)) {}
};

using WorkPointer = std::unique_ptr<ItemWork>;

class Engine {
 public:
  Engine(const Pipeline& pipeline, const Items& items, const RunOptions& options, const std::atomic<int>& interrupted,
         RunObserver& observer)
      : on_gpu_(options.device.used.front().is_cuda()),
        host_{std::make_shared<const HostThreads>(options.threads),
              on_gpu_ ? pinned_host_memory() : HostMemory::pageable()},
        pipeline_(pipeline),
        items_(items.items),
        options_(with_threads(options, *host_.threads)),
        interrupted_(interrupted),
        observer_(observer),
        available_(available_host_memory()),
        files_(options_.reading),
        budget_(options.memory_limit ? options.memory_limit : available_ / 2),
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
    result.interrupted = interrupted_ != 0;
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
      start(writers, std::clamp<std::size_t>(threads, 2, kMostWriters), [this](int i) { write_items(i); });
      for (const auto& device : devices_)
        start(computers, std::size_t(workers()) / devices_.size(),
              [this, &device](int i) { compute_items(*device, i); });
      start(readers, std::clamp<std::size_t>(threads, 2, kMostReaders), [this](int i) { read_items(i); });
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
    check_host_memory(bytes);
    auto share = budget_.acquire(bytes);
    if (!share) return false;
    work.memory = std::move(*share);
    const TraceSpan span(tracing.trace, tracing.track, "read", work.item.id);
    if (options_.journal) work.identities = identities_of(work.item);
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

  void check_host_memory(std::size_t bytes) const {
    const std::size_t limit = options_.memory_limit ? options_.memory_limit : available_;
    if (bytes <= limit) return;
    throw Error(ErrorCode::out_of_memory,
                "needs " + human_bytes(bytes) + " for its volumes, " +
                    (options_.memory_limit ? "more than the " + human_bytes(limit) + " that --memory allows"
                                           : human_bytes(limit) + " are available"));
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
    if (device.device().is_cpu()) {
      if (!context) context = device.make_context();
      run_plan(work, device, *context, tracing);
    } else if (!compute_on_gpu(work, device, context, tracing)) {
      compute_instead_on_cpu(work, device);
    }
    std::size_t bytes = 0;
    for (const auto& [name, volume] : work.images) bytes += volume.info().bytes();
    work.memory.shrink(bytes);
    return true;
  }

  void run_plan(ItemWork& work, WorkingDevice& device, DeviceContext& context, const Tracing& tracing) {
    const WorkingDevice::Busy busy(device);
    work.images = compute_item(context, pipeline_, work.plan, work.key, work.files, work.images, work.record, tracing);
  }

  /// False when the GPU cannot do it; the record says why.
  bool compute_on_gpu(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context,
                      const Tracing& tracing) {
    if (device.lost()) return refuse(work, device.why_lost());
    try {
      if (!context) context = device.make_context();
      const std::size_t needed = work.plan.peak_device_bytes, usable = device.budget().total();
      std::string reason = "needs " + human_bytes(needed) + " on " + device.device().name() + ", " +
                           human_bytes(usable) + " may be used";
      // Once beside others, once more when all memory is free, then in parts.
      if (needed <= usable) {
        for (const std::size_t wanted : {needed, usable})
          if (run_within(device, wanted, reason, [&] { run_plan(work, device, *context, tracing); })) return true;
      }
      const SlabChoice slabs = plan_slabs(pipeline_, work.plan, std::min(usable, needed) / (needed <= usable ? 2 : 1));
      if (!slabs.plan) return refuse(work, reason + "; " + slabs.why_not);
      if (run_within(device, usable, reason, [&] { run_slabs(work, device, *context, *slabs.plan, tracing); }))
        return true;
      return refuse(work, reason);
    } catch (const Error& error) {
      if (!options_.allow_fallback) throw;
      if (error.code() == ErrorCode::out_of_memory && !context) return refuse(work, error.what());
      if (error.code() != ErrorCode::device) throw;
      device.lose(error.what());
      return refuse(work, error.what());
    }
  }

  /// Runs with a share of the device's memory; false, and the reason, when that was not enough.
  template <class Body>
  static bool run_within(WorkingDevice& device, std::size_t bytes, std::string& reason, Body&& body) {
    const auto share = device.budget().acquire(bytes);
    try {
      body();
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      reason = error.what();
      return false;
    }
  }

  void run_slabs(ItemWork& work, WorkingDevice& device, DeviceContext& context, const SlabPlan& slabs,
                 const Tracing& tracing) {
    const WorkingDevice::Busy busy(device);
    work.images = compute_item_in_slabs(context, pipeline_, work.plan, slabs, work.images, work.record, tracing);
  }

  bool refuse(ItemWork& work, const std::string& reason) const {
    if (!options_.allow_fallback) throw Error(ErrorCode::out_of_memory, reason);
    work.record.fallback_reason = reason;
    return false;
  }

  /// One item at a time: it needs more host memory than it was admitted with.
  void compute_instead_on_cpu(ItemWork& work, WorkingDevice& device) {
    const std::lock_guard lock(cpu_mutex_);
    check_host_memory(work.plan.peak_device_bytes);
    const auto more = budget_.overdraw(work.plan.peak_device_bytes);
    if (!cpu_) cpu_ = make_context(Device::cpu(), HostResources{host_.threads, HostMemory::pageable()});
    run_plan(work, device, *cpu_, {options_.trace, "cpu"});
    work.record.warnings.push_back({"fallback", "computed on the CPU: " + work.record.fallback_reason});
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
    if (options_.journal) options_.journal->append(work.record, with_stage_files(work));
    return true;
  }

  static std::vector<io::FileIdentity> with_stage_files(const ItemWork& work) {
    std::vector<io::FileIdentity> files = work.identities;
    for (const std::string& path : work.files.used())
      if (std::filesystem::is_regular_file(path)) files.push_back(io::identity_of(path));
    return files;
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
  const std::size_t available_;  // of host memory, when the run began
  const double start_ms_ = host_clock_ms();

  FileCache files_;
  MemoryBudget budget_;
  std::vector<std::unique_ptr<WorkingDevice>> devices_;
  std::mutex cpu_mutex_;
  std::unique_ptr<DeviceContext> cpu_;
  BoundedQueue<WorkPointer> ready_, computed_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopping_{false}, outputs_fail_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
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
