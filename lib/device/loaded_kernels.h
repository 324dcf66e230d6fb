// Programs that were compiled at run time, loaded on one device, and the launch of their kernels.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/cuda_hooks.h"

namespace volpipe {

/// How many threads run a kernel, as blocks of threads along x, y, z.
struct LaunchSize {
  std::array<std::int64_t, 3> blocks{1, 1, 1}, threads{1, 1, 1};
};

/// What every GPU can do.
inline constexpr std::array<std::int64_t, 3> kMostBlocks{0x7fffffff, 0xffff, 0xffff};
inline constexpr std::int64_t kMostThreadsOfBlock = 1024;

}  // namespace volpipe

namespace volpipe::cuda {

/// Stays loaded as long as the object, which must not die before the work that was queued with it is done:
/// DeviceContext::kept() sees to that.
class LoadedKernels {
 public:
  virtual ~LoadedKernels() = default;
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  /// Queues the kernel in the context's order. `arguments` point to one value for each of its parameters, in order and
  /// of their types, which nothing checks; they are copied before the call returns. A size without blocks does nothing.
  /// Throws Error(usage) when there is no such kernel or it cannot run with so many threads, Error(device) when the
  /// device has failed.
  virtual void launch(DeviceContext& context, const std::string& kernel, const LaunchSize& size,
                      std::span<void* const> arguments) const = 0;

 protected:
  LoadedKernels() = default;
};

/// Loads a cubin for the context's device. Throws Error(device) when the driver cannot load it.
VOLPIPE_CUDA_CODE std::shared_ptr<LoadedKernels> load_kernels(DeviceContext& context, const std::string& cubin);

/// The context's device as compilers name it, 90 for compute capability 9.0.
VOLPIPE_CUDA_CODE int architecture_of(DeviceContext& context);

}  // namespace volpipe::cuda
