#include "volume/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <string>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t(2) << 20;

class HostMemory final : public MemorySource {
 public:
  void release(void* data, std::size_t) noexcept override { std::free(data); }
};

}  // namespace

void* allocate_host_memory(std::size_t bytes) {
  const bool large = bytes >= 4 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kAlignment;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded ? rounded : alignment);
  if (!data) throw Error(ErrorCode::out_of_memory, "no host memory for " + std::to_string(bytes) + " bytes");
  // The first touch of small pages takes longer than most stages do; where huge ones are not to be had, nothing
  // changes.
  if (large) madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

Buffer Buffer::host(std::size_t bytes) {
  static const auto source = std::make_shared<HostMemory>();
  return Buffer(allocate_host_memory(bytes), bytes, Device::cpu(), source);
}

}  // namespace volpipe
