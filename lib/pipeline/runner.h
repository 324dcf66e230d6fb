// Runs a pipeline over items: reading, computing and writing of different items overlap.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/item_steps.h"
#include "pipeline/items.h"
#include "pipeline/journal.h"
#include "pipeline/report.h"

namespace volpipe {

struct RunOptions {
  std::string output_directory;
  DeviceChoice device;
  bool allow_fallback = true;
  int threads = 0;                ///< host threads that compute, pack and unpack; 0: all available
  std::size_t memory_limit = 0;   ///< bytes of host memory for volumes in flight; 0: half of what is available
  std::size_t device_memory = 0;  ///< bytes of each GPU's memory; 0: what is free
  bool overwrite = false;
  bool stop_on_error = false;
  bool strict = false;  ///< a notice about an input fails the item
  std::uint64_t seed = 0;
  io::ReadOptions reading{};
  Trace* trace = nullptr;
  Journal* journal = nullptr;  ///< gets every finished item
};

/// "auto", "cpu", "cuda", "cuda:N", "cuda:N,M" or "cuda:all" -> what is used. Throws Error(usage) for another word,
/// Error(device) when a device cannot be used and `allow_fallback` is false; else those that can be used are, or the
/// CPU. Creates no CUDA context.
DeviceChoice choose_device(const std::string& requested, bool allow_fallback);

/// How far a run is.
struct RunProgress {
  std::size_t done = 0, total = 0;         ///< items
  double bytes_done = 0, bytes_total = 0;  ///< of the input files
  double voxel_bytes = 0;                  ///< of the volumes read from them
  double elapsed_ms = 0;
  std::vector<std::pair<std::string, double>> load;  ///< device, share of the time since the last call that it computed
};

/// Who watches a run. Calls come from any thread, one at a time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void finished(const ItemRecord& /*record*/, const RunProgress& /*progress*/) {}
  /// Once, when the run ends early on a signal.
  virtual void interrupted() {}
  /// Several times a second.
  virtual void tick(const RunProgress& /*progress*/) {}
};

/// All items; never throws for an item's fault. Stops early on `interrupted`, on a fault of the output device
/// (Error(output)), or on any fault with stop_on_error: what was being computed is written, what was not started is
/// recorded as skipped. Results do not depend on threads, devices of one kind, or the order of items.
RunRecord run_items(const Pipeline& pipeline, const Items& items, const RunOptions& options,
                    const std::atomic<int>& interrupted, RunObserver& observer);

}  // namespace volpipe
