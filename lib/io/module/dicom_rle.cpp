#include "io/module/dicom_rle.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace volpipe::io {

namespace {

constexpr std::size_t kHeaderWords = 16;

/// Unpacks exactly `count` bytes, `stride` apart.
bool decode_segment(std::span<const std::uint8_t> packed, std::size_t count, std::size_t stride, std::uint8_t* out) {
  std::size_t done = 0;
  for (std::size_t at = 0; done < count;) {
    if (at >= packed.size()) return false;
    const auto control = std::int8_t(packed[at++]);
    if (control == -128) continue;
    const bool is_run = control < 0;
    const std::size_t length = std::min(count - done, std::size_t(is_run ? 1 - control : 1 + control));
    if (packed.size() - at < (is_run ? 1 : length)) return false;
    for (std::size_t i = 0; i < length; ++i) out[(done + i) * stride] = packed[is_run ? at : at + i];
    at += is_run ? 1 : length;
    done += length;
  }
  return true;
}

}  // namespace

bool decode_rle_frame(std::span<const std::uint8_t> packed, std::size_t values, int samples, int sample_bytes,
                      std::uint8_t* out) {
  std::array<std::uint32_t, kHeaderWords> header;
  if (packed.size() < sizeof header) return false;
  std::memcpy(header.data(), packed.data(), sizeof header);
  const auto segments = std::size_t(samples * sample_bytes);
  if (header[0] != segments || segments >= kHeaderWords) return false;
  for (std::size_t i = 0; i < segments; ++i) {
    const std::size_t start = header[i + 1];
    const std::size_t end = i + 1 < segments ? header[i + 2] : packed.size();
    if (start < sizeof header || start > end || end > packed.size()) return false;
    const std::size_t sample = i / sample_bytes, byte = sample_bytes - 1 - i % sample_bytes;
    std::uint8_t* target = out + sample * values * sample_bytes + byte;
    if (!decode_segment(packed.subspan(start, end - start), values, std::size_t(sample_bytes), target)) return false;
  }
  return true;
}

}  // namespace volpipe::io
