#include "io/crc32.h"

#include <isa-l/crc.h>

namespace volpipe::io {

namespace {

// Polynomials of a degree below 32 with x^0 in the highest bit, as the CRC stores them.
constexpr std::uint32_t kPolynomial = 0xEDB88320;  // without x^32
constexpr std::uint32_t kOne = 0x80000000, kX8 = kOne >> 8;

constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ (a & 1 ? kPolynomial : 0); }

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t term = kOne; term != 0; term >>= 1, b = times_x(b))
    if (a & term) sum ^= b;
  return sum;
}

constexpr std::uint32_t power(std::uint32_t base, std::uint64_t exponent) {
  std::uint32_t result = kOne;
  for (; exponent > 0; exponent >>= 1, base = product(base, base))
    if (exponent & 1) result = product(result, base);
  return result;
}

}  // namespace

std::uint32_t crc32_of(const void* data, std::size_t bytes) {
  return crc32_gzip_refl(0, static_cast<const unsigned char*>(data), bytes);
}

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return product(first, power(kX8, second_bytes)) ^ second;
}

}  // namespace volpipe::io
