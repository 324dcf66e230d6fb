#include "stages/custom/run_kernel.h"

namespace volpipe {

std::size_t reduction_scratch_bytes(std::int64_t values) {
  const auto chunks = std::size_t((values + kReductionChunk - 1) / kReductionChunk);
  return (chunks + (chunks + kReductionChunk - 1) / kReductionChunk) * sizeof(double);
}

}  // namespace volpipe
