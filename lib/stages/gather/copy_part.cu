#include "device/cuda_context.h"
#include "stages/gather/copy_part.h"

namespace volpipe::cuda {

void copy_rows(DeviceContext& context, const RowsCopy& copy) {
  const cudaStream_t stream = stream_of(context);
  if (copy.rows == 1) {
    VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(copy.target, copy.source, copy.bytes, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  for_each(context, std::int64_t(copy.bytes * copy.rows), [copy] __device__(std::int64_t i) {
    const std::size_t row = std::size_t(i) / copy.bytes, at = std::size_t(i) % copy.bytes;
    static_cast<unsigned char*>(copy.target)[row * copy.target_pitch + at] =
        static_cast<const unsigned char*>(copy.source)[row * copy.source_pitch + at];
  });
}

}  // namespace volpipe::cuda
