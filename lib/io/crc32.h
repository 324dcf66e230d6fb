// The CRC-32 of gzip and PNG (RFC 1952, section 8), over pieces that are summed apart from each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace volpipe::io {

/// Of `bytes` bytes; of none: 0.
std::uint32_t crc32_of(const void* data, std::size_t bytes);

/// Of A followed by B, from the sums of both and the length of B: A's is multiplied by x^(8 * second_bytes) modulo the
/// polynomial, over GF(2), and B's is added. The inversions of the CRC's start and end cancel.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace volpipe::io
