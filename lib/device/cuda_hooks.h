// The border between host code and the .cu files. A build without CUDA leaves these (and every function marked
// VOLPIPE_CUDA_CODE) undefined; cuda_compiled() tells.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/context.h"

/// Marks a function whose only definition is in a .cu file. Weak: its address is null in a build without CUDA.
#define VOLPIPE_CUDA_CODE __attribute__((weak))

namespace volpipe::cuda {

VOLPIPE_CUDA_CODE std::string runtime_version();  ///< "13.0"
VOLPIPE_CUDA_CODE std::vector<DeviceInfo> list_devices();
VOLPIPE_CUDA_CODE std::string why_unusable(int index);
VOLPIPE_CUDA_CODE std::unique_ptr<DeviceContext> make_context(int index, HostResources host);
VOLPIPE_CUDA_CODE std::shared_ptr<HostMemory> pinned_memory(int index);

}  // namespace volpipe::cuda

namespace volpipe {

inline bool cuda_compiled() { return &cuda::make_context != nullptr; }

/// Calls the definition that belongs to the context's device.
///   run_on(context, cpu::convolve, cuda::convolve, arguments...)
/// Both take (DeviceContext&, arguments...).
template <class CpuFunction, class CudaFunction, class... Arguments>
decltype(auto) run_on(DeviceContext& context, CpuFunction* on_cpu, CudaFunction* on_cuda, Arguments&&... arguments) {
  return context.device().is_cpu() ? on_cpu(context, std::forward<Arguments>(arguments)...)
                                   : on_cuda(context, std::forward<Arguments>(arguments)...);
}

}  // namespace volpipe
