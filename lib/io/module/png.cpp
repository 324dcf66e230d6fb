#include "io/module/png.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "volume/error.h"

namespace volpipe::io {

namespace {

using Bytes = std::vector<std::uint8_t>;

void put_big_endian(Bytes& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(std::uint8_t(value >> shift));
}

void put_chunk(Bytes& out, std::string_view type, const Bytes& content) {
  put_big_endian(out, std::uint32_t(content.size()));
  const std::size_t start = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), content.begin(), content.end());
  put_big_endian(out, crc32_gzip_refl(0, out.data() + start, out.size() - start));
}

/// Every row after its filter byte, as differences to the row above.
Bytes filtered_rows(const Bytes& pixels, std::size_t row_bytes, int height) {
  constexpr std::uint8_t kUp = 2;
  Bytes rows;
  rows.reserve((row_bytes + 1) * std::size_t(height));
  for (int y = 0; y < height; ++y) {
    const std::uint8_t* row = pixels.data() + std::size_t(y) * row_bytes;
    rows.push_back(kUp);
    for (std::size_t x = 0; x < row_bytes; ++x) rows.push_back(std::uint8_t(row[x] - (y ? *(row + x - row_bytes) : 0)));
  }
  return rows;
}

Bytes zlib_packed(Bytes content) {
  Bytes level_buffer(ISAL_DEF_LVL3_DEFAULT), packed(content.size() + content.size() / 100 + 4096);
  isal_zstream stream;
  isal_deflate_init(&stream);
  stream.level = 3;
  stream.level_buf = level_buffer.data();
  stream.level_buf_size = std::uint32_t(level_buffer.size());
  stream.gzip_flag = IGZIP_ZLIB;
  stream.end_of_stream = 1;
  stream.next_in = content.data();
  stream.avail_in = std::uint32_t(content.size());
  stream.next_out = packed.data();
  stream.avail_out = std::uint32_t(packed.size());
  if (isal_deflate(&stream) != COMP_OK || stream.internal_state.state != ZSTATE_END)
    throw Error(ErrorCode::internal, "the picture could not be packed");
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace

Bytes encode_png(const Bytes& pixels, int width, int height, int channels) {
  Bytes head;
  put_big_endian(head, std::uint32_t(width));
  put_big_endian(head, std::uint32_t(height));
  for (const int value : {8, channels == 3 ? 2 : 0, 0, 0, 0}) head.push_back(std::uint8_t(value));
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  put_chunk(file, "IHDR", head);
  put_chunk(file, "IDAT", zlib_packed(filtered_rows(pixels, std::size_t(width) * std::size_t(channels), height)));
  put_chunk(file, "IEND", {});
  return file;
}

}  // namespace volpipe::io
