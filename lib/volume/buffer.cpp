#include "volume/buffer.h"

#include <cstdlib>
#include <string>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::size_t kAlignment = 64;

class HostMemory final : public MemorySource {
 public:
  void release(void* data, std::size_t) noexcept override { std::free(data); }
};

}  // namespace

void* allocate_host_memory(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment);
  if (!data) throw Error(ErrorCode::out_of_memory, "no host memory for " + std::to_string(bytes) + " bytes");
  return data;
}

Buffer Buffer::host(std::size_t bytes) {
  static const auto source = std::make_shared<HostMemory>();
  return Buffer(allocate_host_memory(bytes), bytes, Device::cpu(), source);
}

}  // namespace volpipe
