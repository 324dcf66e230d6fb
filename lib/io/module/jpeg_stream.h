// What can be said of a compressed frame before a decoder sees it: decoders fill up what they cannot read, complain on
// standard error at most, and call it a picture. ITU-T T.81 (JPEG), T.87 (JPEG-LS), T.800 (JPEG 2000).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace volpipe::io {

struct FrameSize {
  std::int64_t rows = 0, columns = 0;
  int samples = 0;
  bool operator==(const FrameSize&) const = default;
};

/// The size that the stream of a JPEG, JPEG-LS or JPEG 2000 frame announces; nothing where it is another stream (or a
/// JP2 file) or does not say.
std::optional<FrameSize> compressed_frame_size(std::span<const std::uint8_t> stream);

/// The kinds of JPEG that a transfer syntax names: sequential with a DCT (processes 1, 2 and 4), lossless (process 14),
/// or another one, of which only the segments before its frame head are looked at.
enum class JpegKind { sequential, lossless, other };

/// A frame as the header of its file describes it.
struct JpegLayout {
  JpegKind kind = JpegKind::other;
  FrameSize size;
  int bits_allocated = 8;
};

struct CheckedJpeg {
  std::string fault;                 ///< what is wrong with the stream; empty for a sound one
  bool known = true;                 ///< false: the fault is a kind of JPEG that is sound and not read
  int precision = 0;                 ///< bits of a sample; 0 for another kind
  std::vector<std::uint8_t> stream;  ///< of a sound frame, up to its end mark, without bytes between codes and markers
};

/// Walks through every segment and every Huffman code of a frame and takes what T.81 allows and `layout` describes: one
/// frame head of its kind and size with a precision that its pixels hold, tables that are whole and there before they
/// are used, each component in one scan, as many codes as there are samples, restarts where they belong. A decoder that
/// trusts a stream finds nothing in these to trust wrongly.
CheckedJpeg check_jpeg(std::span<const std::uint8_t> stream, const JpegLayout& layout);

}  // namespace volpipe::io
