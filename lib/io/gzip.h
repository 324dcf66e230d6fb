// gzip streams unpacked through ISA-L, checked to the last byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "io/input_file.h"

namespace volpipe::io {

/// No deflate stream unpacks to more than this many times its size.
inline constexpr std::uint64_t kLargestGzipRatio = 1032;

/// True when the file starts with gzip's magic bytes, whatever its name.
bool is_gzip(InputFile& file);

/// Unpacks a gzip file from its start, in memory that does not grow with it. Members may follow each other, and zero
/// bytes may pad the end. All functions throw Error(input) with the path where the stream is not gzip, is truncated, is
/// corrupt, fails the CRC-32 or length of a member, or is followed by foreign bytes.
class GzipReader {
 public:
  /// `file` must outlive the reader.
  explicit GzipReader(InputFile& file);
  ~GzipReader();

  /// The next bytes of the content. Less than `bytes` only at the end of the stream, where every check has passed.
  std::size_t read(void* out, std::size_t bytes);
  std::uint64_t bytes_read() const { return bytes_read_; }

  /// What errors are to say was to come out of the stream.
  void expect(std::uint64_t content_bytes) { expected_bytes_ = content_bytes; }

 private:
  struct Stream;
  bool next_member();
  bool refill();
  std::string progress() const;
  void check(int result) const;

  InputFile& file_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t expected_bytes_ = 0;
};

/// The length in the trailer of a gzip file: that of its last member, modulo 2^32.
std::uint32_t gzip_trailer_length(InputFile& file);

}  // namespace volpipe::io
