#include "pipeline/item_computer.h"

#include "pipeline/slabs.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Runs with a share of the device's memory; false, and the reason, when that was not enough.
template <class Body>
bool run_within(WorkingDevice& device, std::size_t bytes, std::string& reason, Body&& body) {
  const auto share = device.budget().acquire(bytes);
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    reason = error.what();
    return false;
  }
}

}  // namespace

void HostBound::check(std::size_t bytes) const {
  const std::size_t limit = asked ? asked : available;
  if (bytes <= limit) return;
  throw Error(ErrorCode::out_of_memory, "needs " + human_bytes(bytes) + " for its volumes, " +
                                            (asked ? "more than the " + human_bytes(limit) + " that --memory allows"
                                                   : human_bytes(limit) + " are available"));
}

void ItemComputer::compute(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context,
                           const Tracing& tracing) {
  if (device.device().is_cpu()) {
    if (!context) context = device.make_context();
    run_plan(work, device, *context, tracing);
  } else if (!compute_on_gpu(work, device, context, tracing)) {
    compute_instead_on_cpu(work, device, tracing);
  }
}

void ItemComputer::run_plan(ItemWork& work, WorkingDevice& device, DeviceContext& context, const Tracing& tracing) {
  const WorkingDevice::Busy busy(device);
  work.images = compute_item(context, pipeline_, work.plan, work.key, work.files, work.images, work.record, tracing);
}

/// False when the GPU cannot do it; the record says why.
bool ItemComputer::compute_on_gpu(ItemWork& work, WorkingDevice& device, std::unique_ptr<DeviceContext>& context,
                                  const Tracing& tracing) {
  if (device.lost()) return refuse(work, device.why_lost());
  try {
    if (!context) context = device.make_context();
    const std::string reason = try_on_gpu(work, device, *context, tracing);
    return reason.empty() || refuse(work, reason);
  } catch (const Error& error) {
    if (!allow_fallback_) throw;
    if (error.code() == ErrorCode::out_of_memory && !context) return refuse(work, error.what());
    if (error.code() != ErrorCode::device) throw;
    device.lose(error.what());
    return refuse(work, error.what());
  }
}

/// Once beside other items, once more when all memory is free, then in slabs. Empty, or why the memory is too short.
std::string ItemComputer::try_on_gpu(ItemWork& work, WorkingDevice& device, DeviceContext& context,
                                     const Tracing& tracing) {
  const std::size_t needed = work.plan.peak_device_bytes, usable = device.budget().total();
  std::string reason =
      "needs " + human_bytes(needed) + " on " + device.device().name() + ", " + human_bytes(usable) + " may be used";
  const auto whole = [&] { run_plan(work, device, context, tracing); };
  const bool fits = needed <= usable;
  if (fits && (run_within(device, needed, reason, whole) || run_within(device, usable, reason, whole))) return "";
  const SlabChoice slabs = plan_slabs(pipeline_, work.plan, fits ? needed / 2 : usable);
  if (!slabs.plan) return reason + "; " + slabs.why_not;
  const auto in_slabs = [&] { run_slabs(work, device, context, *slabs.plan, tracing); };
  return run_within(device, usable, reason, in_slabs) ? "" : reason;
}

void ItemComputer::run_slabs(ItemWork& work, WorkingDevice& device, DeviceContext& context, const SlabPlan& slabs,
                             const Tracing& tracing) {
  const WorkingDevice::Busy busy(device);
  work.images = compute_item_in_slabs(context, pipeline_, work.plan, slabs, work.images, work.record, tracing);
}

bool ItemComputer::refuse(ItemWork& work, const std::string& reason) const {
  if (!allow_fallback_) throw Error(ErrorCode::out_of_memory, reason);
  work.record.fallback_reason = reason;
  return false;
}

/// One item at a time: it needs more host memory than it was admitted with.
void ItemComputer::compute_instead_on_cpu(ItemWork& work, WorkingDevice& device, const Tracing& tracing) {
  const std::lock_guard lock(cpu_mutex_);
  host_bound_.check(work.plan.peak_device_bytes);
  const auto more = budget_.overdraw(work.plan.peak_device_bytes);
  if (!cpu_) cpu_ = make_context(Device::cpu(), HostResources{threads_, HostMemory::pageable()});
  run_plan(work, device, *cpu_, {tracing.trace, "cpu"});
  work.record.warnings.push_back({"fallback", "computed on the CPU: " + work.record.fallback_reason});
}

}  // namespace volpipe
