// What can be said of a compressed frame before a decoder sees it: decoders fill up what they cannot read, complain on
// standard error at most, and call it a picture. ITU-T T.81 (JPEG), T.87 (JPEG-LS), T.800 (JPEG 2000).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace volpipe::io {

struct FrameSize {
  std::int64_t rows = 0, columns = 0;
  int samples = 0;
  bool operator==(const FrameSize&) const = default;
};

/// The size that the stream of a JPEG, JPEG-LS or JPEG 2000 frame announces; nothing where it is another stream (or a
/// JP2 file) or does not say.
std::optional<FrameSize> compressed_frame_size(std::span<const std::uint8_t> stream);

/// Walks through the Huffman codes of a sequential or lossless JPEG frame and says what is wrong with them: a code that
/// is none, too few or too many of them, a restart that is missing. Empty for a sound frame, and for kinds of JPEG that
/// it does not know (progressive, arithmetic, JPEG-LS, JPEG 2000).
std::string fault_of_jpeg_codes(std::span<const std::uint8_t> stream);

}  // namespace volpipe::io
