// Which device a buffer lives on: an immutable value. There is no current device anywhere in volpipe.
#pragma once

#include <string>

namespace volpipe {

class Device {
 public:
  static constexpr Device cpu() { return Device(-1); }
  static constexpr Device cuda(int index) { return Device(index); }

  constexpr bool is_cpu() const { return index_ < 0; }
  constexpr bool is_cuda() const { return index_ >= 0; }
  constexpr int index() const { return index_; }  ///< CUDA ordinal, -1 for the CPU
  std::string name() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index_); }

  constexpr bool operator==(const Device&) const = default;

 private:
  explicit constexpr Device(int index) : index_(index) {}
  int index_;
};

}  // namespace volpipe
