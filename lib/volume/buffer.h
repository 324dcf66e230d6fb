// Memory that belongs to one device for life.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "volume/device.h"

namespace volpipe {

/// Where a buffer's bytes came from and go back to. A buffer keeps its source alive.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void release(void* data, std::size_t bytes) noexcept = 0;
};

/// 64-byte aligned host memory, to be given back with std::free; throws Error(out_of_memory).
void* allocate_host_memory(std::size_t bytes);

/// Uninitialised bytes, at least 64-byte aligned; movable, never copied implicitly.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Device device, std::shared_ptr<MemorySource> source)
      : data_(data), bytes_(bytes), device_(device), source_(std::move(source)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_) source_->release(data_, bytes_);
  }

  /// Ordinary host memory; throws Error(out_of_memory).
  static Buffer host(std::size_t bytes);

  void* data() { return data_; }
  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(source_, other.source_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_ = Device::cpu();
  std::shared_ptr<MemorySource> source_;
};

}  // namespace volpipe
