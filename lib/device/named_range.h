// Names for stretches of work that profilers of NVIDIA show (NVTX).
#pragma once

#include <string>

#include "device/cuda_hooks.h"

namespace volpipe {

namespace cuda {
VOLPIPE_CUDA_CODE void push_named_range(const char* name);
VOLPIPE_CUDA_CODE void pop_named_range();
}  // namespace cuda

/// Names what the context's thread does during its life; nothing on the CPU. Costs nanoseconds without a profiler.
class NamedRange {
 public:
  NamedRange(const DeviceContext& context, const std::string& name) : active_(context.device().is_cuda()) {
    if (active_) cuda::push_named_range(name.c_str());
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
  ~NamedRange() {
    if (active_) cuda::pop_named_range();
  }

 private:
  bool active_;
};

}  // namespace volpipe
