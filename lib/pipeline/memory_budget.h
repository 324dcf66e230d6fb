// A bound on bytes in use, shared by threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace volpipe {

/// Hands out shares of a number of bytes, first come, first served. It counts; it allocates nothing.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t total) : total_(total) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// Bytes of a budget, given back when it dies. The budget must outlive it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { shrink(0); }

    std::size_t bytes() const { return bytes_; }
    /// Gives back all but `bytes`.
    void shrink(std::size_t bytes);

   private:
    friend class MemoryBudget;
    Share(MemoryBudget* budget, std::size_t bytes) : budget_(budget), bytes_(bytes) {}
    MemoryBudget* budget_ = nullptr;
    std::size_t bytes_ = 0;
  };

  /// Waits until the bytes are free; who asks for more than total() waits until it has all there is. Nothing once
  /// close() was called.
  std::optional<Share> acquire(std::size_t bytes);
  /// At once, beyond total() if need be: for work in hand that cannot wait.
  Share overdraw(std::size_t bytes);
  /// Wakes all who wait.
  void close();

  std::size_t total() const { return total_; }

 private:
  void release(std::size_t bytes);

  const std::size_t total_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t used_ = 0;
  std::uint64_t next_ticket_ = 0, serving_ = 0;
  bool closed_ = false;
};

}  // namespace volpipe
