// Where work runs: a device, its memory, its order of execution, its transfers counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "volume/volume.h"

namespace volpipe {

/// Host-device traffic of a context since it was made.
struct TransferCounts {
  std::int64_t h2d_count = 0, h2d_bytes = 0;
  std::int64_t d2h_count = 0, d2h_bytes = 0;
};

/// A point in the context's order of work; pairs of them give elapsed time without stopping the work.
class TimePoint {
 public:
  virtual ~TimePoint() = default;
};

/// Every operation is ordered: what is called later sees the results of what was called before. On the CPU calls return
/// when done; on CUDA they are queued on the context's own stream. A context serves one host thread at a time; any
/// number of contexts, on any devices, live side by side.
class DeviceContext {
 public:
  virtual ~DeviceContext() = default;
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  Device device() const { return device_; }

  /// Uninitialised memory on the device, in stream order. Throws Error(out_of_memory).
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// Host memory that the device copies from and to at full speed (pinned for CUDA), reused through a pool.
  virtual Buffer allocate_host(std::size_t bytes) = 0;

  /// Host volume -> device volume and back; one transfer each, the identity on the CPU.
  virtual Volume to_device(Volume volume) = 0;
  virtual Volume to_host(Volume volume) = 0;

  /// Waits for all queued work, and throws what it failed with.
  virtual void synchronize() = 0;

  virtual std::unique_ptr<TimePoint> record_time() = 0;
  /// Milliseconds from one point to a later one of this context; waits for both.
  virtual double elapsed_ms(const TimePoint& from, const TimePoint& to) = 0;

  /// Memory free for new volumes on the device, bytes.
  virtual std::size_t free_memory() const = 0;
  virtual std::size_t peak_memory() const = 0;  ///< most bytes allocated at one time through this context

  const TransferCounts& transfers() const { return transfers_; }

  /// Runs body(begin, end) over [0, count) in pieces of `grain`, in parallel on the host threads of this context, and
  /// waits. Pieces are the same for any number of threads, so per-piece results are deterministic.
  void parallel(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body) const;
  int threads() const { return threads_; }

  /// What is made once for a context, such as a loaded kernel: the T that is kept under `key`, from `make` where there
  /// is none yet. It dies with the context, after its work.
  template <class T>
  T& kept(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& object = kept_[key];
    if (!object) object = make();
    return *static_cast<T*>(object.get());
  }

 protected:
  DeviceContext(Device device, int threads);
  TransferCounts transfers_;
  std::map<std::string, std::shared_ptr<void>> kept_;

 private:
  Device device_;
  int threads_;
  struct Arena;
  std::shared_ptr<Arena> arena_;
};

/// What `volpipe devices` shows of one device.
struct DeviceInfo {
  Device device = Device::cpu();
  std::string name;
  std::size_t memory_bytes = 0;
  std::string detail;  ///< compute capability or instruction set
  bool usable = true;
  std::string reason;  ///< why it cannot be used
};

/// Host threads this process may use: CPU affinity, and SLURM_CPUS_PER_TASK where it is set.
int available_threads();

/// The CPU and every CUDA device the driver shows. Creates no CUDA context.
std::vector<DeviceInfo> list_devices();
/// Empty when CUDA device `index` can be used; else the reason, one sentence. Creates no CUDA context.
std::string why_cuda_unusable(int index);

/// The factory of contexts: `threads` host threads (0: all available). Throws Error(device) when it cannot be used.
std::unique_ptr<DeviceContext> make_context(Device device, int threads = 0);

}  // namespace volpipe
