// The devices of a run and the threads' places on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "device/context.h"
#include "pipeline/memory_budget.h"

namespace volpipe {

/// One device of a run, shared by its workers. A GPU gets its context when the first of them needs it.
class WorkingDevice {
 public:
  /// `memory`: bytes of a GPU that may be used, 0: what is free.
  WorkingDevice(Device device, HostResources host, std::size_t memory)
      : device_(device), host_(std::move(host)), memory_(memory) {}

  Device device() const { return device_; }

  /// A context for one worker, with an order of its own. Throws Error(device).
  std::unique_ptr<DeviceContext> make_context();
  /// Of the device's memory; there once a context was made.
  MemoryBudget& budget() { return *budget_; }
  std::size_t peak_memory() const;  ///< 0 where it cannot be told

  /// It failed and is not used any more.
  void lose(const std::string& reason);
  bool lost() const { return lost_; }
  std::string why_lost() const;

  /// Time that at least one worker computed since the last call.
  double take_busy_ms();
  /// A worker computes while it lives.
  class Busy {
   public:
    explicit Busy(WorkingDevice& device) : device_(device) { device_.begin_work(); }
    ~Busy() { device_.end_work(); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    WorkingDevice& device_;
  };

 private:
  void begin_work();
  void end_work();

  Device device_;
  HostResources host_;
  std::size_t memory_;
  mutable std::mutex mutex_;
  std::unique_ptr<DeviceContext> first_;
  std::optional<MemoryBudget> budget_;
  std::atomic<bool> lost_{false};
  std::string why_lost_;
  int working_ = 0;
  double working_since_ms_ = 0, busy_ms_ = 0;
};

}  // namespace volpipe
