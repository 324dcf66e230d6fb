#include "io/module/payload.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "io/gzip.h"
#include "io/header_text.h"
#include "io/input_file.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestHeader = 1 << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::input, message).with_path(path);
}

/// Lines of a header of at most kLongestHeader bytes; tellg() is where the next one starts.
class HeaderLines {
 public:
  explicit HeaderLines(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
    if (!stream_) refuse(path, "the file cannot be opened: " + std::string(std::strerror(errno)));
  }
  bool next(std::string& line) {
    line.clear();
    for (char c; stream_.get(c);) {
      ++read_;
      if (c == '\n') return true;
      if (read_ > kLongestHeader || c == '\0')
        refuse(path_, "the text header does not end: the file is damaged or of another kind");
      line += c;
    }
    return !line.empty();
  }
  std::uint64_t position() const { return read_; }

 private:
  std::string path_;
  std::ifstream stream_;
  std::uint64_t read_ = 0;
};

std::int64_t whole_number(const std::string& path, const HeaderFields& fields, const std::string& key,
                          std::int64_t fallback) {
  const auto field = fields.find(key);
  if (field == fields.end()) return fallback;
  std::int64_t value = 0;
  const char* end = field->second.data() + field->second.size();
  if (std::from_chars(field->second.data(), end, value).ptr != end)
    refuse(path, "the header field '" + key + "' is '" + field->second + "' where a whole number is expected");
  return value;
}

std::string field_of(const HeaderFields& fields, const std::string& key) {
  const auto field = fields.find(key);
  return field == fields.end() ? "" : field->second;
}

std::string data_file_beside(const std::string& header, const std::string& name) {
  const fs::path path = fs::path(name).is_absolute() ? fs::path(name) : fs::path(header).parent_path() / name;
  std::error_code failure;
  if (!fs::is_regular_file(path, failure))
    refuse(header, "its data file '" + path.string() + "' is missing: keep the two files together");
  return path.string();
}

bool is_number_list(const std::string& name) { return name.find('%') != std::string::npos; }

std::uint64_t after_lines(const std::string& path, std::uint64_t offset, std::int64_t lines) {
  std::ifstream stream(path, std::ios::binary);
  stream.seekg(std::streamoff(offset));
  for (std::string line; lines > 0 && std::getline(stream, line); --lines) offset += line.size() + 1;
  if (lines > 0) refuse(path, "the file ends before the voxels start");
  return offset;
}

void locate_nrrd_payload(const std::string& path, const HeaderFields& fields, std::uint64_t header_bytes,
                         Payload& payload) {
  std::string data_file = field_of(fields, "data file");
  if (data_file.empty()) data_file = field_of(fields, "datafile");
  const std::string encoding = lower(field_of(fields, "encoding"));
  payload.path = path;
  payload.offset = header_bytes;
  payload.big_endian = lower(field_of(fields, "endian")) == "big";
  payload.encoding = encoding == "raw"                        ? Payload::Encoding::raw
                     : encoding == "gzip" || encoding == "gz" ? Payload::Encoding::deflate
                                                              : Payload::Encoding::other;
  if (data_file.starts_with("LIST") || is_number_list(data_file)) {
    payload.encoding = Payload::Encoding::other;
    return;
  }
  if (!data_file.empty()) {
    payload.path = data_file_beside(path, data_file);
    payload.offset = 0;
  }
  std::int64_t skip = whole_number(path, fields, "byte skip", whole_number(path, fields, "byteskip", 0));
  const std::int64_t lines = whole_number(path, fields, "line skip", whole_number(path, fields, "lineskip", 0));
  if (lines > 0) payload.offset = after_lines(payload.path, payload.offset, lines);
  if (skip == -1 && payload.encoding == Payload::Encoding::raw) payload.from_end = true;
  else if (skip > 0 && payload.encoding == Payload::Encoding::raw) payload.offset += std::uint64_t(skip);
  else if (skip != 0) payload.encoding = Payload::Encoding::other;
}

bool is_true(const std::string& text) { return !text.empty() && (text[0] == 'T' || text[0] == 't' || text[0] == '1'); }

void locate_meta_payload(const std::string& path, const HeaderFields& fields, std::uint64_t header_bytes,
                         Payload& payload) {
  const std::string data_file = field_of(fields, "ElementDataFile");
  if (data_file.starts_with("LIST") || is_number_list(data_file))
    throw Error(ErrorCode::unsupported, "its voxels are spread over several files: save it again with one data file")
        .with_path(path);
  const std::string binary = field_of(fields, "BinaryData");
  if (!binary.empty() && !is_true(binary))
    throw Error(ErrorCode::unsupported, "its voxels are stored as text: save it again with BinaryData = True")
        .with_path(path);
  const bool local = data_file == "LOCAL" || data_file == "Local" || data_file == "local";
  payload.path = local ? path : data_file_beside(path, data_file);
  payload.offset = local ? header_bytes : 0;
  const bool packed = is_true(field_of(fields, "CompressedData"));
  payload.encoding = packed ? Payload::Encoding::deflate : Payload::Encoding::raw;
  payload.length =
      packed ? std::uint64_t(std::max<std::int64_t>(0, whole_number(path, fields, "CompressedDataSize", 0))) : 0;
  payload.big_endian =
      is_true(field_of(fields, "BinaryDataByteOrderMSB")) || is_true(field_of(fields, "ElementByteOrderMSB"));
  const std::int64_t skip = whole_number(path, fields, "HeaderSize", 0);
  if (skip == -1 && !packed) payload.from_end = true;
  else if (skip > 0) payload.offset = std::uint64_t(skip);
}

/// Numbers in the field `key`: none where it is absent, exactly `count` finite ones where it is there.
std::vector<double> numbers_of(const std::string& path, const HeaderFields& fields, const std::string& key,
                               std::size_t count) {
  std::vector<double> numbers;
  const auto field = fields.find(key);
  if (field == fields.end()) return numbers;
  std::istringstream stream(field->second);
  for (double value; numbers.size() <= count && stream >> value;) numbers.push_back(value);
  const bool finite = std::all_of(numbers.begin(), numbers.end(), [](double value) { return std::isfinite(value); });
  if (numbers.size() != count || !finite)
    refuse(path, "the header field '" + key + "' is '" + field->second + "' where " + std::to_string(count) +
                     " finite numbers are expected: repair the header");
  return numbers;
}

/// What MetaIO would complain of on standard error.
void check_meta_fields(const std::string& path, const HeaderFields& fields) {
  const std::int64_t dimensions = whole_number(path, fields, "NDims", 0);
  if (dimensions < 1 || dimensions > 10)
    refuse(path, "the header field 'NDims' is '" + field_of(fields, "NDims") + "' where 2, 3 or 4 is expected");
  const auto count = std::size_t(dimensions);
  const auto sizes = numbers_of(path, fields, "DimSize", count);
  if (sizes.empty() || std::any_of(sizes.begin(), sizes.end(), [](double n) { return n < 1 || n > 2147483647; }))
    refuse(path, "the header field 'DimSize' is '" + field_of(fields, "DimSize") + "' where " + std::to_string(count) +
                     " positive sizes are expected");
  for (const char* key : {"Offset", "Position", "Origin", "CenterOfRotation"}) numbers_of(path, fields, key, count);
  for (const char* key : {"ElementSpacing", "ElementSize"}) {
    const auto lengths = numbers_of(path, fields, key, count);
    if (std::any_of(lengths.begin(), lengths.end(), [](double length) { return length <= 0; }))
      refuse(path,
             std::string("the header field '") + key + "' is '" + field_of(fields, key) +
                 "' where positive lengths are expected: repair the header, an axis is turned by TransformMatrix");
  }
  for (const char* key : {"TransformMatrix", "Orientation", "Rotation"}) numbers_of(path, fields, key, count * count);
  if (!field_of(fields, "ElementType").starts_with("MET_"))
    refuse(path, "the header field 'ElementType' is '" + field_of(fields, "ElementType") +
                     "' where a type such as MET_SHORT is expected");
}

/// Readers differ in which of two lines they believe.
void check_given_once(const std::string& path, const HeaderFields& fields, const std::string& key) {
  static const std::set<std::string> kMeaningful = {"NDims",
                                                    "DimSize",
                                                    "ElementSpacing",
                                                    "ElementSize",
                                                    "Offset",
                                                    "Position",
                                                    "Origin",
                                                    "ElementType",
                                                    "TransformMatrix",
                                                    "Orientation",
                                                    "Rotation",
                                                    "BinaryData",
                                                    "CompressedData",
                                                    "HeaderSize",
                                                    "BinaryDataByteOrderMSB",
                                                    "DistanceUnits",
                                                    "ElementByteOrderMSB",
                                                    "ElementNumberOfChannels",
                                                    "CompressedDataSize"};
  if (kMeaningful.contains(key) && fields.contains(key))
    refuse(path, "the header field '" + key + "' is given twice where once is expected: remove the wrong line");
}

void check_length(const Payload& payload, std::uint64_t present, std::uint64_t expected) {
  if (present < expected)
    refuse(payload.path, "the voxel data are short, " + std::to_string(present) + " bytes of the " +
                             std::to_string(expected) + " that the header announces: copy or export the file again");
}

void swap_bytes(void* data, std::uint64_t bytes, std::size_t value_bytes) {
  auto* first = static_cast<std::uint8_t*>(data);
  for (std::uint64_t i = 0; i + value_bytes <= bytes; i += value_bytes)
    std::reverse(first + i, first + i + value_bytes);
}

void read_raw(const Payload& payload, std::uint8_t* out, std::uint64_t bytes) {
  InputFile file(payload.path);
  const std::uint64_t offset = payload.from_end && file.size() >= bytes ? file.size() - bytes : payload.offset;
  check_length(payload, file.read_at(offset, out, bytes), bytes);
}

/// Returns how many bytes of the file follow the stream.
std::uint64_t read_deflated(const Payload& payload, std::uint8_t* out, std::uint64_t bytes) {
  constexpr std::size_t kBlock = 1 << 20;
  InputFile file(payload.path);
  const std::uint64_t end = payload.length ? std::min(file.size(), payload.offset + payload.length) : file.size();
  std::vector<std::uint8_t> block(kBlock);
  std::uint64_t position = payload.offset, produced = 0;
  const auto state = std::make_unique<inflate_state>();
  isal_inflate_init(state.get());

  const auto refill = [&] {
    const std::size_t wanted = std::size_t(std::min<std::uint64_t>(kBlock, end - std::min(end, position)));
    const std::size_t got = file.read_at(position, block.data(), wanted);
    position += got;
    state->next_in = block.data();
    state->avail_in = std::uint32_t(got);
    return got > 0;
  };
  if (!refill()) check_length(payload, 0, bytes);
  state->crc_flag = block[0] == 0x1f ? ISAL_GZIP : ISAL_ZLIB;

  std::uint8_t surplus;
  while (state->block_state != ISAL_BLOCK_FINISH) {
    const bool full = produced == bytes;
    const auto room = std::uint32_t(full ? 1 : std::min<std::uint64_t>(bytes - produced, 1u << 30));
    state->next_out = full ? &surplus : out + produced;
    state->avail_out = room;
    const int result = isal_inflate(state.get());
    if (result != ISAL_DECOMP_OK)
      refuse(payload.path, "the compressed voxel data are damaged after " + std::to_string(produced) + " of " +
                               std::to_string(bytes) + " bytes: copy or export the file again");
    const std::uint32_t gained = room - state->avail_out;
    if (full && gained > 0)
      refuse(payload.path, "the voxel data are longer than the header announces: the header is wrong");
    produced += gained;
    if (state->block_state != ISAL_BLOCK_FINISH && state->avail_in == 0 && state->avail_out > 0 && !refill()) {
      check_length(payload, produced, bytes);
      refuse(payload.path,
             "the compressed voxel data lack their checksum: the file was cut short, copy or export it again");
    }
  }
  check_length(payload, produced, bytes);
  const std::uint64_t unused = state->avail_in + std::uint64_t(std::max(state->read_in_length, 0)) / 8;
  return file.size() - (position - unused);
}

}  // namespace

std::optional<double> millimetres_of(const std::string& unit) {
  static const std::map<std::string, double> known = {
      {"nm", 1e-6},      {"nanometer", 1e-6}, {"nanometre", 1e-6},  {"um", 1e-3},         {"\u00b5m", 1e-3},
      {"\u03bcm", 1e-3}, {"micron", 1e-3},    {"micrometer", 1e-3}, {"micrometre", 1e-3}, {"mm", 1},
      {"millimeter", 1}, {"millimetre", 1},   {"cm", 10},           {"centimeter", 10},   {"centimetre", 10},
      {"dm", 100},       {"m", 1000},         {"meter", 1000},      {"metre", 1000}};
  std::string name = lower(unit);
  if (name.size() > 3 && name.back() == 's') name.pop_back();
  const auto found = known.find(name);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

TextHeader read_nrrd_header(const std::string& path) {
  HeaderLines lines(path);
  TextHeader header;
  std::string line;
  if (!lines.next(line) || !line.starts_with("NRRD000"))
    refuse(path, "it does not start with NRRD000: the file is of another kind or damaged");
  while (lines.next(line) && !trimmed(line).empty()) {
    const auto colon = line.find(':');
    if (line[0] == '#' || colon == std::string::npos || line.compare(colon, 2, ":=") == 0) continue;
    const std::string key = lower(trimmed(line.substr(0, colon)));
    header.fields[key] = trimmed(line.substr(colon + 1));
    if ((key == "data file" || key == "datafile") && header.fields[key].starts_with("LIST")) break;
  }
  locate_nrrd_payload(path, header.fields, lines.position(), header.payload);
  return header;
}

TextHeader read_meta_header(const std::string& path) {
  HeaderLines lines(path);
  TextHeader header;
  for (std::string line; lines.next(line);) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) {
      if (trimmed(line).empty()) continue;
      break;
    }
    const std::string key = trimmed(line.substr(0, equals));
    check_given_once(path, header.fields, key);
    header.fields[key] = trimmed(line.substr(equals + 1));
    if (key != "ElementDataFile") continue;
    check_meta_fields(path, header.fields);
    locate_meta_payload(path, header.fields, lines.position(), header.payload);
    return header;
  }
  refuse(path, "the MetaImage header has no ElementDataFile: the file is damaged or of another kind");
}

std::uint64_t check_payload(const Payload& payload, std::uint64_t bytes) {
  if (payload.encoding == Payload::Encoding::other) return 0;
  const InputFile file(payload.path);
  const std::uint64_t start = payload.from_end ? 0 : payload.offset;
  const std::uint64_t present = file.size() - std::min(file.size(), start);
  if (payload.encoding == Payload::Encoding::raw) {
    check_length(payload, present, bytes);
    return payload.from_end ? 0 : present - bytes;
  }
  if (payload.length > present) check_length(payload, present, payload.length);
  if (present == 0 || bytes / kLargestGzipRatio > present)
    refuse(payload.path, "the compressed voxel data are " + std::to_string(present) + " bytes, too few for the " +
                             std::to_string(bytes) + " bytes that the header announces: copy or export the file again");
  return 0;
}

std::uint64_t read_payload(const Payload& payload, void* out, std::uint64_t bytes, std::size_t value_bytes) {
  auto* first = static_cast<std::uint8_t*>(out);
  std::uint64_t surplus = 0;
  if (payload.encoding == Payload::Encoding::raw) read_raw(payload, first, bytes);
  else surplus = read_deflated(payload, first, bytes);
  if (payload.big_endian && value_bytes > 1) swap_bytes(out, bytes, value_bytes);
  return surplus;
}

}  // namespace volpipe::io
