// What .cu files see of a CUDA context: its stream, checked calls, and the launch of a loop or kernel.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "device/context.h"
#include "device/cuda_hooks.h"
#include "device/host_device.h"

namespace volpipe::cuda {

/// Throws Error(out_of_memory | device) with the call's text and place; clears the sticky error.
void check(cudaError_t status, const char* call, const char* file, int line);
/// What a test wants the next call to fail with instead of being made; success in every other program.
cudaError_t injected_fault();
#define VOLPIPE_CHECK_CUDA(call)                                                           \
  ::volpipe::cuda::check(                                                                  \
      [&] {                                                                                \
        const cudaError_t fault = ::volpipe::cuda::injected_fault();                       \
        return fault == cudaSuccess ? (call) : fault;                                      \
      }(),                                                                                 \
      #call, __FILE__, __LINE__)

/// The context's stream, with its device made current on this host thread.
cudaStream_t stream_of(DeviceContext& context);
int multiprocessor_count(DeviceContext& context);

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Copies within the context's order: small tables up (staged, not counted as image transfers), results down (waits).
void copy_to_device(DeviceContext& context, void* device, const void* host, std::size_t bytes);
void copy_to_host(DeviceContext& context, void* host, const void* device, std::size_t bytes);

/// An uploaded table of T, alive as long as this object and the work queued on it.
template <class T>
class DeviceTable {
 public:
  DeviceTable(DeviceContext& context, const T* host, std::size_t count) : buffer_(context.allocate(count * sizeof(T))) {
    if (count) copy_to_device(context, buffer_.data(), host, count * sizeof(T));
  }
  DeviceTable(DeviceContext& context, const std::vector<T>& host) : DeviceTable(context, host.data(), host.size()) {}
  const T* data() const { return static_cast<const T*>(buffer_.data()); }

 private:
  Buffer buffer_;
};

template <class Body>
__global__ void for_each_kernel(std::int64_t count, Body body) {
  const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < count; i += step) body(i);
}

/// body(i) for i in [0, count), one functor for both devices (see also DeviceContext::parallel).
template <class Body>
void for_each(DeviceContext& context, std::int64_t count, Body body) {
  if (count <= 0) return;
  const cudaStream_t stream = stream_of(context);
  const int threads = 256;
  const auto blocks =
      std::min<std::int64_t>(divide_up(count, threads), std::int64_t(multiprocessor_count(context)) * 32);
  for_each_kernel<<<unsigned(blocks), threads, 0, stream>>>(count, body);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace volpipe::cuda
