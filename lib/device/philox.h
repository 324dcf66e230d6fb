// Counter-based random numbers, the same on every device: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include "device/host_device.h"

namespace volpipe {

/// Four independent 32-bit words for a 128-bit counter under a 64-bit key.
struct PhiloxWords {
  std::uint32_t word[4];
};

VOLPIPE_HD inline PhiloxWords philox4x32(PhiloxWords counter, std::uint64_t key) {
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t(0xD2511F53u) * counter.word[0];
    const std::uint64_t product1 = std::uint64_t(0xCD9E8D57u) * counter.word[2];
    counter = {{std::uint32_t(product1 >> 32) ^ counter.word[1] ^ k0, std::uint32_t(product1),
                std::uint32_t(product0 >> 32) ^ counter.word[3] ^ k1, std::uint32_t(product0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in (0, 1), 53 bits.
VOLPIPE_HD inline double uniform_from(std::uint32_t high, std::uint32_t low) {
  return (double((std::uint64_t(high) << 32 | low) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace volpipe
