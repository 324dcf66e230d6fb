#include "io/module/jpeg_stream.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace volpipe::io {

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr int kStartOfImage = 0xd8, kEndOfImage = 0xd9, kStartOfScan = 0xda, kHuffmanTables = 0xc4,
              kRestartInterval = 0xdd, kFirstRestart = 0xd0, kBaseline = 0xc0, kExtended = 0xc1, kLossless = 0xc3,
              kJpegLs = 0xf7, kQuantisationTables = 0xdb, kFirstApplication = 0xe0, kAdobe = 0xee, kComment = 0xfe;
constexpr int kMostBlocksOfAGroup = 10;  // T.81 B.2.3

std::uint32_t big_endian(Bytes bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[at + std::size_t(i)];
  return value;
}

/// What is wrong with a stream; thrown and caught here.
struct Fault {
  std::string what;
  bool known = true;
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
  std::vector<std::uint8_t> symbols;       ///< empty where there is no table
  std::array<Short, 256> of_short_code{};  ///< by the next eight bits; length 0: the code is longer
};

struct Component {
  int id = 0, across = 1, down = 1, quantisation = 0;
  bool scanned = false;
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
    std::size_t end = at_;
    for (int bytes = left_ / 8; bytes > 0; --bytes) end = start_of_byte_before(end);
    do {
      for (; left_ > 0; take(8)) more += buffer_ >> 56 != 0;
      fill();
    } while (left_ > 0);
    if (more > kPadding) throw Fault{"bytes follow the last pixel"};
    if (end < at_) padding_.push_back({end, at_});
    return at_;
  }

  /// The bytes between codes and markers, as places of their first one and of the one behind them.
  const std::vector<std::pair<std::size_t, std::size_t>>& padding() const { return padding_; }

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

  /// A byte FF is stored as FF00, after any number of further FF.
  std::size_t start_of_byte_before(std::size_t at) const {
    --at;
    if (stream_[at] == 0)
      while (stream_[at - 1] == 0xff) --at;
    return at;
  }

  Bytes stream_;
  std::vector<std::pair<std::size_t, std::size_t>> padding_;
  std::size_t at_;
  std::uint64_t buffer_ = 0;  ///< the next bits, the first one highest
  int left_ = 0;
};

class JpegWalk {
 public:
  JpegWalk(Bytes stream, const JpegLayout& layout) : stream_(stream), layout_(layout) {}

  CheckedJpeg check() {
    std::size_t at = 0;
    if (next_segment(stream_, at).marker != kStartOfImage) throw Fault{"it does not start as a JPEG stream"};
    for (;;) {
      const Segment segment = next_segment(stream_, at);
      if (segment.marker == kEndOfImage) break;
      if (is_frame_head(segment.marker)) {
        if (!read_frame_head(segment)) return {{}, true, 0, {stream_.begin(), stream_.end()}};
      } else if (segment.marker == kStartOfScan) at = walk_scan(segment.content, at);
      else read_other(segment);
    }
    if (components_.empty() ||
        std::any_of(components_.begin(), components_.end(), [](const Component& c) { return !c.scanned; }))
      throw Fault{"it ends before all of its pixels"};
    kept_.insert(kept_.end(), stream_.begin() + std::ptrdiff_t(copied_), stream_.begin() + std::ptrdiff_t(at));
    return {{}, true, precision_, std::move(kept_)};
  }

 private:
  void read_other(const Segment& segment) {
    const int marker = segment.marker;
    if (marker == kHuffmanTables) read_huffman_tables(segment.content);
    else if (marker == kQuantisationTables) read_quantisation_tables(segment.content);
    else if (marker == kRestartInterval) {
      if (segment.content.size() != 2) throw Fault{"a restart interval is damaged"};
      restart_interval_ = big_endian(segment.content, 0, 2);
    } else if (marker >= kFirstApplication && marker < kFirstApplication + 16) read_application(segment);
    else if (marker != kComment && layout_.kind != JpegKind::other)
      throw Fault{"it holds a marker that is not allowed"};
  }

  static bool starts_with(Bytes content, std::string_view text) {
    return content.size() >= text.size() && std::equal(text.begin(), text.end(), content.begin());
  }

  /// Of two kinds decoders conclude the colours: what they do not know there, they warn of or stop at.
  void read_application(const Segment& segment) {
    constexpr std::size_t kJfifBytes = 14, kAdobeBytes = 12;
    const Bytes content = segment.content;
    if (segment.marker == kFirstApplication && content.size() >= kJfifBytes &&
        starts_with(content, std::string_view("JFIF\0", 5)) && content[5] != 1)
      throw Fault{"its JFIF segment is of no known version"};
    if (segment.marker == kAdobe && content.size() >= kAdobeBytes && starts_with(content, "Adobe") && content[11] > 1 &&
        layout_.size.samples == 3)
      throw Fault{"its Adobe segment names no known colours"};
  }

  /// False for a kind that is not looked into.
  bool read_frame_head(const Segment& segment) {
    const Bytes content = segment.content;
    check_kind(segment.marker);
    lossless_ = segment.marker == kLossless;
    if (!lossless_ && segment.marker != kBaseline && segment.marker != kExtended) return false;
    if (!components_.empty()) throw Fault{"it has two frame heads"};
    if (content.size() < 6 || content.size() != 6 + 3 * std::size_t(content[5])) throw Fault{"its head is damaged"};
    precision_ = content[0];
    rows_ = big_endian(content, 1, 2);
    columns_ = big_endian(content, 3, 2);
    if (FrameSize{rows_, columns_, content[5]} != layout_.size)
      throw Fault{"its size is not the one that the file announces"};
    if (content[5] != 1 && content[5] != 3)
      throw Fault{"it has " + std::to_string(content[5]) + " components, 1 or 3 are read", false};
    check_precision(segment.marker);
    for (std::size_t i = 0; i < content[5]; ++i) {
      const std::uint8_t sampling = content[7 + 3 * i];
      if (find_component(content[6 + 3 * i]) != components_.end()) throw Fault{"two components have one name"};
      components_.push_back({content[6 + 3 * i], sampling >> 4, sampling & 15, content[8 + 3 * i]});
    }
    check_sampling();
    return true;
  }

  void check_kind(int marker) const {
    const bool sequential = marker == kBaseline || marker == kExtended;
    if (layout_.kind == JpegKind::other || (layout_.kind == JpegKind::sequential && sequential) ||
        (layout_.kind == JpegKind::lossless && marker == kLossless))
      return;
    if (sequential || marker == kLossless) throw Fault{"its kind of JPEG is not the one that the file announces"};
    throw Fault{"it is a progressive, arithmetic or hierarchical JPEG, which is not read", false};
  }

  /// GDCM decodes sequential frames of 8 bits to bytes, of more to words, lossless ones to what the pixels are. It also
  /// writes sequential frames of 16 bits, which T.81 does not know.
  void check_precision(int marker) const {
    const bool known = lossless_ ? precision_ >= 2 && precision_ <= 16
                                 : precision_ == 8 || (marker == kExtended && (precision_ == 12 || precision_ == 16));
    const bool fits =
        layout_.bits_allocated == (precision_ > 8 ? 16 : 8) || (lossless_ && layout_.bits_allocated == 16);
    if (known && fits) return;
    throw Fault{"its samples are of " + std::to_string(precision_) + " bits, in pixels of " +
                std::to_string(layout_.bits_allocated)};
  }

  void check_sampling() {
    for (const Component& component : components_) {
      const int most = lossless_ ? 1 : 4;
      if (component.across < 1 || component.across > most || component.down < 1 || component.down > most)
        throw Fault{"a component has an impossible sampling"};
      across_ = std::max(across_, component.across);
      down_ = std::max(down_, component.down);
    }
    for (const Component& component : components_)
      if (across_ % component.across != 0 || down_ % component.down != 0)
        throw Fault{"a component has an impossible sampling"};
  }

  std::vector<Component>::iterator find_component(int id) {
    return std::find_if(components_.begin(), components_.end(), [&](const Component& c) { return c.id == id; });
  }

  void read_quantisation_tables(Bytes content) {
    while (!content.empty()) {
      const std::size_t wide = content[0] >> 4, bytes = 1 + 64 * (1 + wide);
      if (wide > 1 || (content[0] & 15) > 3 || content.size() < bytes) throw Fault{"a quantisation table is damaged"};
      quantised_[content[0] & 15] = true;
      content = content.subspan(bytes);
    }
  }

  void read_huffman_tables(Bytes content) {
    constexpr std::size_t kMostSymbols = 256;
    while (!content.empty()) {
      if (content.size() < 17 || content[0] >> 4 > 1 || (content[0] & 15) > 3)
        throw Fault{"a Huffman table is damaged"};
      HuffmanTable& table = tables_[content[0] >> 4][content[0] & 3];
      table = {};
      std::uint32_t code = 0, symbols = 0;
      for (std::size_t length = 1; length <= 16; ++length) {
        table.first_code[length] = code;
        table.first_symbol[length] = symbols;
        table.count[length] = content[length];
        code += content[length];
        if (code > 1u << length) throw Fault{"a Huffman table is damaged"};
        code <<= 1;
        symbols += content[length];
      }
      if (symbols > kMostSymbols || content.size() < 17 + symbols) throw Fault{"a Huffman table is damaged"};
      table.symbols.assign(content.begin() + 17, content.begin() + 17 + symbols);
      list_short_codes(table);
      content = content.subspan(17 + symbols);
    }
  }

  static void list_short_codes(HuffmanTable& table) {
    for (std::size_t length = 1; length <= 8; ++length)
      for (std::uint32_t i = 0; i < table.count[length]; ++i) {
        const std::uint32_t first = (table.first_code[length] + i) << (8 - length);
        for (std::uint32_t rest = 0; rest < 1u << (8 - length); ++rest)
          table.of_short_code[first + rest] = {std::uint8_t(length), table.symbols[table.first_symbol[length] + i]};
      }
  }

  std::vector<ScanComponent> scan_components(Bytes content) {
    if (content.empty() || content.size() != 4 + 2 * std::size_t(content[0]) || content[0] < 1)
      throw Fault{"the head of a scan is damaged"};
    std::vector<ScanComponent> scan;
    for (std::size_t i = 0; i < content[0]; ++i) {
      const auto found = find_component(content[1 + 2 * i]);
      if (found == components_.end()) throw Fault{"a scan names a component that is none"};
      if (found->scanned) throw Fault{"a component is scanned twice"};
      found->scanned = true;
      const int first = content[2 + 2 * i] >> 4, second = content[2 + 2 * i] & 15;
      if (first > 3 || second > 3) throw Fault{"a scan names a table that is none"};
      scan.push_back({*found, &tables_[0][std::size_t(first)], &tables_[1][std::size_t(second)]});
    }
    check_tables(scan);
    check_parameters(content.last(3));
    return scan;
  }

  void check_tables(const std::vector<ScanComponent>& scan) const {
    constexpr int kLongest = 16;
    int blocks = 0;
    for (const ScanComponent& part : scan) {
      const auto& symbols = part.first->symbols;
      const int table = part.component.quantisation;
      if (symbols.empty() || (!lossless_ && part.second->symbols.empty()))
        throw Fault{"a scan names a table that is none"};
      if (std::any_of(symbols.begin(), symbols.end(), [&](int symbol) { return symbol > kLongest; }))
        throw Fault{"a Huffman table is damaged"};
      if (!lossless_ && (table > 3 || !quantised_[std::size_t(table)])) throw Fault{"a quantisation table is missing"};
      blocks += part.component.across * part.component.down;
    }
    if (scan.size() > 1 && blocks > kMostBlocksOfAGroup) throw Fault{"a component has an impossible sampling"};
  }

  void check_parameters(Bytes parameters) const {
    const bool sound =
        lossless_ ? parameters[0] >= 1 && parameters[0] <= 7 && parameters[1] == 0 && parameters[2] < precision_
                  : parameters[0] == 0 && parameters[1] == 63 && parameters[2] == 0;
    if (!sound) throw Fault{lossless_ ? "its predictor is none" : "the head of a scan is damaged"};
  }

  /// Rows or columns of units, of `part` of the `most` samples of the densest component.
  static std::int64_t units(std::int64_t pixels, int part, int most, int unit) {
    const std::int64_t samples = (pixels * part + most - 1) / most;
    return (samples + unit - 1) / unit;
  }

  /// Returns the place behind the codes.
  std::size_t walk_scan(Bytes head, std::size_t at) {
    const std::vector<ScanComponent> scan = scan_components(head);
    const int unit = lossless_ ? 1 : 8;
    const bool alone = scan.size() == 1;
    const Component& only = scan.at(0).component;
    const std::int64_t width = alone ? units(columns_, only.across, across_, unit) : units(columns_, 1, across_, unit),
                       height = alone ? units(rows_, only.down, down_, unit) : units(rows_, 1, down_, unit),
                       groups = width * height;
    if (lossless_ && restart_interval_ % width != 0) throw Fault{"its restarts are not at the starts of rows"};
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
    const std::size_t end = reader.finish();
    for (const auto& [from, to] : reader.padding()) {
      kept_.insert(kept_.end(), stream_.begin() + std::ptrdiff_t(copied_), stream_.begin() + std::ptrdiff_t(from));
      copied_ = to;
    }
    return end;
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
  JpegLayout layout_;
  bool lossless_ = false;
  int precision_ = 0, across_ = 1, down_ = 1;  ///< the densest sampling
  std::int64_t rows_ = 0, columns_ = 0, restart_interval_ = 0;
  std::vector<Component> components_;
  std::array<std::array<HuffmanTable, 4>, 2> tables_;
  std::array<bool, 4> quantised_{};
  std::vector<std::uint8_t> kept_;  ///< of the bytes before copied_
  std::size_t copied_ = 0;
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

CheckedJpeg check_jpeg(Bytes stream, const JpegLayout& layout) try {
  return JpegWalk(stream, layout).check();
} catch (const Fault& fault) { return {fault.what, fault.known, 0, {}}; }

}  // namespace volpipe::io
