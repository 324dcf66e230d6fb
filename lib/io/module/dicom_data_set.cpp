#include "io/module/dicom_data_set.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr std::uint32_t kUndefined = 0xffffffff;
constexpr std::uint32_t kLongestValue = 1 << 16;  // of those that say something about the image
constexpr int kDeepestSequence = 16;
constexpr DicomTag kPixelData = dicom_tag(0x7fe0, 0x0010), kTransferSyntax = dicom_tag(0x0002, 0x0010);
constexpr DicomTag kItem = dicom_tag(0xfffe, 0xe000), kItemEnd = dicom_tag(0xfffe, 0xe00d),
                   kSequenceEnd = dicom_tag(0xfffe, 0xe0dd);
constexpr char kImplicit[] = "1.2.840.10008.1.2", kBigEndian[] = "1.2.840.10008.1.2.2",
               kDeflated[] = "1.2.840.10008.1.2.1.99";

/// Sequences whose items matter; implicit data sets do not tell sequences from other values.
bool is_known_sequence(DicomTag tag) {
  static const std::set<DicomTag> known = {
      dicom_tag(0x5200, 0x9229), dicom_tag(0x5200, 0x9230), dicom_tag(0x0020, 0x9113), dicom_tag(0x0020, 0x9116),
      dicom_tag(0x0028, 0x9110), dicom_tag(0x0028, 0x9145), dicom_tag(0x0020, 0x9111), dicom_tag(0x0018, 0x9118),
      dicom_tag(0x0018, 0x9117), dicom_tag(0x0018, 0x9114), dicom_tag(0x0018, 0x9226), dicom_tag(0x0018, 0x9329),
      dicom_tag(0x0018, 0x9751), dicom_tag(0x0028, 0x3000)};
  return known.contains(tag);
}

bool has_long_length(const std::array<char, 2>& vr) {
  constexpr std::array<const char*, 12> kLong = {"OB", "OD", "OF", "OL", "OV", "OW",
                                                 "SQ", "SV", "UC", "UN", "UR", "UT"};
  return std::any_of(kLong.begin(), kLong.end(),
                     [&](const char* name) { return vr[0] == name[0] && vr[1] == name[1]; }) ||
         (vr[0] == 'U' && vr[1] == 'V');
}

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

std::string trimmed(std::string_view text) {
  constexpr std::string_view blanks(" \t\r\n\0", 5);
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(blanks) - first + 1));
}

double number(std::string_view text, DicomTag tag) {
  std::string digits = trimmed(text);
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value))
    throw Error(ErrorCode::input, "DICOM element " + to_string(tag) + " is '" + digits +
                                      "' where a number is expected: repair the header or leave the file out");
  return value;
}

/// A window that moves forward over the file, so that small elements cost no system call each.
class Window {
 public:
  explicit Window(InputFile& file) : file_(file) {}
  std::uint64_t size() const { return file_.size(); }

  /// False where the file ends before.
  bool read(std::uint64_t offset, void* out, std::size_t bytes) {
    if (offset < start_ || offset + bytes > start_ + bytes_.size()) {
      bytes_.resize(std::max(bytes, kBytes));
      bytes_.resize(file_.read_at(offset, bytes_.data(), bytes_.size()));
      start_ = offset;
    }
    if (bytes_.size() < bytes) return false;
    std::memcpy(out, bytes_.data() + (offset - start_), bytes);
    return true;
  }

 private:
  static constexpr std::size_t kBytes = 1 << 14;
  InputFile& file_;
  std::vector<char> bytes_;
  std::uint64_t start_ = 0;
};

}  // namespace

/// Walks the elements of one file, never past its end.
class DicomParser {
 public:
  explicit DicomParser(InputFile& file) : window_(file) {}

  DicomHeader parse() {
    DicomHeader header;
    position_ = start_of_elements();
    DicomDataSet meta;
    explicit_ = starts_explicit();
    std::uint16_t group = 0;
    while (peek(group) && group == 0x0002) element(meta, window_.size(), 0);
    header.transfer_syntax = meta.text(kTransferSyntax);
    if (header.transfer_syntax == kDeflated)
      throw Error(ErrorCode::unsupported,
                  "its data set is deflated, which volpipe does not read: save it with another transfer syntax");
    explicit_ = header.transfer_syntax.empty() ? starts_explicit() : header.transfer_syntax != kImplicit;
    big_endian_ = header.big_endian = header.transfer_syntax == kBigEndian;
    header.data.big_endian_ = big_endian_;
    const std::uint64_t end = window_.size();
    while (position_ + 8 <= end && !pixels_) element(header.data, end, 0);
    header.pixels = pixels_;
    return header;
  }

 private:
  struct Head {
    DicomTag tag;
    std::array<char, 2> vr;
    std::uint32_t length;
  };

  [[noreturn]] static void damaged(const std::string& what) {
    throw Error(ErrorCode::input, "the DICOM header is damaged or the file is of another kind: " + what +
                                      "; copy or export the file again");
  }

  std::uint64_t start_of_elements() {
    std::array<char, 132> head;
    return window_.read(0, head.data(), head.size()) && std::memcmp(head.data() + 128, "DICM", 4) == 0 ? 132 : 0;
  }

  bool peek(std::uint16_t& group) { return window_.read(position_, &group, sizeof group); }

  /// Whether the element at hand names its value representation.
  bool starts_explicit() {
    std::array<char, 6> head;
    return window_.read(position_, head.data(), head.size()) && is_capital(head[4]) && is_capital(head[5]);
  }

  template <class T>
  T take() {
    T value;
    if (!window_.read(position_, &value, sizeof value)) damaged("it ends within an element");
    position_ += sizeof value;
    if constexpr (sizeof(T) == 2) return big_endian_ ? T(__builtin_bswap16(value)) : value;
    else return big_endian_ ? T(__builtin_bswap32(value)) : value;
  }

  DicomTag take_tag() {
    const auto group = take<std::uint16_t>();
    return dicom_tag(group, take<std::uint16_t>());
  }

  Head take_head() {
    Head head{take_tag(), {'?', '?'}, 0};
    if (!explicit_ || head.tag >> 16 == 0xfffe) {
      head.length = take<std::uint32_t>();
      return head;
    }
    if (!window_.read(position_, head.vr.data(), 2)) damaged("it ends within an element");
    if (!is_capital(head.vr[0]) || !is_capital(head.vr[1]))
      damaged("element " + to_string(head.tag) + " has no value representation");
    position_ += 2;
    if (!has_long_length(head.vr)) {
      head.length = take<std::uint16_t>();
      return head;
    }
    position_ += 2;
    head.length = take<std::uint32_t>();
    return head;
  }

  void element(DicomDataSet& data, std::uint64_t end, int depth) {
    const Head head = take_head();
    if (head.tag == kPixelData && depth == 0) {
      pixels_ = DicomPixels{position_, head.length, head.length == kUndefined};
      return;
    }
    const bool is_sequence =
        head.vr == std::array{'S', 'Q'} || head.length == kUndefined || (!explicit_ && is_known_sequence(head.tag));
    if (head.length != kUndefined && head.length > end - std::min(end, position_))
      damaged("element " + to_string(head.tag) + " reaches beyond the end");
    if (is_sequence && (head.vr == std::array{'O', 'B'} || head.vr == std::array{'O', 'W'})) return skip_fragments();
    if (is_sequence) return sequence(data, head, end, depth);
    if (head.length <= kLongestValue && !(head.tag >> 16 & 1)) {
      std::string value(head.length, '\0');
      if (head.length > 0 && !window_.read(position_, value.data(), value.size())) damaged("it ends within an element");
      data.values_[head.tag] = std::move(value);
    }
    position_ += head.length;
  }

  /// Compressed pixels of an icon.
  void skip_fragments() {
    for (Head head = take_head(); head.tag != kSequenceEnd; head = take_head()) {
      if (head.tag != kItem || head.length > window_.size() - position_) damaged("an embedded image does not end");
      position_ += head.length;
    }
  }

  void sequence(DicomDataSet& data, const Head& head, std::uint64_t outer_end, int depth) {
    if (depth >= kDeepestSequence) damaged("its sequences are nested too deeply");
    const bool open = head.length == kUndefined;
    const std::uint64_t end = open ? outer_end : position_ + head.length;
    const bool was_explicit = explicit_;
    if (head.vr == std::array{'U', 'N'}) explicit_ = false;
    std::vector<DicomDataSet> items;
    while (position_ < end) {
      const Head item_head = take_head();
      if (item_head.tag == kSequenceEnd) break;
      if (item_head.tag != kItem) damaged("sequence " + to_string(head.tag) + " holds something other than items");
      items.push_back(item(item_head.length, end, depth + 1));
    }
    explicit_ = was_explicit;
    if (is_known_sequence(head.tag)) data.sequences_[head.tag] = std::move(items);
  }

  DicomDataSet item(std::uint32_t length, std::uint64_t outer_end, int depth) {
    const bool open = length == kUndefined;
    if (!open && length > outer_end - std::min(outer_end, position_)) damaged("a sequence item reaches beyond the end");
    const std::uint64_t end = open ? outer_end : position_ + length;
    DicomDataSet data;
    data.big_endian_ = big_endian_;
    while (position_ < end) {
      const std::uint64_t start = position_;
      if (open && take_tag() == kItemEnd) {
        position_ += 4;
        break;
      }
      position_ = start;
      element(data, end, depth);
    }
    return data;
  }

  Window window_;
  std::uint64_t position_ = 0;
  bool explicit_ = true;
  bool big_endian_ = false;
  std::optional<DicomPixels> pixels_;
};

std::string to_string(DicomTag tag) {
  char text[16];
  std::snprintf(text, sizeof text, "(%04x,%04x)", tag >> 16, tag & 0xffff);
  return text;
}

std::string DicomDataSet::text(DicomTag tag) const {
  const auto value = values_.find(tag);
  return value == values_.end() ? std::string() : trimmed(value->second);
}

std::vector<double> DicomDataSet::decimals(DicomTag tag) const {
  std::vector<double> numbers;
  const std::string list = text(tag);
  for (std::size_t start = 0; !list.empty() && start <= list.size();) {
    const auto end = std::min(list.find('\\', start), list.size());
    numbers.push_back(number(std::string_view(list).substr(start, end - start), tag));
    start = end + 1;
  }
  return numbers;
}

std::optional<double> DicomDataSet::decimal(DicomTag tag) const {
  const auto numbers = decimals(tag);
  return numbers.empty() ? std::nullopt : std::optional(numbers[0]);
}

std::optional<std::uint32_t> DicomDataSet::whole(DicomTag tag) const {
  const auto value = values_.find(tag);
  if (value == values_.end() || value->second.size() < 2) return std::nullopt;
  const std::size_t bytes = value->second.size() == 4 ? 4 : 2;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    number |= std::uint32_t(std::uint8_t(value->second[i])) << 8 * (big_endian_ ? bytes - 1 - i : i);
  return number;
}

std::optional<double> DicomDataSet::real(DicomTag tag) const {
  const auto value = values_.find(tag);
  if (value == values_.end() || value->second.size() < 8) return std::nullopt;
  std::uint64_t bits;
  std::memcpy(&bits, value->second.data(), 8);
  if (big_endian_) bits = __builtin_bswap64(bits);
  double number;
  std::memcpy(&number, &bits, 8);
  return number;
}

const std::vector<DicomDataSet>& DicomDataSet::items(DicomTag tag) const {
  static const std::vector<DicomDataSet> none;
  const auto found = sequences_.find(tag);
  return found == sequences_.end() ? none : found->second;
}

DicomHeader read_dicom_header(InputFile& file) { return DicomParser(file).parse(); }

}  // namespace volpipe::io
