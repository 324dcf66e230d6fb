#include "device/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::size_t kLeastKept = std::size_t(1) << 20;

std::size_t available_to_machine() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::size_t(sysconf(_SC_AVPHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE));
}

/// A file that holds one number; nothing where it is missing or says "max".
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// Pages of files that the kernel gives up when memory is short.
std::size_t reclaimable_in(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  std::size_t value = 0;
  while (file >> key >> value)
    if (key == "inactive_file" || key == "total_inactive_file") return value;
  return 0;
}

std::size_t left_in_group(const std::string& folder, const char* limit_name, const char* usage_name) {
  const auto limit = number_in(folder + limit_name), usage = number_in(folder + usage_name);
  if (!limit || !usage) return std::numeric_limits<std::size_t>::max();
  const std::size_t used = *usage - std::min(*usage, reclaimable_in(folder + "memory.stat"));
  return *limit - std::min(*limit, used);
}

/// The least that the process's control groups, from its own to the root, leave.
std::size_t available_to_group() {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("memory") == std::string::npos) continue;
    std::string group = line.substr(second + 1);
    for (;;) {
      const std::string folder = (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + group + "/";
      least = std::min(least, unified ? left_in_group(folder, "memory.max", "memory.current")
                                      : left_in_group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return least;
}

}  // namespace

std::size_t available_host_memory() { return std::min(available_to_machine(), available_to_group()); }

class HostMemory::Source final : public MemorySource {
 public:
  explicit Source(std::shared_ptr<HostMemory> pool) : pool_(std::move(pool)) {}
  void release(void* data, std::size_t bytes) noexcept override { pool_->release(data, bytes); }

 private:
  std::shared_ptr<HostMemory> pool_;
};

std::shared_ptr<HostMemory> HostMemory::pageable() {
  struct Pageable final : HostMemory {
    Pageable() : HostMemory(false) {}
    ~Pageable() override { free_idle(0); }
  };
  return std::make_shared<Pageable>();
}

HostMemory::~HostMemory() = default;

Buffer HostMemory::allocate(std::size_t bytes) {
  auto source = std::make_shared<Source>(shared_from_this());
  const std::lock_guard lock(mutex_);
  const std::size_t capacity = capacity_of(bytes);
  void* data = take_idle(capacity);
  if (!data) data = take_fresh(capacity);
  const auto add = [](Level& level, std::size_t amount) {
    level.now += amount;
    level.highest = std::max(level.highest, level.now);
  };
  add(asked_, bytes);
  add(taken_, capacity);
  return Buffer(data, bytes, Device::cpu(), std::move(source));
}

std::size_t HostMemory::peak() const {
  const std::lock_guard lock(mutex_);
  return asked_.highest;
}

/// Eight sizes from one power of two to the next, so that volumes of nearly one size share blocks.
std::size_t HostMemory::capacity_of(std::size_t bytes) const {
  if (bytes < kLeastKept) return keeps_small_ ? kLeastKept : bytes;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

void* HostMemory::take(std::size_t bytes) { return allocate_host_memory(bytes); }

void HostMemory::give_back(void* data) noexcept { std::free(data); }

void HostMemory::release(void* data, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t capacity = capacity_of(bytes);
  asked_.now -= bytes;
  taken_.now -= capacity;
  if (capacity < kLeastKept) return give_back(data);
  try {
    idle_.emplace(capacity, data);
    idle_bytes_ += capacity;
  } catch (const std::bad_alloc&) { give_back(data); }
}

void* HostMemory::take_idle(std::size_t capacity) {
  const auto found = idle_.find(capacity);
  if (found == idle_.end()) return nullptr;
  void* data = found->second;
  idle_.erase(found);
  idle_bytes_ -= capacity;
  return data;
}

void* HostMemory::take_fresh(std::size_t capacity) {
  const std::size_t wanted = taken_.now + capacity;
  free_idle(std::max(taken_.highest, wanted) - wanted);
  try {
    return take(capacity);
  } catch (const Error&) {
    if (idle_.empty()) throw;
  }
  free_idle(0);
  return take(capacity);
}

void HostMemory::free_idle(std::size_t left) {
  while (idle_bytes_ > left) {
    const auto largest = std::prev(idle_.end());
    idle_bytes_ -= largest->first;
    give_back(largest->second);
    idle_.erase(largest);
  }
}

}  // namespace volpipe
