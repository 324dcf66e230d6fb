#include <algorithm>
#include <charconv>

#include "pipeline/runner.h"
#include "volume/error.h"

namespace volpipe {

namespace {

Error no_device(const std::string& requested) {
  return Error(ErrorCode::usage, "--device '" + requested +
                                     "' is not a device: use auto, cpu, cuda, cuda:N, cuda:N,M or cuda:all; 'volpipe "
                                     "devices' lists them");
}

/// The N and M of "cuda:N,M", each once.
std::vector<int> indices_of(const std::string& requested) {
  std::vector<int> indices;
  const char* next = requested.data() + std::string_view("cuda:").size();
  const char* end = requested.data() + requested.size();
  for (;;) {
    int index = 0;
    const auto [stop, fault] = std::from_chars(next, end, index);
    if (fault != std::errc{} || index < 0) throw no_device(requested);
    if (std::find(indices.begin(), indices.end(), index) == indices.end()) indices.push_back(index);
    if (stop == end) return indices;
    if (*stop != ',') throw no_device(requested);
    next = stop + 1;
  }
}

std::vector<int> all_indices() {
  std::vector<int> indices;
  for (const DeviceInfo& info : list_devices())
    if (info.device.is_cuda() && info.usable) indices.push_back(info.device.index());
  if (indices.empty()) indices.push_back(0);
  return indices;
}

}  // namespace

DeviceChoice choose_device(const std::string& requested, bool allow_fallback) {
  DeviceChoice choice{requested, {Device::cpu()}, ""};
  if (requested == "cpu") return choice;
  const bool listed = requested.starts_with("cuda:");
  if (!listed && requested != "auto" && requested != "cuda") throw no_device(requested);
  const std::vector<int> indices = requested == "cuda:all" ? all_indices()
                                   : listed                ? indices_of(requested)
                                                           : std::vector<int>{0};
  std::vector<Device> usable;
  for (const int index : indices) {
    const std::string reason = why_cuda_unusable(index);
    if (reason.empty()) usable.push_back(Device::cuda(index));
    else if (!allow_fallback && requested != "auto")
      throw Error(ErrorCode::device, requested + " cannot be used: " + reason);
    else if (choice.fallback_reason.empty()) choice.fallback_reason = reason;
  }
  if (!usable.empty()) choice.used = usable;
  return choice;
}

}  // namespace volpipe
