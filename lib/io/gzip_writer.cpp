#include "io/gzip_writer.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>

#include "io/crc32.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr std::size_t kHistory = ISAL_DEF_HIST_SIZE;
constexpr std::size_t kBlocksPerThread = 2;  // in a batch, so that a slow block does not keep the other threads idle
constexpr std::size_t kPackedBlock = GzipWriter::kBlock + GzipWriter::kBlock / 64;
constexpr std::array<std::uint8_t, 10> kHeader = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF};  // deflate, unknown system

std::size_t level_buffer_bytes(int level) {
  return level == 1 ? ISAL_DEF_LVL1_DEFAULT : level == 2 ? ISAL_DEF_LVL2_DEFAULT : ISAL_DEF_LVL3_DEFAULT;
}

void put_little_endian(std::uint8_t* out, std::uint32_t value) {
  for (int byte = 0; byte < 4; ++byte) out[byte] = std::uint8_t(value >> (8 * byte));
}

}  // namespace

struct GzipWriter::Block {
  std::span<const std::uint8_t> content, history;
  bool last = false;
};

class GzipWriter::Packer {
 public:
  explicit Packer(int level) : level_(std::uint32_t(level)), level_buffer_(level_buffer_bytes(level)) {}

  void pack(const Block& block, Packed& packed) {
    start(block);
    packed.bytes.resize(std::max(packed.bytes.size(), kPackedBlock));
    packed.size = 0;
    do {
      if (packed.size == packed.bytes.size()) packed.bytes.resize(2 * packed.bytes.size());
      state_.next_out = packed.bytes.data() + packed.size;
      state_.avail_out = std::uint32_t(packed.bytes.size() - packed.size);
      if (isal_deflate(&state_) != COMP_OK) throw Error(ErrorCode::internal, "gzip packing failed");
      packed.size = packed.bytes.size() - state_.avail_out;
    } while (state_.avail_out == 0);
    packed.crc = crc32_of(block.content.data(), block.content.size());
  }

 private:
  void start(const Block& block) {
    isal_deflate_init(&state_);
    state_.level = level_;
    state_.level_buf = level_buffer_.data();
    state_.level_buf_size = std::uint32_t(level_buffer_.size());
    if (!block.history.empty() && isal_deflate_set_dict(&state_, const_cast<std::uint8_t*>(block.history.data()),
                                                        std::uint32_t(block.history.size())) != COMP_OK)
      throw Error(ErrorCode::internal, "gzip packing takes no dictionary");
    state_.flush = block.last ? NO_FLUSH : SYNC_FLUSH;
    state_.end_of_stream = block.last;
    state_.next_in = const_cast<std::uint8_t*>(block.content.data());
    state_.avail_in = std::uint32_t(block.content.size());
  }

  std::uint32_t level_;
  isal_zstream state_{};
  std::vector<std::uint8_t> level_buffer_;
};

GzipWriter::GzipWriter(AtomicFile& file, int level, const HostThreads* threads)
    : file_(file),
      level_(level ? level : kGzipLevel),
      threads_(threads),
      packers_(threads ? std::size_t(threads->count()) : 1),
      packed_(packers_.size() * kBlocksPerThread) {
  send(kHeader.data(), kHeader.size());
}

GzipWriter::~GzipWriter() = default;

std::span<const std::uint8_t> GzipWriter::tail_of_kept() const {
  return std::span(kept_).last(std::min(kept_.size(), kHistory));
}

void GzipWriter::keep(const std::uint8_t* data, std::size_t bytes) { kept_.insert(kept_.end(), data, data + bytes); }

void GzipWriter::write(const void* data, std::size_t bytes) {
  const std::span content(static_cast<const std::uint8_t*>(data), bytes);
  content_bytes_ += bytes;
  const std::size_t copied = pending() > 0 || bytes < kBlock ? std::min(bytes, kBlock - pending()) : 0;
  keep(content.data(), copied);
  if (copied == bytes && pending() < kBlock) return;

  std::vector<Block> batch;
  if (pending() > 0) batch.push_back({std::span(kept_).subspan(history_), std::span(kept_).first(history_)});
  std::size_t done = copied;
  for (; bytes - done >= kBlock; done += kBlock) {
    batch.push_back(
        {content.subspan(done, kBlock), done == copied ? tail_of_kept() : content.subspan(done - kHistory, kHistory)});
    if (batch.size() < packed_.size()) continue;
    pack(batch);
    batch.clear();
  }
  pack(batch);

  const std::span before = done > copied ? content.subspan(done - kHistory, kHistory) : tail_of_kept();
  std::vector<std::uint8_t> kept(before.begin(), before.end());
  history_ = kept.size();
  kept_.swap(kept);
  keep(content.data() + done, bytes - done);
}

void GzipWriter::finish() {
  const Block last{std::span(kept_).subspan(history_), std::span(kept_).first(history_), true};
  pack({&last, 1});
  std::array<std::uint8_t, 8> trailer;
  put_little_endian(trailer.data(), crc_);
  put_little_endian(trailer.data() + 4, std::uint32_t(content_bytes_));
  send(trailer.data(), trailer.size());
}

void GzipWriter::pack(std::span<const Block> blocks) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&](std::int64_t thread, std::int64_t) {
    std::size_t i = next++;
    if (i >= blocks.size()) return;
    auto& packer = packers_[std::size_t(thread)];
    if (!packer) packer = std::make_unique<Packer>(level_);
    for (; i < blocks.size(); i = next++) packer->pack(blocks[i], packed_[i]);
  };
  if (threads_) threads_->parallel(std::int64_t(std::min(packers_.size(), blocks.size())), 1, work);
  else work(0, 1);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    crc_ = crc32_combine(crc_, packed_[i].crc, blocks[i].content.size());
    send(packed_[i].bytes.data(), packed_[i].size);
  }
}

void GzipWriter::send(const void* data, std::size_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  file_.write(data, bytes);
  write_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace volpipe::io
