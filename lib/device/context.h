// Where work runs: a device, its memory, its order of execution, its transfers counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/host_memory.h"
#include "device/host_threads.h"
#include "volume/volume.h"

namespace volpipe {

/// Host-device traffic of a context since it was made.
struct TransferCounts {
  std::int64_t h2d_count = 0, h2d_bytes = 0;
  std::int64_t d2h_count = 0, d2h_bytes = 0;
};

/// `rows` runs of `bytes` bytes, `source_pitch` and `target_pitch` bytes from one to the next.
struct RowsCopy {
  const void* source;
  void* target;
  std::size_t bytes, source_pitch, target_pitch, rows;
};

/// What contexts of one run share of the host.
struct HostResources {
  std::shared_ptr<const HostThreads> threads;
  std::shared_ptr<HostMemory> memory;  ///< of volumes on the host: pinned where a GPU copies them
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

  /// Another context on the same device, with an order of its own; memory and host resources are shared.
  virtual std::unique_ptr<DeviceContext> sibling() = 0;

  /// Uninitialised memory on the device, in stream order. When there is none, caches are freed and it is tried once
  /// more; then throws Error(out_of_memory).
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// Host memory that the device copies from and to at full speed (pinned for CUDA), reused through a pool.
  Buffer allocate_host(std::size_t bytes) { return host_.memory->allocate(bytes); }
  const HostResources& host() const { return host_; }

  /// Host volume -> device volume and back; one transfer each, the identity on the CPU.
  virtual Volume to_device(Volume volume) = 0;
  /// The same, and the host volume stays.
  virtual Volume copy_to_device(const Volume& volume) = 0;
  virtual Volume to_host(Volume volume) = 0;

  /// Parts of volumes, from the host to the device and back; one transfer each. Queued: the host's memory stays as it
  /// is, and is not read, until synchronize(). On the CPU copies that are no transfers.
  virtual void upload(const RowsCopy& copy) = 0;
  virtual void download(const RowsCopy& copy) = 0;

  /// Waits for all queued work, and throws what it failed with.
  virtual void synchronize() = 0;

  virtual std::unique_ptr<TimePoint> record_time() = 0;
  /// Milliseconds from one point to a later one of this context; waits for both.
  virtual double elapsed_ms(const TimePoint& from, const TimePoint& to) = 0;

  /// Memory free for new volumes on the device, bytes.
  virtual std::size_t free_memory() const = 0;
  virtual std::size_t peak_memory() const = 0;  ///< most bytes allocated at one time through it and its siblings

  const TransferCounts& transfers() const { return transfers_; }

  /// HostThreads::parallel() of this context's threads.
  void parallel(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body) const {
    host_.threads->parallel(count, grain, body);
  }
  int threads() const { return host_.threads->count(); }

  /// What is made once for a context, such as a loaded kernel: the T that is kept under `key`, from `make` where there
  /// is none yet. It dies with the context, after its work.
  template <class T>
  T& kept(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& object = kept_[key];
    if (!object) object = make();
    return *static_cast<T*>(object.get());
  }

 protected:
  DeviceContext(Device device, HostResources host);
  TransferCounts transfers_;
  std::map<std::string, std::shared_ptr<void>> kept_;

 private:
  Device device_;
  HostResources host_;
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

/// The CPU and every CUDA device the driver shows. Creates no CUDA context.
std::vector<DeviceInfo> list_devices();
/// Empty when CUDA device `index` can be used; else the reason, one sentence. Creates no CUDA context.
std::string why_cuda_unusable(int index);

/// The factory of contexts: `threads` host threads (0: all available). Throws Error(device) when it cannot be used.
std::unique_ptr<DeviceContext> make_context(Device device, int threads = 0);
/// The same with what it shares; without host.memory it gets a pool of its own.
std::unique_ptr<DeviceContext> make_context(Device device, HostResources host);

/// Memory that every GPU copies from and to at full speed, pinned by way of `device`, a GPU that can be used; pageable
/// where no more can be pinned.
std::shared_ptr<HostMemory> pinned_host_memory(Device device);

}  // namespace volpipe
