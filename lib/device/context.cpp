#include "device/context.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "device/cuda_hooks.h"
#include "volume/error.h"

namespace volpipe {

DeviceContext::DeviceContext(Device device, HostResources host) : device_(device), host_(std::move(host)) {}

namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

void copy_rows(const DeviceContext& context, const RowsCopy& copy) {
  constexpr std::int64_t kPiece = std::int64_t(1) << 20;
  const std::int64_t pieces = std::max<std::int64_t>(1, std::int64_t(copy.bytes) / kPiece);
  context.parallel(std::int64_t(copy.rows) * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const auto row = std::size_t(p / pieces);
      const std::size_t first = copy.bytes * std::size_t(p % pieces) / std::size_t(pieces);
      const std::size_t last = copy.bytes * std::size_t(p % pieces + 1) / std::size_t(pieces);
      std::memcpy(static_cast<std::byte*>(copy.target) + row * copy.target_pitch + first,
                  static_cast<const std::byte*>(copy.source) + row * copy.source_pitch + first, last - first);
    }
  });
}

class HostTimePoint final : public TimePoint {
 public:
  std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now();
};

class CpuContext final : public DeviceContext {
 public:
  explicit CpuContext(HostResources host) : DeviceContext(Device::cpu(), std::move(host)) {}

  std::unique_ptr<DeviceContext> sibling() override { return std::make_unique<CpuContext>(host()); }
  Buffer allocate(std::size_t bytes) override { return host().memory->allocate(bytes); }
  Volume to_device(Volume volume) override { return volume; }
  Volume copy_to_device(const Volume& volume) override {
    Volume copy(volume.info(), allocate(volume.info().bytes()));
    std::memcpy(copy.data(), volume.data(), volume.info().bytes());
    return copy;
  }
  Volume to_host(Volume volume) override { return volume; }
  void upload(const RowsCopy& copy) override { copy_rows(*this, copy); }
  void download(const RowsCopy& copy) override { copy_rows(*this, copy); }
  void synchronize() override {}
  std::unique_ptr<TimePoint> record_time() override { return std::make_unique<HostTimePoint>(); }
  double elapsed_ms(const TimePoint& from, const TimePoint& to) override {
    return std::chrono::duration<double, std::milli>(static_cast<const HostTimePoint&>(to).when -
                                                     static_cast<const HostTimePoint&>(from).when)
        .count();
  }
  std::size_t free_memory() const override { return available_host_memory(); }
  std::size_t peak_memory() const override { return host().memory->peak(); }
};

}  // namespace

std::vector<DeviceInfo> list_devices() {
  DeviceInfo cpu;
  cpu.name = cpu_model();
  cpu.memory_bytes = available_host_memory();
  cpu.detail = std::to_string(available_threads()) + " threads";
  std::vector<DeviceInfo> devices{cpu};
  if (cuda_compiled())
    for (auto& info : cuda::list_devices()) devices.push_back(std::move(info));
  return devices;
}

std::string why_cuda_unusable(int index) {
  return cuda_compiled() ? cuda::why_unusable(index) : "this volpipe was built without CUDA";
}

std::unique_ptr<DeviceContext> make_context(Device device, int threads) {
  return make_context(device, HostResources{std::make_shared<const HostThreads>(threads), nullptr});
}

std::unique_ptr<DeviceContext> make_context(Device device, HostResources host) {
  if (device.is_cpu()) {
    if (!host.memory) host.memory = HostMemory::pageable();
    return std::make_unique<CpuContext>(std::move(host));
  }
  if (const std::string reason = why_cuda_unusable(device.index()); !reason.empty())
    throw Error(ErrorCode::device, reason);
  if (!host.memory) host.memory = pinned_host_memory(device);
  return cuda::make_context(device.index(), std::move(host));
}

std::shared_ptr<HostMemory> pinned_host_memory(Device device) { return cuda::pinned_memory(device.index()); }

}  // namespace volpipe
