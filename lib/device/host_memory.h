// Host memory for volumes, reused from one to the next.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "volume/buffer.h"

namespace volpipe {

/// Bytes that this process may still take: what the machine has available, or what its control group leaves.
std::size_t available_host_memory();

/// A pool that any number of threads and contexts share. Large blocks are kept when they are freed, because getting
/// fresh pages takes as long as most stages do, and pinning them longer. Kept and used blocks together stay below the
/// most that was used at one time.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Ordinary memory.
  static std::shared_ptr<HostMemory> pageable();
  virtual ~HostMemory();

  /// At least 64-byte aligned; keeps the pool alive. Throws Error(out_of_memory).
  Buffer allocate(std::size_t bytes);
  std::size_t peak() const;  ///< most bytes used at one time

 protected:
  /// Blocks below a megabyte are kept only with `keeps_small`, where taking one is costly.
  explicit HostMemory(bool keeps_small) : keeps_small_(keeps_small) {}
  virtual void* take(std::size_t bytes);
  virtual void give_back(void* data) noexcept;
  void free_idle(std::size_t left);  ///< for destructors of derived classes: free_idle(0)

 private:
  class Source;
  void release(void* data, std::size_t bytes) noexcept;
  std::size_t capacity_of(std::size_t bytes) const;
  void* take_idle(std::size_t capacity);
  void* take_fresh(std::size_t capacity);

  const bool keeps_small_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> idle_;  ///< by capacity
  std::size_t idle_bytes_ = 0;
  struct Level {
    std::size_t now = 0, highest = 0;
  } asked_{}, taken_{};  ///< bytes in use: as asked for, by capacity
};

}  // namespace volpipe
