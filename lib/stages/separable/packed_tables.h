// Several small tables of a CUDA kernel in one upload. For .cu files.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "device/cuda_context.h"

namespace volpipe::cuda {

/// Add every table, upload once, then ask for the device addresses; the memory lives as long as this object and the
/// work queued on it.
class PackedTables {
 public:
  /// Returns the table's handle.
  template <class E>
  std::size_t add(const std::vector<E>& entries) {
    const std::size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + entries.size() * sizeof(E));
    if (!entries.empty()) std::memcpy(bytes_.data() + at, entries.data(), entries.size() * sizeof(E));
    return at;
  }
  void upload(DeviceContext& context) { device_.emplace(context, bytes_); }
  template <class E>
  const E* at(std::size_t handle) const {
    return reinterpret_cast<const E*>(device_->data() + handle);
  }

 private:
  std::vector<std::byte> bytes_;
  std::optional<DeviceTable<std::byte>> device_;
};

}  // namespace volpipe::cuda
