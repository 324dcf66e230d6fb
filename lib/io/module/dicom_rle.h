// DICOM's run-length coding (PS3.5 annex G). Decoded here: GDCM reads past the end of damaged segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace volpipe::io {

/// Decodes one frame of `values` pixels with `samples` samples of `sample_bytes` bytes each into `out`: all first
/// samples, then all second ones, little-endian. False when the frame is damaged, cut short or of another layout.
bool decode_rle_frame(std::span<const std::uint8_t> packed, std::size_t values, int samples, int sample_bytes,
                      std::uint8_t* out);

}  // namespace volpipe::io
