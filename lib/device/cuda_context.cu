#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "device/cuda_context.h"
#include "volume/error.h"

/// Defined by tests alone, in a library that they preload: 1 lets a call fail for want of memory, 2 for a broken
/// device.
extern "C" __attribute__((weak)) int volpipe_injected_cuda_fault();

namespace volpipe::cuda {

cudaError_t injected_fault() {
  const int fault = volpipe_injected_cuda_fault ? volpipe_injected_cuda_fault() : 0;
  return fault == 0 ? cudaSuccess : fault == 1 ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure;
}

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  const std::string where = std::string(cudaGetErrorString(status)) + " in " + call + " (" +
                            std::string(file).substr(std::string(file).rfind('/') + 1) + ":" + std::to_string(line) +
                            ")";
  throw Error(status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device, where);
}

namespace {

/// Makes a device current on this host thread. Every entry point calls it, so nothing relies on what was current.
void make_current(int index) {
  int current = -1;
  VOLPIPE_CHECK_CUDA(cudaGetDevice(&current));
  if (current != index) VOLPIPE_CHECK_CUDA(cudaSetDevice(index));
}

/// The device's stream-ordered pool, shared by the streams of sibling contexts.
class DevicePool {
 public:
  explicit DevicePool(int index) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = index;
    VOLPIPE_CHECK_CUDA(cudaMemPoolCreate(&pool_, &properties));
    std::uint64_t keep = ~std::uint64_t(0);
    VOLPIPE_CHECK_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool() { cudaMemPoolDestroy(pool_); }

  void* allocate(std::size_t bytes, cudaStream_t stream) {
    void* data = nullptr;
    const std::size_t request = std::max<std::size_t>(bytes, 1);
    cudaError_t status = injected_fault();
    if (status == cudaSuccess) status = cudaMallocFromPoolAsync(&data, request, pool_, stream);
    if (status == cudaErrorMemoryAllocation) {  // one retry with the freed caches given back
      cudaGetLastError();
      VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(stream));
      VOLPIPE_CHECK_CUDA(cudaMemPoolTrimTo(pool_, 0));
      status = cudaMallocFromPoolAsync(&data, request, pool_, stream);
    }
    check(status, "cudaMallocFromPoolAsync", __FILE__, __LINE__);
    return data;
  }

  std::size_t peak() const { return attribute(cudaMemPoolAttrUsedMemHigh); }
  std::size_t idle_cached() const {
    return attribute(cudaMemPoolAttrReservedMemCurrent) - attribute(cudaMemPoolAttrUsedMemCurrent);
  }

 private:
  std::uint64_t attribute(cudaMemPoolAttr which) const {
    std::uint64_t value = 0;
    VOLPIPE_CHECK_CUDA(cudaMemPoolGetAttribute(pool_, which, &value));
    return value;
  }

  cudaMemPool_t pool_ = nullptr;
};

/// One stream and the pool its buffers come from; buffers share it, so it outlives them.
class StreamMemory final : public MemorySource {
 public:
  explicit StreamMemory(std::shared_ptr<DevicePool> pool) : pool_(std::move(pool)) {
    VOLPIPE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~StreamMemory() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  void* allocate(std::size_t bytes) { return pool_->allocate(bytes, stream_); }
  void release(void* data, std::size_t) noexcept override { cudaFreeAsync(data, stream_); }

  const std::shared_ptr<DevicePool>& pool() const { return pool_; }
  cudaStream_t stream() const { return stream_; }

 private:
  std::shared_ptr<DevicePool> pool_;
  cudaStream_t stream_ = nullptr;
};

/// Portable: every GPU of the process copies from it at full speed. Large blocks are pinned after their pages were
/// touched, because the driver takes several times as long for both and lets nothing else in meanwhile.
class PinnedMemory final : public HostMemory {
 public:
  explicit PinnedMemory(int device) : HostMemory(true), device_(device) {}
  ~PinnedMemory() override { free_idle(0); }

 private:
  enum class Origin : std::uint8_t { driver, registered, pageable };
  static constexpr std::size_t kLarge = std::size_t(8) << 20, kPage = 4096;

  /// What one device pinned it must let go, whatever device the calling thread is at work on.
  class UseDevice {
   public:
    explicit UseDevice(int device) noexcept {
      if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) cudaSetDevice(device);
    }
    ~UseDevice() {
      if (before_ >= 0) cudaSetDevice(before_);
    }
    UseDevice(const UseDevice&) = delete;
    UseDevice& operator=(const UseDevice&) = delete;

   private:
    int before_ = -1;
  };

  void* take(std::size_t bytes) override {
    const UseDevice used(device_);
    void* data = nullptr;
    Origin origin = Origin::driver;
    if (bytes >= kLarge) {
      data = allocate_host_memory(bytes);
      for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(data)[at] = 0;
      origin = cudaHostRegister(data, bytes, cudaHostRegisterPortable) == cudaSuccess ? Origin::registered
                                                                                      : Origin::pageable;
    } else if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) != cudaSuccess) {
      data = allocate_host_memory(bytes);
      origin = Origin::pageable;
    }
    if (origin == Origin::pageable) cudaGetLastError();  // copies are slower then, and right
    const std::lock_guard lock(mutex_);
    origins_[data] = origin;
    return data;
  }

  void give_back(void* data) noexcept override {
    Origin origin;
    {
      const std::lock_guard lock(mutex_);
      const auto found = origins_.find(data);
      origin = found->second;
      origins_.erase(found);
    }
    const UseDevice used(device_);
    if (origin == Origin::driver) return void(cudaFreeHost(data));
    if (origin == Origin::registered) cudaHostUnregister(data);
    std::free(data);
  }

  const int device_;
  std::mutex mutex_;
  std::map<void*, Origin> origins_;
};

class EventTimePoint final : public TimePoint {
 public:
  EventTimePoint() { VOLPIPE_CHECK_CUDA(cudaEventCreate(&event)); }
  ~EventTimePoint() override { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

class CudaContext final : public DeviceContext {
 public:
  CudaContext(int index, HostResources host, std::shared_ptr<DevicePool> pool)
      : DeviceContext(Device::cuda(index), std::move(host)), memory_(std::make_shared<StreamMemory>(std::move(pool))) {
    VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, index));
  }

  ~CudaContext() override {
    cudaStreamSynchronize(memory_->stream());
    kept_.clear();
  }

  std::unique_ptr<DeviceContext> sibling() override {
    make_current(device().index());
    return std::make_unique<CudaContext>(device().index(), host(), memory_->pool());
  }

  Buffer allocate(std::size_t bytes) override {
    make_current(device().index());
    return Buffer(memory_->allocate(bytes), bytes, device(), memory_);
  }

  Volume to_device(Volume volume) override { return copy_to_device(volume); }

  Volume copy_to_device(const Volume& volume) override {
    make_current(device().index());
    const std::size_t bytes = volume.info().bytes();
    Volume result(volume.info(), allocate(bytes));
    VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(result.data(), volume.data(), bytes, cudaMemcpyHostToDevice, memory_->stream()));
    VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(memory_->stream()));  // the host buffer may now be reused
    ++transfers_.h2d_count;
    transfers_.h2d_bytes += std::int64_t(bytes);
    return result;
  }

  Volume to_host(Volume volume) override {
    make_current(device().index());
    const std::size_t bytes = volume.info().bytes();
    Volume result(volume.info(), allocate_host(bytes));
    VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(result.data(), volume.data(), bytes, cudaMemcpyDeviceToHost, memory_->stream()));
    VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(memory_->stream()));
    ++transfers_.d2h_count;
    transfers_.d2h_bytes += std::int64_t(bytes);
    return result;
  }

  void upload(const RowsCopy& copy) override {
    queue_copy(copy, cudaMemcpyHostToDevice);
    ++transfers_.h2d_count;
    transfers_.h2d_bytes += std::int64_t(copy.bytes * copy.rows);
  }

  void download(const RowsCopy& copy) override {
    queue_copy(copy, cudaMemcpyDeviceToHost);
    ++transfers_.d2h_count;
    transfers_.d2h_bytes += std::int64_t(copy.bytes * copy.rows);
  }

  void synchronize() override {
    make_current(device().index());
    VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(memory_->stream()));
  }

  std::unique_ptr<TimePoint> record_time() override {
    make_current(device().index());
    auto point = std::make_unique<EventTimePoint>();
    VOLPIPE_CHECK_CUDA(cudaEventRecord(point->event, memory_->stream()));
    return point;
  }

  double elapsed_ms(const TimePoint& from, const TimePoint& to) override {
    make_current(device().index());
    const auto& end = static_cast<const EventTimePoint&>(to);
    VOLPIPE_CHECK_CUDA(cudaEventSynchronize(end.event));
    float ms = 0;
    VOLPIPE_CHECK_CUDA(cudaEventElapsedTime(&ms, static_cast<const EventTimePoint&>(from).event, end.event));
    return ms;
  }

  std::size_t free_memory() const override {
    make_current(device().index());
    std::size_t free = 0, total = 0;
    VOLPIPE_CHECK_CUDA(cudaMemGetInfo(&free, &total));
    return free + memory_->pool()->idle_cached();
  }

  std::size_t peak_memory() const override {
    make_current(device().index());
    return memory_->pool()->peak();
  }

  cudaStream_t stream() const { return memory_->stream(); }
  int multiprocessors() const { return multiprocessors_; }

 private:
  void queue_copy(const RowsCopy& copy, cudaMemcpyKind kind) {
    constexpr std::size_t kMaxPitch = (std::size_t(1) << 31) - 1;
    make_current(device().index());
    const bool adjoining = copy.source_pitch == copy.bytes && copy.target_pitch == copy.bytes;
    if (!adjoining && std::max(copy.source_pitch, copy.target_pitch) <= kMaxPitch) {
      VOLPIPE_CHECK_CUDA(cudaMemcpy2DAsync(copy.target, copy.target_pitch, copy.source, copy.source_pitch, copy.bytes,
                                           copy.rows, kind, stream()));
      return;
    }
    const std::size_t bytes = adjoining ? copy.bytes * copy.rows : copy.bytes;
    for (std::size_t row = 0; row < (adjoining ? 1 : copy.rows); ++row)
      VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(copy.target) + row * copy.target_pitch,
                                         static_cast<const std::byte*>(copy.source) + row * copy.source_pitch, bytes,
                                         kind, stream()));
  }

  std::shared_ptr<StreamMemory> memory_;
  int multiprocessors_ = 0;
};

CudaContext& cuda_of(DeviceContext& context) {
  if (!context.device().is_cuda()) throw Error(ErrorCode::internal, "a CUDA kernel was given a CPU context");
  return static_cast<CudaContext&>(context);
}

}  // namespace

cudaStream_t stream_of(DeviceContext& context) {
  make_current(context.device().index());
  return cuda_of(context).stream();
}

int multiprocessor_count(DeviceContext& context) { return cuda_of(context).multiprocessors(); }

void copy_to_device(DeviceContext& context, void* device, const void* host, std::size_t bytes) {
  // A pageable source is staged by the driver before the call returns, so the caller may drop it.
  VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(context)));
}

void copy_to_host(DeviceContext& context, void* host, const void* device, std::size_t bytes) {
  const cudaStream_t stream = stream_of(context);
  Buffer pinned = context.allocate_host(bytes);  // the driver's own staging is slower
  VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(pinned.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(stream));
  std::memcpy(host, pinned.data(), bytes);
}

namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Devices the driver shows, or the reason why there are none.
int device_count(std::string* reason) {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    *reason = "no NVIDIA driver is installed";
  } else if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    *reason = status == cudaErrorInsufficientDriver
                  ? "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
                        ", volpipe was built with CUDA " + runtime_version()
                  : std::string("CUDA cannot start: ") + cudaGetErrorString(status);
    count = 0;
  } else if (count == 0) {
    *reason = "no CUDA device is visible";
  }
  cudaGetLastError();
  return count;
}

/// Empty when this build has machine code (or PTX the driver can compile) for the device, and the device answers.
std::string why_no_code(int index) try {
  int major = 0, minor = 0;
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  const int capability = 10 * major + minor;
  if (capability >= VOLPIPE_LOWEST_CUDA_ARCHITECTURE) return "";
  return "this volpipe has no code for compute capability " + std::to_string(major) + "." + std::to_string(minor);
} catch (const Error& error) { return error.what(); }

/// A device that does not answer is listed with the reason.
DeviceInfo describe(int index) {
  DeviceInfo info;
  info.device = Device::cuda(index);
  try {
    cudaDeviceProp properties{};
    VOLPIPE_CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
    info.name = properties.name;
    info.memory_bytes = properties.totalGlobalMem;
    info.detail = "compute capability " + std::to_string(properties.major) + "." + std::to_string(properties.minor);
    info.reason = why_no_code(index);
  } catch (const Error& error) { info.reason = error.what(); }
  info.usable = info.reason.empty();
  return info;
}

}  // namespace

std::string runtime_version() { return version_text(CUDART_VERSION); }

std::vector<DeviceInfo> list_devices() {
  std::string reason;
  const int count = device_count(&reason);
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) devices.push_back(describe(index));
  if (count == 0) {
    DeviceInfo none;
    none.device = Device::cuda(0);
    none.name = "CUDA";
    none.usable = false;
    none.reason = reason;
    devices.push_back(std::move(none));
  }
  return devices;
}

std::string why_unusable(int index) {
  std::string reason;
  const int count = device_count(&reason);
  if (count == 0) return reason;
  if (index >= count)
    return "there is no CUDA device " + std::to_string(index) + ": " + std::to_string(count) + " visible (cuda:0" +
           (count > 1 ? " to cuda:" + std::to_string(count - 1) : "") + ")";
  return why_no_code(index);
}

std::unique_ptr<DeviceContext> make_context(int index, HostResources host) {
  make_current(index);
  return std::make_unique<CudaContext>(index, std::move(host), std::make_shared<DevicePool>(index));
}

std::shared_ptr<HostMemory> pinned_memory(int index) { return std::make_shared<PinnedMemory>(index); }

}  // namespace volpipe::cuda
