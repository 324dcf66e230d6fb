// Computes items where they can be: on their device, with less beside them, in slabs, or on the CPU.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "pipeline/item_work.h"
#include "pipeline/working_device.h"

namespace volpipe {

/// What the volumes of one item may take of the host's memory.
struct HostBound {
  std::size_t asked = 0;  ///< by the user; 0: not
  std::size_t available;  ///< when the run began

  /// Throws Error(out_of_memory).
  void check(std::size_t bytes) const;
};

/// Any thread may compute, each with a context of its own.
class ItemComputer {
 public:
  /// `budget` bounds host memory. Without `allow_fallback`, what a GPU cannot do is an error.
  ItemComputer(const Pipeline& pipeline, std::shared_ptr<const HostThreads> threads, const HostBound& host_bound,
               MemoryBudget& budget, bool allow_fallback)
      : pipeline_(pipeline),
        threads_(std::move(threads)),
        host_bound_(host_bound),
        budget_(budget),
        allow_fallback_(allow_fallback) {}

  /// work.images become the results, on the host. `context` is the calling worker's, made here when there is none yet.
  /// A GPU that fails is lost to the run. Throws Error.
  void compute(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context, const Tracing& tracing);

 private:
  bool compute_on_gpu(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context,
                      const Tracing& tracing);
  std::string try_on_gpu(ItemWork& work, WorkingDevice& device, DeviceContext& context, const Tracing& tracing);
  void compute_instead_on_cpu(ItemWork& work, WorkingDevice& device, const Tracing& tracing);
  void run_plan(ItemWork& work, WorkingDevice& device, DeviceContext& context, const Tracing& tracing);
  void run_slabs(ItemWork& work, WorkingDevice& device, DeviceContext& context, const SlabPlan& slabs,
                 const Tracing& tracing);
  bool refuse(ItemWork& work, const std::string& reason) const;

  const Pipeline& pipeline_;
  const std::shared_ptr<const HostThreads> threads_;
  const HostBound host_bound_;
  MemoryBudget& budget_;
  const bool allow_fallback_;
  std::mutex cpu_mutex_;
  std::unique_ptr<DeviceContext> cpu_;
};

}  // namespace volpipe
