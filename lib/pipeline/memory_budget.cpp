#include "pipeline/memory_budget.h"

#include <algorithm>

namespace volpipe {

void MemoryBudget::Share::shrink(std::size_t bytes) {
  if (bytes >= bytes_) return;
  budget_->release(bytes_ - bytes);
  bytes_ = bytes;
}

std::optional<MemoryBudget::Share> MemoryBudget::acquire(std::size_t bytes) {
  const std::size_t wanted = std::min(bytes, total_);
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = next_ticket_++;
  changed_.wait(lock, [&] { return closed_ || (ticket == serving_ && used_ + wanted <= total_); });
  if (closed_) return std::nullopt;
  ++serving_;
  used_ += wanted;
  changed_.notify_all();
  return Share(this, wanted);
}

MemoryBudget::Share MemoryBudget::overdraw(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ += bytes;
  return Share(this, bytes);
}

void MemoryBudget::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void MemoryBudget::release(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  changed_.notify_all();
}

}  // namespace volpipe
