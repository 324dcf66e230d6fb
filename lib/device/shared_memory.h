// Shared memory beyond what a kernel has without asking. For .cu files.
#pragma once

#include "device/context.h"

namespace volpipe::cuda {

/// Lets the kernel have as much dynamic shared memory as a block of the context's device can. Never less: the limit is
/// the kernel's, not the launch's, and other threads launch the same kernel with other sizes.
void allow_most_shared_memory(DeviceContext& context, const void* kernel);

}  // namespace volpipe::cuda
