#include "device/context.h"

#include <sched.h>
#include <unistd.h>

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "device/cuda_hooks.h"
#include "volume/error.h"

namespace volpipe {

struct DeviceContext::Arena {
  explicit Arena(int threads) : arena(threads) {
    if (threads > oneapi::tbb::this_task_arena::max_concurrency()) more_than_cores.emplace(oneapi::tbb::global_control::max_allowed_parallelism, std::size_t(threads));
  }
  std::optional<oneapi::tbb::global_control> more_than_cores;  // else TBB prints a warning and uses fewer
  oneapi::tbb::task_arena arena;
};

DeviceContext::DeviceContext(Device device, int threads)
    : device_(device), threads_(threads > 0 ? threads : available_threads()), arena_(std::make_shared<Arena>(threads_)) {}

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

/// Counts what a CPU context holds, so that its peak can be reported.
class CountedHostMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) {
    void* data = allocate_host_memory(bytes);
    const std::size_t now = in_use_ += bytes;
    std::size_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
    return data;
  }
  void release(void* data, std::size_t bytes) noexcept override {
    std::free(data);
    in_use_ -= bytes;
  }
  std::size_t peak() const { return peak_; }

 private:
  std::atomic<std::size_t> in_use_{0}, peak_{0};
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
                                                     static_cast<const HostTimePoint&>(from).when).count();
  }
  std::size_t free_memory() const override { return available_host_memory(); }
  std::size_t peak_memory() const override { return memory_->peak(); }

 private:
  std::shared_ptr<CountedHostMemory> memory_ = std::make_shared<CountedHostMemory>();
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
