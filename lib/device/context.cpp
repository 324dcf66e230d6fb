#include "device/context.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "device/cuda_hooks.h"
#include "volume/error.h"

namespace volpipe {

struct DeviceContext::Arena {
  explicit Arena(int threads) : arena(threads) {
    if (threads > oneapi::tbb::this_task_arena::max_concurrency())
      more_than_cores.emplace(oneapi::tbb::global_control::max_allowed_parallelism, std::size_t(threads));
  }
  std::optional<oneapi::tbb::global_control> more_than_cores;  // else TBB prints a warning and uses fewer
  oneapi::tbb::task_arena arena;
};

DeviceContext::DeviceContext(Device device, int threads)
    : device_(device),
      threads_(threads > 0 ? threads : available_threads()),
      arena_(std::make_shared<Arena>(threads_)) {}

void DeviceContext::parallel(std::int64_t count, std::int64_t grain,
                             const std::function<void(std::int64_t, std::int64_t)>& body) const {
  if (count <= 0) return;
  const std::int64_t pieces = (count + grain - 1) / grain;
  const auto run_piece = [&](std::int64_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); };
  if (threads_ == 1 || pieces == 1) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) run_piece(piece);
    return;
  }
  arena_->arena.execute([&] {
    oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::int64_t>(0, pieces, 1), [&](const auto& range) {
      for (std::int64_t piece = range.begin(); piece != range.end(); ++piece) run_piece(piece);
    });
  });
}

namespace {

std::size_t available_host_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::size_t(sysconf(_SC_AVPHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE));
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

class HostTimePoint final : public TimePoint {
 public:
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();
};

/// The memory of a CPU context. Large blocks are kept when they are freed, because getting fresh pages takes as long as
/// most stages do. Kept and used blocks together stay below the most that was used at one time.
class HostPool final : public MemorySource {
 public:
  ~HostPool() override { free_idle(0); }

  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* data = take_idle(capacity_of(bytes));
    if (!data) {
      const std::size_t highest = std::max(peak_, in_use_ + bytes);
      free_idle(highest - (in_use_ + bytes));
      data = allocate_host_memory(capacity_of(bytes));
    }
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return data;
  }

  void release(void* data, std::size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (bytes < kLeastKept) return std::free(data);
    idle_.emplace(capacity_of(bytes), data);
    idle_bytes_ += capacity_of(bytes);
  }

  std::size_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  static constexpr std::size_t kLeastKept = std::size_t(1) << 20;

  /// Eight sizes from one power of two to the next, so that volumes of nearly one size share blocks.
  static std::size_t capacity_of(std::size_t bytes) {
    if (bytes < kLeastKept) return bytes;
    const std::size_t step = std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }

  void* take_idle(std::size_t capacity) {
    const auto found = idle_.find(capacity);
    if (found == idle_.end()) return nullptr;
    void* data = found->second;
    idle_.erase(found);
    idle_bytes_ -= capacity;
    return data;
  }

  void free_idle(std::size_t left) {
    while (idle_bytes_ > left) {
      const auto largest = std::prev(idle_.end());
      idle_bytes_ -= largest->first;
      std::free(largest->second);
      idle_.erase(largest);
    }
  }

  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> idle_;  ///< by capacity
  std::size_t idle_bytes_ = 0, in_use_ = 0, peak_ = 0;
};

class CpuContext final : public DeviceContext {
 public:
  explicit CpuContext(int threads) : DeviceContext(Device::cpu(), threads) {}

  Buffer allocate(std::size_t bytes) override { return Buffer(memory_->allocate(bytes), bytes, device(), memory_); }
  Buffer allocate_host(std::size_t bytes) override { return allocate(bytes); }
  Volume to_device(Volume volume) override { return volume; }
  Volume to_host(Volume volume) override { return volume; }
  void synchronize() override {}
  std::unique_ptr<TimePoint> record_time() override { return std::make_unique<HostTimePoint>(); }
  double elapsed_ms(const TimePoint& from, const TimePoint& to) override {
    return std::chrono::duration<double, std::milli>(static_cast<const HostTimePoint&>(to).when -
                                                     static_cast<const HostTimePoint&>(from).when)
        .count();
  }
  std::size_t free_memory() const override { return available_host_memory(); }
  std::size_t peak_memory() const override { return memory_->peak(); }

 private:
  std::shared_ptr<HostPool> memory_ = std::make_shared<HostPool>();
};

}  // namespace

int available_threads() {
  cpu_set_t affinity;
  int threads = sched_getaffinity(0, sizeof affinity, &affinity) == 0 ? CPU_COUNT(&affinity) : 1;
  if (const char* slurm = std::getenv("SLURM_CPUS_PER_TASK")) {
    int granted = 0;
    const auto [end, fault] = std::from_chars(slurm, slurm + std::strlen(slurm), granted);
    if (fault == std::errc{} && *end == '\0' && granted > 0) threads = std::min(threads, granted);
  }
  return std::max(threads, 1);
}

std::vector<DeviceInfo> list_devices() {
  DeviceInfo cpu;
  cpu.name = cpu_model();
  cpu.memory_bytes = available_host_memory();
  cpu.detail = std::to_string(available_threads()) + " threads";
  std::vector<DeviceInfo> devices{cpu};
  if (cuda_compiled())
    for (auto& info : cuda::list_devices()) devices.push_back(std::move(info));
  return devices;
}

std::string why_cuda_unusable(int index) {
  return cuda_compiled() ? cuda::why_unusable(index) : "this volpipe was built without CUDA";
}

std::unique_ptr<DeviceContext> make_context(Device device, int threads) {
  if (device.is_cpu()) return std::make_unique<CpuContext>(threads);
  if (const std::string reason = why_cuda_unusable(device.index()); !reason.empty())
    throw Error(ErrorCode::device, reason);
  return cuda::make_context(device.index(), threads);
}

}  // namespace volpipe
