#include "device/cuda_context.h"
#include "device/shared_memory.h"

namespace volpipe::cuda {

void allow_most_shared_memory(DeviceContext& context, const void* kernel) {
  stream_of(context);  // makes the device current
  int most = 0;
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device().index()));
  cudaFuncAttributes attributes{};
  VOLPIPE_CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  const int dynamic = most - int(attributes.sharedSizeBytes);
  if (attributes.maxDynamicSharedSizeBytes == dynamic) return;
  VOLPIPE_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic));
}

}  // namespace volpipe::cuda
