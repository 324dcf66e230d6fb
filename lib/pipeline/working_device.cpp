#include "pipeline/working_device.h"

#include <algorithm>
#include <utility>

#include "pipeline/trace.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kUsable = 0.95;  // of what is free: kernels and libraries load code as well

}  // namespace

std::unique_ptr<DeviceContext> WorkingDevice::make_context() {
  const std::lock_guard lock(mutex_);
  if (!first_) {
    auto context = volpipe::make_context(device_, host_);
    const auto usable = std::size_t(double(context->free_memory()) * kUsable);
    budget_.emplace(memory_ ? std::min(memory_, usable) : usable);
    first_ = std::move(context);
  }
  return first_->sibling();
}

std::size_t WorkingDevice::peak_memory() const {
  const std::lock_guard lock(mutex_);
  if (!first_ || !device_.is_cuda() || lost_) return 0;
  try {
    return first_->peak_memory();
  } catch (const Error&) { return 0; }
}

void WorkingDevice::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!lost_) why_lost_ = reason;
  lost_ = true;
}

std::string WorkingDevice::why_lost() const {
  const std::lock_guard lock(mutex_);
  return why_lost_;
}

void WorkingDevice::begin_work() {
  const std::lock_guard lock(mutex_);
  if (working_++ == 0) working_since_ms_ = host_clock_ms();
}

void WorkingDevice::end_work() {
  const std::lock_guard lock(mutex_);
  if (--working_ == 0) busy_ms_ += host_clock_ms() - working_since_ms_;
}

double WorkingDevice::take_busy_ms() {
  const std::lock_guard lock(mutex_);
  if (working_) {
    const double now = host_clock_ms();
    busy_ms_ += now - working_since_ms_;
    working_since_ms_ = now;
  }
  return std::exchange(busy_ms_, 0.0);
}

}  // namespace volpipe
