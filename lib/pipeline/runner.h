// Runs a pipeline over items. The three steps of an item are separate, so that reading, computing and writing of
// different items can overlap; here they follow one another.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "pipeline/execute.h"
#include "pipeline/items.h"
#include "pipeline/report.h"

namespace volpipe {

struct RunOptions {
  std::string output_directory;
  DeviceChoice device;
  bool allow_fallback = true;
  int threads = 0;               ///< 0: all available
  std::size_t memory_limit = 0;  ///< bytes of one item's volumes in flight; 0: no bound
  bool overwrite = false;
  bool stop_on_error = false;
  bool strict = false;  ///< a notice fails the item
  std::uint64_t seed = 0;
};

/// "auto", "cpu", "cuda" or "cuda:N" -> what is used. Throws Error(usage) for another word, Error(device) when the
/// device cannot be used and `allow_fallback` is false. Creates no CUDA context.
DeviceChoice choose_device(const std::string& requested, bool allow_fallback);

/// Step 1: the item's volumes in host memory from `allocate`.
Images read_item(const Pipeline& pipeline, const Item& item, const io::HostAllocator& allocate,
                 std::size_t memory_limit, ItemRecord& record);
/// Step 2: upload, run the plan, download; one transfer each way per image that is written. `plan` is made anew where
/// it depends on voxels.
Images compute_item(DeviceContext& context, const Pipeline& pipeline, Plan& plan, const ItemKey& key, StageFiles& files,
                    Images images, ItemRecord& record);
/// Step 3: write what the pipeline's outputs name, and the maps it saves.
void write_item(const Pipeline& pipeline, const Item& item, const Plan& plan, const Images& images,
                const RunOptions& options, ItemRecord& record);

/// Called after each item, in order.
using ItemObserver = std::function<void(const ItemRecord&, std::size_t done, std::size_t total)>;

/// All items, one after another; never throws for an item's fault. Stops early on `interrupted`, on a fault of the
/// output device (Error(output)), or on any fault with stop_on_error; what was not started is recorded as skipped.
RunRecord run_items(const Pipeline& pipeline, const Items& items, const RunOptions& options,
                    const std::atomic<int>& interrupted, const ItemObserver& observer);

}  // namespace volpipe
