#include "io/module/jpeg_stream.h"

#include <algorithm>
#include <array>
#include <vector>

namespace volpipe::io {

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr int kStartOfImage = 0xd8, kEndOfImage = 0xd9, kStartOfScan = 0xda, kHuffmanTables = 0xc4,
              kRestartInterval = 0xdd, kFirstRestart = 0xd0, kBaseline = 0xc0, kExtended = 0xc1, kLossless = 0xc3,
              kJpegLs = 0xf7;

std::uint32_t big_endian(Bytes bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[at + std::size_t(i)];
  return value;
}

/// What is wrong with a stream; thrown and caught here.
struct Fault {
  std::string what;
};

/// A marker and the bytes that belong to it.
struct Segment {
  int marker = 0;
  Bytes content;
};

/// Reads the segment at `at` and moves behind it.
Segment next_segment(Bytes stream, std::size_t& at) {
  while (at + 1 < stream.size() && stream[at] == 0xff && stream[at + 1] == 0xff) ++at;
  if (at + 1 >= stream.size() || stream[at] != 0xff) throw Fault{"a marker is missing"};
  Segment segment{stream[at + 1], {}};
  at += 2;
  if (segment.marker == kStartOfImage || segment.marker == kEndOfImage) return segment;
  if (at + 2 > stream.size()) throw Fault{"the stream ends in its head"};
  const std::size_t length = big_endian(stream, at, 2);
  if (length < 2 || length > stream.size() - at) throw Fault{"a segment is longer than the stream"};
  segment.content = stream.subspan(at + 2, length - 2);
  at += length;
  return segment;
}

bool is_frame_head(int marker) {
  return (marker >= 0xc0 && marker <= 0xcf && marker != kHuffmanTables && marker != 0xc8 && marker != 0xcc) ||
         marker == kJpegLs;
}

struct HuffmanTable {
  struct Short {
    std::uint8_t length = 0, symbol = 0;
  };
  std::array<std::uint32_t, 17> first_code{}, first_symbol{}, count{};
  std::vector<std::uint8_t> symbols;
  std::array<Short, 256> of_short_code{};  ///< by the next eight bits; length 0: the code is longer
};

struct Component {
  int id = 0, across = 1, down = 1;
};

struct ScanComponent {
  Component component;
  const HuffmanTable *first = nullptr, *second = nullptr;  ///< lossless: differences; else DC and AC
};

/// The bits between two markers.
class BitReader {
 public:
  BitReader(Bytes stream, std::size_t at) : stream_(stream), at_(at) {}

  /// At most 16.
  void skip(int bits) {
    if (left_ < bits) fill();
    take(bits);
  }

  int symbol(const HuffmanTable& table) {
    if (left_ < 16) fill();
    const HuffmanTable::Short entry = table.of_short_code[std::size_t(buffer_ >> 56)];
    if (entry.length > 0) {
      take(entry.length);
      return entry.symbol;
    }
    for (int length = 9; length <= 16; ++length) {
      const auto n = std::size_t(length);
      const auto place = std::uint32_t(buffer_ >> (64 - length)) - table.first_code[n];
      if (place >= table.count[n]) continue;
      take(length);
      return table.symbols[table.first_symbol[n] + place];
    }
    throw Fault{left_ < 16 ? "the stream ends before the last pixel" : "a code is none of its Huffman table"};
  }

  /// Behind the last bits: the place of the marker that has to follow. Some encoders pad more than they must.
  std::size_t finish() {
    constexpr int kPadding = 2;
    int more = 0;
    take(left_ % 8);
    do {
      for (; left_ > 0; take(8)) more += buffer_ >> 56 != 0;
      fill();
    } while (left_ > 0);
    if (more > kPadding) throw Fault{"bytes follow the last pixel"};
    return at_;
  }

  void restart(int number) {
    finish();
    if (at_ + 2 > stream_.size() || stream_[at_ + 1] != kFirstRestart + number) throw Fault{"a restart is missing"};
    at_ += 2;
  }

 private:
  void take(int bits) {
    if (bits > left_) throw Fault{"the stream ends before the last pixel"};
    buffer_ <<= bits;
    left_ -= bits;
  }

  /// Up to the next marker.
  void fill() {
    while (left_ <= 48 && at_ < stream_.size()) {
      const std::uint64_t byte = stream_[at_];
      if (byte == 0xff) {
        while (at_ + 2 < stream_.size() && stream_[at_ + 1] == 0xff) ++at_;
        if (at_ + 1 >= stream_.size() || stream_[at_ + 1] != 0) return;
        ++at_;
      }
      ++at_;
      buffer_ |= byte << (56 - left_);
      left_ += 8;
    }
  }

  Bytes stream_;
  std::size_t at_;
  std::uint64_t buffer_ = 0;  ///< the next bits, the first one highest
  int left_ = 0;
};

class JpegCodes {
 public:
  explicit JpegCodes(Bytes stream) : stream_(stream) {}

  void check() {
    for (std::size_t at = 0;;) {
      const Segment segment = next_segment(stream_, at);
      if (segment.marker == kEndOfImage) {
        if (scanned_ == 0) throw Fault{"the stream holds no pixels"};
        return;
      }
      if (is_frame_head(segment.marker) && !read_frame_head(segment)) return;
      if (segment.marker == kHuffmanTables) read_tables(segment.content);
      if (segment.marker == kRestartInterval && segment.content.size() >= 2)
        restart_interval_ = big_endian(segment.content, 0, 2);
      if (segment.marker == kStartOfScan) at = walk_scan(segment.content, at);
    }
  }

 private:
  /// False for a kind that is not known here.
  bool read_frame_head(const Segment& segment) {
    const Bytes content = segment.content;
    lossless_ = segment.marker == kLossless;
    if (!lossless_ && segment.marker != kBaseline && segment.marker != kExtended) return false;
    if (content.size() < 6 || content.size() < 6 + 3 * std::size_t(content[5])) throw Fault{"its head is damaged"};
    rows_ = big_endian(content, 1, 2);
    columns_ = big_endian(content, 3, 2);
    components_.clear();
    for (std::size_t i = 0; i < content[5]; ++i) {
      const std::uint8_t sampling = content[7 + 3 * i];
      components_.push_back({content[6 + 3 * i], sampling >> 4, sampling & 15});
      if (components_.back().across < 1 || components_.back().down < 1) throw Fault{"its head is damaged"};
    }
    return rows_ > 0;
  }

  void read_tables(Bytes content) {
    while (content.size() >= 17) {
      HuffmanTable& table = tables_[content[0] >> 4 & 1][content[0] & 3];
      table = {};
      std::uint32_t code = 0, symbols = 0;
      for (std::size_t length = 1; length <= 16; ++length) {
        table.first_code[length] = code;
        table.first_symbol[length] = symbols;
        table.count[length] = content[length];
        code = (code + content[length]) << 1;
        symbols += content[length];
      }
      if (content.size() < 17 + symbols) throw Fault{"a Huffman table is damaged"};
      table.symbols.assign(content.begin() + 17, content.begin() + 17 + symbols);
      list_short_codes(table);
      content = content.subspan(17 + symbols);
    }
  }

  static void list_short_codes(HuffmanTable& table) {
    for (std::size_t length = 1; length <= 8; ++length)
      for (std::uint32_t i = 0; i < table.count[length]; ++i) {
        const std::uint32_t first = (table.first_code[length] + i) << (8 - length);
        if (first >> 8) throw Fault{"a Huffman table is damaged"};
        for (std::uint32_t rest = 0; rest < 1u << (8 - length); ++rest)
          table.of_short_code[first + rest] = {std::uint8_t(length), table.symbols[table.first_symbol[length] + i]};
      }
  }

  std::vector<ScanComponent> scan_components(Bytes content) const {
    if (content.empty() || content.size() < 1 + 2 * std::size_t(content[0]))
      throw Fault{"the head of a scan is damaged"};
    std::vector<ScanComponent> scan;
    for (std::size_t i = 0; i < content[0]; ++i) {
      const auto found = std::find_if(components_.begin(), components_.end(),
                                      [&](const Component& c) { return c.id == content[1 + 2 * i]; });
      if (found == components_.end()) throw Fault{"a scan names a component that is none"};
      const std::uint8_t tables = content[2 + 2 * i];
      scan.push_back({*found, &tables_[0][tables >> 4 & 3], &tables_[1][tables & 3]});
    }
    return scan;
  }

  /// Rows or columns of units, of `part` of the `most` samples of the densest component.
  static std::int64_t units(std::int64_t pixels, int part, int most, int unit) {
    const std::int64_t samples = (pixels * part + most - 1) / most;
    return (samples + unit - 1) / unit;
  }

  /// Returns the place behind the codes.
  std::size_t walk_scan(Bytes head, std::size_t at) {
    const std::vector<ScanComponent> scan = scan_components(head);
    int across = 1, down = 1;
    for (const Component& component : components_) {
      across = std::max(across, component.across);
      down = std::max(down, component.down);
    }
    const int unit = lossless_ ? 1 : 8;
    const bool alone = scan.size() == 1;
    const Component& only = scan.at(0).component;
    const std::int64_t groups = alone ? units(columns_, only.across, across, unit) * units(rows_, only.down, down, unit)
                                      : units(columns_, 1, across, unit) * units(rows_, 1, down, unit);
    BitReader reader(stream_, at);
    for (std::int64_t group = 0; group < groups; ++group) {
      if (restart_interval_ > 0 && group > 0 && group % restart_interval_ == 0)
        reader.restart(int((group / restart_interval_ - 1) % 8));
      for (const ScanComponent& part : scan)
        for (int i = alone ? 1 : part.component.across * part.component.down; i > 0; --i) {
          if (lossless_) walk_difference(reader, *part.first);
          else walk_block(reader, part);
        }
    }
    ++scanned_;
    return reader.finish();
  }

  static void walk_difference(BitReader& reader, const HuffmanTable& table) {
    const int length = reader.symbol(table);
    if (length > 16) throw Fault{"a difference is too long"};
    if (length < 16) reader.skip(length);
  }

  static void walk_block(BitReader& reader, const ScanComponent& part) {
    const int length = reader.symbol(*part.first);
    if (length > 16) throw Fault{"a coefficient is too long"};
    reader.skip(length);
    for (int k = 1; k < 64; ++k) {
      const int run = reader.symbol(*part.second);
      if ((run & 15) == 0 && run != 0xf0) break;
      k += run >> 4;
      if (k > 63) throw Fault{"a block has too many coefficients"};
      reader.skip(run & 15);
    }
  }

  Bytes stream_;
  bool lossless_ = false;
  std::int64_t rows_ = 0, columns_ = 0, restart_interval_ = 0;
  std::vector<Component> components_;
  std::array<std::array<HuffmanTable, 4>, 2> tables_;
  int scanned_ = 0;
};

std::optional<FrameSize> jpeg_2000_size(Bytes stream) {
  if (stream.size() < 42 || big_endian(stream, 2, 2) != 0xff51) return std::nullopt;
  const auto at = [&](std::size_t place) { return std::int64_t(big_endian(stream, place, 4)); };
  return FrameSize{at(12) - at(20), at(8) - at(16), int(big_endian(stream, 40, 2))};
}

std::optional<FrameSize> jpeg_size(Bytes stream) {
  for (std::size_t at = 0;;) {
    const Segment segment = next_segment(stream, at);
    if (segment.marker == kStartOfScan || segment.marker == kEndOfImage) return std::nullopt;
    if (!is_frame_head(segment.marker) || segment.content.size() < 6) continue;
    const FrameSize size{big_endian(segment.content, 1, 2), big_endian(segment.content, 3, 2), segment.content[5]};
    return size.rows == 0 ? std::nullopt : std::optional(size);
  }
}

}  // namespace

std::optional<FrameSize> compressed_frame_size(Bytes stream) try {
  if (stream.size() < 4 || stream[0] != 0xff) return std::nullopt;
  if (stream[1] == 0x4f) return jpeg_2000_size(stream);
  return stream[1] == kStartOfImage ? jpeg_size(stream) : std::nullopt;
} catch (const Fault&) { return std::nullopt; }

std::string fault_of_jpeg_codes(Bytes stream) try {
  if (stream.size() >= 2 && stream[0] == 0xff && stream[1] == kStartOfImage) JpegCodes(stream).check();
  return {};
} catch (const Fault& fault) { return fault.what; }

}  // namespace volpipe::io
