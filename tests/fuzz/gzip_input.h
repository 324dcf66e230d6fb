// One input of the gzip fuzzer. Its first byte says what the others are: a file, a deflate stream to be given a sound
// header and trailer, a packed .nii.gz, or a .nii to be packed. zlib is the other opinion on what a stream holds.
#pragma once

#include <zlib.h>

#include <optional>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "io/gzip.h"
#include "io/input_file.h"

namespace volpipe::fuzz {

/// One stream by zlib, of a kind that `window_bits` says; nothing where it is not whole. `used` are its bytes.
inline std::optional<std::string> zlib_unpack(std::string_view packed, int window_bits, std::size_t& used) {
  z_stream stream{};
  require(inflateInit2(&stream, window_bits) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = uInt(packed.size());
  std::string content;
  char chunk[1 << 12];
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk);
    stream.avail_out = sizeof chunk;
    result = inflate(&stream, Z_NO_FLUSH);
    content.append(chunk, sizeof chunk - stream.avail_out);
  }
  used = packed.size() - stream.avail_in;
  inflateEnd(&stream);
  return result == Z_STREAM_END ? std::optional(content) : std::nullopt;
}

/// All members, and zeros behind them.
inline std::optional<std::string> zlib_content(std::string_view file) {
  std::string content;
  do {
    std::size_t used = 0;
    const auto member = zlib_unpack(file, 31, used);
    if (!member) return std::nullopt;
    content += *member;
    file.remove_prefix(used);
  } while (file.starts_with("\x1f\x8b"));
  return file.find_first_not_of('\0') == std::string_view::npos ? std::optional(content) : std::nullopt;
}

inline std::string little_endian_32(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += char(value >> 8 * i & 0xff);
  return bytes;
}

/// Where zlib finds no end, the trailer is that of nothing.
inline std::string framed(std::string_view deflated) {
  std::size_t used = deflated.size();
  const std::string content = zlib_unpack(deflated, -15, used).value_or("");
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size()));
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10) + std::string(deflated.substr(0, used)) + little_endian_32(crc) +
         little_endian_32(content.size()) + std::string(deflated.substr(used));
}

inline std::string zlib_packed(std::string_view content) {
  std::string packed(compressBound(uLong(content.size())), '\0');
  uLongf bytes = uLongf(packed.size());
  require(compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(content.data()),
                   uLong(content.size())) == Z_OK);
  return packed.substr(2, bytes - 6);  // without what zlib puts around
}

/// The content in steps of `step` bytes; nothing where the file is refused.
inline std::optional<std::string> content_of(const std::string& path, std::size_t step) try {
  io::InputFile file(path);
  io::GzipReader reader(file);
  std::string content, chunk(step, '\0');
  std::size_t count = step;
  while (count == step) {
    count = reader.read(chunk.data(), step);
    content.append(chunk, 0, count);
    require(reader.bytes_read() == content.size() && content.size() <= file.size() * io::kLargestGzipRatio);
  }
  require(reader.read(chunk.data(), step) == 0);
  require(io::is_gzip(file));
  io::gzip_trailer_length(file);
  return content;
} catch (const Error& error) {
  check_refusal(error);
  require(error.code() == ErrorCode::input && error.path() == path);
  return std::nullopt;
}

inline void check_stream(const std::string& file, std::size_t step) {
  const std::string path = test::write_bytes(scratch() / "stream.gz", file);
  const auto content = content_of(path, step), at_once = content_of(path, std::size_t(1) << 16);
  require(content == at_once);
  if (const auto other = zlib_content(file)) require(content == other);
}

/// The largest growth beyond gzip's is that of uint8 with a slope, to float64.
inline void check_packed_volume(const std::string& file) try {
  Notices notices;
  const std::string path = test::write_bytes(scratch() / "image.nii.gz", file);
  check_whole(io::read(source_of(path),
                       at_most(std::min<std::size_t>(file.size() * io::kLargestGzipRatio * 8, 1 << 24)), notices));
} catch (const Error& error) {
  check_refusal(error);
  require(!error.path().empty());
}

inline void run_gzip(std::string_view input) {
  if (input.empty()) return;
  const auto first = std::uint8_t(input[0]);
  input.remove_prefix(1);
  switch (first & 3) {
    case 0:
      return check_stream(std::string(input), 1 + first / 4);
    case 1:
      return check_stream(framed(input), 1 + first / 4);
    case 2:
      return check_packed_volume(std::string(input));
    default:
      return check_packed_volume(framed(zlib_packed(input)));
  }
}

}  // namespace volpipe::fuzz
