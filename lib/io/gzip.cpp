#include "io/gzip.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr std::size_t kFirstInput = std::size_t(1) << 15;   // a header needs no more
constexpr std::size_t kInput = std::size_t(1) << 18;        // stays in the cache
constexpr std::size_t kLargestCall = std::size_t(1) << 30;  // ISA-L counts in 32 bits
constexpr std::array<std::uint8_t, 2> kMagic = {0x1F, 0x8B};
constexpr std::size_t kTrailer = 8;

std::uint32_t little_endian(const std::uint8_t* bytes) {
  return std::uint32_t(bytes[0]) | std::uint32_t(bytes[1]) << 8 | std::uint32_t(bytes[2]) << 16 |
         std::uint32_t(bytes[3]) << 24;
}

std::string hexadecimal(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

Error gzip_error(const std::string& message, const std::string& path) {
  return Error(ErrorCode::input, message + ": get a sound copy of the file").with_path(path);
}

}  // namespace

bool is_gzip(InputFile& file) {
  std::array<std::uint8_t, 2> start{};
  return file.read_at(0, start.data(), start.size()) == start.size() && start == kMagic;
}

struct GzipReader::Stream {
  inflate_state state;
  std::vector<std::uint8_t> input;
  std::uint64_t file_offset = 0;  // of the byte after the input at hand
  bool in_member = false;
  bool any_member = false;
};

GzipReader::GzipReader(InputFile& file) : file_(file), stream_(std::make_unique<Stream>()) {
  isal_inflate_init(&stream_->state);
}

GzipReader::~GzipReader() = default;

// Moves what is left of the input to the front and reads on; false when the file has no more.
bool GzipReader::refill() {
  auto& state = stream_->state;
  auto& input = stream_->input;
  auto& offset = stream_->file_offset;
  const std::uint64_t remaining = file_.size() - offset;
  if (remaining == 0) return false;
  const std::vector<std::uint8_t> left(state.next_in, state.next_in + state.avail_in);
  input.resize(left.size() + std::min<std::uint64_t>(offset == 0 ? kFirstInput : kInput, remaining));
  std::copy(left.begin(), left.end(), input.begin());
  const std::size_t count = file_.read_at(offset, input.data() + left.size(), input.size() - left.size());
  offset += count;
  state.next_in = input.data();
  state.avail_in = std::uint32_t(left.size() + count);
  return count > 0;
}

bool GzipReader::next_member() {
  auto& state = stream_->state;
  if (stream_->in_member) return true;
  while (state.avail_in < kMagic.size() && refill()) {}
  if (state.avail_in >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), state.next_in)) {
    isal_inflate_reset(&state);
    state.crc_flag = ISAL_GZIP;
    return stream_->in_member = stream_->any_member = true;
  }
  if (!stream_->any_member) throw gzip_error("the file does not start as gzip", file_.path());
  do {
    if (std::any_of(state.next_in, state.next_in + state.avail_in, [](std::uint8_t byte) { return byte != 0; }))
      throw gzip_error("bytes that are not gzip follow the gzip stream, after " + progress(), file_.path());
    state.avail_in = 0;
  } while (refill());
  return false;
}

std::size_t GzipReader::read(void* out, std::size_t bytes) {
  auto& state = stream_->state;
  std::size_t done = 0;
  while (done < bytes && next_member()) {
    const std::uint32_t had = state.avail_in;
    const auto room = std::uint32_t(std::min(bytes - done, kLargestCall));
    state.next_out = static_cast<std::uint8_t*>(out) + done;
    state.avail_out = room;
    const int result = isal_inflate(&state);
    const std::uint32_t count = room - state.avail_out;
    done += count;
    bytes_read_ += count;
    check(result);
    if (state.block_state == ISAL_BLOCK_FINISH) stream_->in_member = false;
    else if (count == 0 && state.avail_in == had && !refill())
      throw gzip_error("the gzip stream is truncated after " + progress(), file_.path());
  }
  return done;
}

std::string GzipReader::progress() const {
  return std::to_string(bytes_read_) + (expected_bytes_ ? " of " + std::to_string(expected_bytes_) : "") +
         " unpacked bytes (the file has " + std::to_string(file_.size()) + ")";
}

void GzipReader::check(int result) const {
  const auto& state = stream_->state;
  if (result >= ISAL_DECOMP_OK && result != ISAL_NEED_DICT) return;
  if (result == ISAL_INVALID_WRAPPER || result == ISAL_UNSUPPORTED_METHOD)
    throw gzip_error("the header of the gzip stream is not valid, after " + progress(), file_.path());
  if (result != ISAL_INCORRECT_CHECKSUM)
    throw gzip_error("the gzip stream is corrupt after " + progress(), file_.path());

  std::array<std::uint8_t, kTrailer> trailer{};
  file_.read_at(stream_->file_offset - state.avail_in - kTrailer, trailer.data(), kTrailer);
  const std::uint32_t crc = little_endian(trailer.data()), length = little_endian(trailer.data() + 4);
  if (crc != state.crc)
    throw gzip_error("CRC mismatch in the gzip stream after " + progress() + ": its data give " +
                         hexadecimal(state.crc) + ", its trailer says " + hexadecimal(crc),
                     file_.path());
  throw gzip_error("length mismatch in the gzip stream after " + progress() + ": a member has " +
                       std::to_string(state.total_out) + " bytes, its trailer says " + std::to_string(length),
                   file_.path());
}

std::uint32_t gzip_trailer_length(InputFile& file) {
  std::array<std::uint8_t, 4> bytes{};
  if (file.size() < kTrailer || file.read_at(file.size() - 4, bytes.data(), 4) != 4)
    throw gzip_error("the gzip stream is truncated", file.path());
  return little_endian(bytes.data());
}

}  // namespace volpipe::io
