#include "device/cuda_context.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "volume/error.h"

namespace volpipe::cuda {

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  const std::string where = std::string(cudaGetErrorString(status)) + " in " + call + " (" +
                            std::string(file).substr(std::string(file).rfind('/') + 1) + ":" + std::to_string(line) + ")";
  throw Error(status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device, where);
}

namespace {

/// Makes a device current on this host thread. Every entry point calls it, so nothing relies on what was current.
void make_current(int index) {
  int current = -1;
  VOLPIPE_CHECK_CUDA(cudaGetDevice(&current));
  if (current != index) VOLPIPE_CHECK_CUDA(cudaSetDevice(index));
}

/// One stream and the device's stream-ordered pool; buffers share it, so it outlives them.
class StreamMemory final : public MemorySource {
 public:
  explicit StreamMemory(int index) {
    VOLPIPE_CHECK_CUDA(cudaSetDevice(index));
    VOLPIPE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = index;
    VOLPIPE_CHECK_CUDA(cudaMemPoolCreate(&pool_, &properties));
    std::uint64_t keep = ~std::uint64_t(0);
    VOLPIPE_CHECK_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  ~StreamMemory() override {
    cudaStreamSynchronize(stream_);
    cudaMemPoolDestroy(pool_);
    cudaStreamDestroy(stream_);
  }

  void* allocate(std::size_t bytes) {
    void* data = nullptr;
    const std::size_t request = std::max<std::size_t>(bytes, 1);
    cudaError_t status = cudaMallocFromPoolAsync(&data, request, pool_, stream_);
    if (status == cudaErrorMemoryAllocation) {  // one retry with the freed caches given back
      cudaGetLastError();
      VOLPIPE_CHECK_CUDA(cudaStreamSynchronize(stream_));
      VOLPIPE_CHECK_CUDA(cudaMemPoolTrimTo(pool_, 0));
      status = cudaMallocFromPoolAsync(&data, request, pool_, stream_);
    }
    VOLPIPE_CHECK_CUDA(status);
    return data;
  }
  void release(void* data, std::size_t) noexcept override { cudaFreeAsync(data, stream_); }

  std::size_t peak() const {
    std::uint64_t high = 0;
    VOLPIPE_CHECK_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &high));
    return high;
  }
  std::size_t idle_cached() const {
    std::uint64_t reserved = 0, used = 0;
    VOLPIPE_CHECK_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
    VOLPIPE_CHECK_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    return reserved - used;
  }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
};

/// Pinned blocks, kept for reuse because pinning costs more than copying.
class PinnedMemory final : public MemorySource {
 public:
  ~PinnedMemory() override {
    for (auto& [bytes, data] : idle_) cudaFreeHost(data);
  }

  Buffer allocate(std::size_t bytes, std::shared_ptr<PinnedMemory> self) {
    const std::size_t request = std::max<std::size_t>((bytes + kStep - 1) / kStep * kStep, kStep);
    {
      const std::lock_guard lock(mutex_);
      const auto found = idle_.lower_bound(request);
      if (found != idle_.end() && found->first <= 2 * request) {
        void* data = found->second;
        sizes_[data] = found->first;
        idle_.erase(found);
        return Buffer(data, bytes, Device::cpu(), std::move(self));
      }
    }
    void* data = nullptr;
    VOLPIPE_CHECK_CUDA(cudaHostAlloc(&data, request, cudaHostAllocPortable));
    const std::lock_guard lock(mutex_);
    sizes_[data] = request;
    return Buffer(data, bytes, Device::cpu(), std::move(self));
  }

  void release(void* data, std::size_t) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    idle_.emplace(found->second, data);
    sizes_.erase(found);
  }

 private:
  static constexpr std::size_t kStep = std::size_t(1) << 20;
  std::mutex mutex_;
  std::multimap<std::size_t, void*> idle_;
  std::map<void*, std::size_t> sizes_;
};

class EventTimePoint final : public TimePoint {
 public:
  EventTimePoint() { VOLPIPE_CHECK_CUDA(cudaEventCreate(&event)); }
  ~EventTimePoint() override { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

class CudaContext final : public DeviceContext {
 public:
  CudaContext(int index, int threads)
      : DeviceContext(Device::cuda(index), threads),
        memory_(std::make_shared<StreamMemory>(index)),
        pinned_(std::make_shared<PinnedMemory>()) {
    VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, index));
  }

  ~CudaContext() override {
    cudaStreamSynchronize(memory_->stream());
    kept_.clear();
  }

  Buffer allocate(std::size_t bytes) override {
    make_current(device().index());
    return Buffer(memory_->allocate(bytes), bytes, device(), memory_);
  }

  Buffer allocate_host(std::size_t bytes) override {
    make_current(device().index());
    return pinned_->allocate(bytes, pinned_);
  }

  Volume to_device(Volume volume) override {
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
    return free + memory_->idle_cached();
  }

  std::size_t peak_memory() const override {
    make_current(device().index());
    return memory_->peak();
  }

  cudaStream_t stream() const { return memory_->stream(); }
  int multiprocessors() const { return multiprocessors_; }

 private:
  std::shared_ptr<StreamMemory> memory_;
  std::shared_ptr<PinnedMemory> pinned_;
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

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

/// Devices the driver shows, or the reason why there are none.
int device_count(std::string* reason) {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    *reason = "no NVIDIA driver is installed";
  } else if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    *reason = status == cudaErrorInsufficientDriver
                  ? "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) + ", volpipe was built with CUDA " + runtime_version()
                  : std::string("CUDA cannot start: ") + cudaGetErrorString(status);
    count = 0;
  } else if (count == 0) {
    *reason = "no CUDA device is visible";
  }
  cudaGetLastError();
  return count;
}

/// Empty when this build has machine code (or PTX the driver can compile) for the device.
std::string why_no_code(int index) {
  int major = 0, minor = 0;
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  const int capability = 10 * major + minor;
  if (capability >= VOLPIPE_LOWEST_CUDA_ARCHITECTURE) return "";
  return "this volpipe has no code for compute capability " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

std::string runtime_version() { return version_text(CUDART_VERSION); }

std::vector<DeviceInfo> list_devices() {
  std::string reason;
  const int count = device_count(&reason);
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    VOLPIPE_CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
    DeviceInfo info;
    info.device = Device::cuda(index);
    info.name = properties.name;
    info.memory_bytes = properties.totalGlobalMem;
    info.detail = "compute capability " + std::to_string(properties.major) + "." + std::to_string(properties.minor);
    info.reason = why_no_code(index);
    info.usable = info.reason.empty();
    devices.push_back(std::move(info));
  }
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

std::unique_ptr<DeviceContext> make_context(int index, int threads) { return std::make_unique<CudaContext>(index, threads); }

}  // namespace volpipe::cuda
