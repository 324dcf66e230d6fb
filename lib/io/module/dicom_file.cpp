#include "io/module/dicom_file.h"

#include <gdcmImageReader.h>
#include <gdcmReader.h>
#include <gdcmSequenceOfItems.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "volume/error.h"

namespace volpipe::io {

namespace {

using gdcm::DataSet;
using gdcm::Tag;

const Tag kPixelData(0x7fe0, 0x0010);

std::string trimmed(std::string_view text) {
  const char* blanks = " \t\r\n\0";
  const std::string_view set(blanks, 5);
  const auto first = text.find_first_not_of(set);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(set) - first + 1));
}

const gdcm::ByteValue* bytes_of(const DataSet& data, const Tag& tag) {
  return data.FindDataElement(tag) ? data.GetDataElement(tag).GetByteValue() : nullptr;
}

std::string text_of(const DataSet& data, const Tag& tag) {
  const auto* bytes = bytes_of(data, tag);
  return bytes ? trimmed({bytes->GetPointer(), std::size_t(bytes->GetLength())}) : std::string();
}

template <class T>
std::optional<T> binary_of(const DataSet& data, const Tag& tag) {
  const auto* bytes = bytes_of(data, tag);
  if (!bytes || bytes->GetLength() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes->GetPointer(), sizeof(T));
  return value;
}

int unsigned_of(const DataSet& data, const Tag& tag, int fallback) {
  return binary_of<std::uint16_t>(data, tag).value_or(std::uint16_t(fallback));
}

double decimal(std::string_view text, const Tag& tag) {
  std::string digits = trimmed(text);
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value))
    throw Error(ErrorCode::input, "DICOM element " + tag.PrintAsPipeSeparatedString() + " is '" + digits +
                                      "' where a number is expected: repair the header or leave the file out");
  return value;
}

/// The `\`-separated numbers of a decimal string; empty when it is absent or blank.
std::vector<double> decimals_of(const DataSet& data, const Tag& tag) {
  std::vector<double> values;
  std::string text = text_of(data, tag);
  for (std::size_t start = 0; !text.empty() && start <= text.size();) {
    const auto end = std::min(text.find('\\', start), text.size());
    values.push_back(decimal(std::string_view(text).substr(start, end - start), tag));
    start = end + 1;
  }
  return values;
}

std::optional<double> decimal_of(const DataSet& data, const Tag& tag) {
  const auto values = decimals_of(data, tag);
  return values.empty() ? std::nullopt : std::optional(values[0]);
}

std::string number_text(std::optional<double> value) {
  if (!value) return {};
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, *value).ptr;
  return std::string(buffer, end);
}

/// The first item of a sequence, or nothing.
std::optional<DataSet> item_of(const DataSet& data, const Tag& tag, std::size_t index = 0) {
  if (!data.FindDataElement(tag)) return std::nullopt;
  const auto sequence = data.GetDataElement(tag).GetValueAsSQ();
  if (!sequence || sequence->GetNumberOfItems() <= index) return std::nullopt;
  return sequence->GetItem(index + 1).GetNestedDataSet();
}

void read_plane(const DataSet& data, DicomFrame& frame) {
  if (const auto p = decimals_of(data, Tag(0x0020, 0x0032)); p.size() == 3) frame.position = Vec3{p[0], p[1], p[2]};
  if (const auto o = decimals_of(data, Tag(0x0020, 0x0037)); o.size() == 6)
    frame.orientation = {{{o[0], o[1], o[2]}, {o[3], o[4], o[5]}}};
}

void read_measures(const DataSet& data, DicomFrame& frame) {
  if (const auto s = decimals_of(data, Tag(0x0028, 0x0030)); s.size() == 2) frame.pixel_spacing = {{s[0], s[1]}};
  if (const auto thickness = decimal_of(data, Tag(0x0018, 0x0050))) frame.slice_thickness = thickness;
  if (const auto between = decimal_of(data, Tag(0x0018, 0x0088))) frame.spacing_between_slices = between;
}

void read_rescale(const DataSet& data, DicomFrame& frame) {
  if (data.FindDataElement(Tag(0x0028, 0x3000)))
    throw Error(ErrorCode::unsupported,
                "the values are given by a modality lookup table (0028,3000), which volpipe does not apply: convert "
                "the file first");
  frame.slope = decimal_of(data, Tag(0x0028, 0x1053)).value_or(frame.slope);
  frame.intercept = decimal_of(data, Tag(0x0028, 0x1052)).value_or(frame.intercept);
  if (frame.slope == 0)
    throw Error(ErrorCode::input,
                "RescaleSlope is 0, so every voxel would be equal: repair the header or leave the file out");
}

std::string& mark(DicomFrame& frame, FrameMark which) { return frame.marks[std::size_t(which)]; }

void set_mark(DicomFrame& frame, FrameMark which, std::string text) {
  if (!text.empty()) mark(frame, which) = std::move(text);
}

DicomFrame classic_frame(const DataSet& data) {
  DicomFrame frame;
  read_plane(data, frame);
  read_measures(data, frame);
  read_rescale(data, frame);
  set_mark(frame, FrameMark::acquisition, text_of(data, Tag(0x0020, 0x0012)));
  set_mark(frame, FrameMark::temporal_position, text_of(data, Tag(0x0020, 0x0100)));
  set_mark(frame, FrameMark::trigger_time, text_of(data, Tag(0x0018, 0x1060)));
  set_mark(frame, FrameMark::b_value, number_text(binary_of<double>(data, Tag(0x0018, 0x9087))));
  set_mark(frame, FrameMark::echo_number, text_of(data, Tag(0x0018, 0x0086)));
  set_mark(frame, FrameMark::echo_time, text_of(data, Tag(0x0018, 0x0081)));
  set_mark(frame, FrameMark::image_type, text_of(data, Tag(0x0008, 0x0008)));
  return frame;
}

/// What one item of the shared or per-frame functional groups says.
void read_functional_groups(const DataSet& groups, DicomFrame& frame) {
  if (const auto item = item_of(groups, Tag(0x0020, 0x9113))) read_plane(*item, frame);
  if (const auto item = item_of(groups, Tag(0x0020, 0x9116))) read_plane(*item, frame);
  if (const auto item = item_of(groups, Tag(0x0028, 0x9110))) read_measures(*item, frame);
  if (const auto item = item_of(groups, Tag(0x0028, 0x9145))) read_rescale(*item, frame);
  if (const auto item = item_of(groups, Tag(0x0020, 0x9111))) {
    if (const auto index = binary_of<std::uint32_t>(*item, Tag(0x0020, 0x9128)))
      set_mark(frame, FrameMark::temporal_position, std::to_string(*index));
    if (const auto number = binary_of<std::uint16_t>(*item, Tag(0x0020, 0x9156)))
      set_mark(frame, FrameMark::acquisition, std::to_string(*number));
  }
  if (const auto item = item_of(groups, Tag(0x0018, 0x9118)))
    set_mark(frame, FrameMark::trigger_time, number_text(binary_of<double>(*item, Tag(0x0020, 0x9153))));
  if (const auto item = item_of(groups, Tag(0x0018, 0x9117)))
    set_mark(frame, FrameMark::b_value, number_text(binary_of<double>(*item, Tag(0x0018, 0x9087))));
  if (const auto item = item_of(groups, Tag(0x0018, 0x9114)))
    set_mark(frame, FrameMark::echo_time, number_text(binary_of<double>(*item, Tag(0x0018, 0x9082))));
  for (const Tag& type : {Tag(0x0018, 0x9226), Tag(0x0018, 0x9329), Tag(0x0018, 0x9751)})
    if (const auto item = item_of(groups, type))
      set_mark(frame, FrameMark::image_type, text_of(*item, Tag(0x0008, 0x9007)));
}

std::vector<DicomFrame> read_frames(const DataSet& data) {
  const auto count = std::int64_t(decimal_of(data, Tag(0x0028, 0x0008)).value_or(1));
  const Tag shared_groups(0x5200, 0x9229), frame_groups(0x5200, 0x9230);
  const bool enhanced = data.FindDataElement(frame_groups);
  if (count < 1)
    throw Error(ErrorCode::input, "NumberOfFrames is " + std::to_string(count) + ": at least one frame is expected");

  DicomFrame common = classic_frame(data);
  if (!enhanced && count > 1)
    throw Error(ErrorCode::input,
                "the file holds " + std::to_string(count) +
                    " frames without a position for each: only enhanced multi-frame files say where their "
                    "frames lie, so export the series as such or as single slices");
  if (!enhanced) return {common};
  if (const auto shared = item_of(data, shared_groups)) read_functional_groups(*shared, common);
  const auto items = data.GetDataElement(frame_groups).GetValueAsSQ();
  if (!items || std::int64_t(items->GetNumberOfItems()) != count)
    throw Error(ErrorCode::input, "the header announces " + std::to_string(count) + " frames and describes " +
                                      std::to_string(items ? items->GetNumberOfItems() : 0) + ": the file is damaged");
  std::vector<DicomFrame> frames(std::size_t(count), common);
  for (std::size_t i = 0; i < frames.size(); ++i)
    read_functional_groups(items->GetItem(i + 1).GetNestedDataSet(), frames[i]);
  return frames;
}

/// Length of the pixel data that start at `offset`, from the element header before it; nothing when there are none.
std::optional<std::uint32_t> pixel_length(std::ifstream& stream, std::uint64_t offset, bool big_endian) {
  std::array<std::uint8_t, 12> head{};
  if (offset < head.size()) return std::nullopt;
  stream.seekg(std::streamoff(offset - head.size()));
  if (!stream.read(reinterpret_cast<char*>(head.data()), head.size())) return std::nullopt;
  const std::array<std::uint8_t, 4> little{0xe0, 0x7f, 0x10, 0x00}, big{0x7f, 0xe0, 0x00, 0x10};
  const auto& tag = big_endian ? big : little;
  const bool is_explicit = std::memcmp(head.data(), tag.data(), 4) == 0;
  const bool is_implicit = std::memcmp(head.data() + 4, tag.data(), 4) == 0;
  if (!is_explicit && !is_implicit) return std::nullopt;
  std::uint32_t length;
  std::memcpy(&length, head.data() + 8, 4);
  return big_endian ? __builtin_bswap32(length) : length;
}

/// Why the uncompressed pixel data are not whole; empty when they are.
std::string pixel_fault(const DicomFile& file, std::uint32_t length, std::uint64_t file_bytes) {
  const std::uint64_t expected = file.frames.size() * file.frame_bytes();
  const std::uint64_t present = std::min<std::uint64_t>(length, file_bytes - std::min(file_bytes, file.pixel_offset));
  if (present >= expected) return {};
  return file.name() + ": the pixel data are short, " + std::to_string(present) + " bytes of the " +
         std::to_string(expected) + " that its header announces: copy or export the file again";
}

/// Why the fragments of compressed pixel data are not whole; empty when they are followed by their delimiter.
std::string fragment_fault(const DicomFile& file, std::ifstream& stream, std::uint64_t file_bytes) {
  std::uint64_t position = file.pixel_offset;
  for (std::array<std::uint8_t, 8> head{}; position + head.size() <= file_bytes;) {
    stream.seekg(std::streamoff(position));
    if (!stream.read(reinterpret_cast<char*>(head.data()), head.size())) break;
    std::uint32_t tag, length;
    std::memcpy(&tag, head.data(), 4);
    std::memcpy(&length, head.data() + 4, 4);
    if (tag == 0xe0ddfffe) return {};
    if (tag != 0xe000fffe) break;
    position += head.size() + length;
  }
  return file.name() + ": the compressed pixel data are cut short or damaged: copy or export the file again";
}

void read_pixel_layout(const DataSet& data, DicomFile& file) {
  file.rows = unsigned_of(data, Tag(0x0028, 0x0010), 0);
  file.columns = unsigned_of(data, Tag(0x0028, 0x0011), 0);
  file.samples = unsigned_of(data, Tag(0x0028, 0x0002), 1);
  file.bits_allocated = unsigned_of(data, Tag(0x0028, 0x0100), 0);
  file.bits_stored = unsigned_of(data, Tag(0x0028, 0x0101), file.bits_allocated);
  file.high_bit = unsigned_of(data, Tag(0x0028, 0x0102), file.bits_stored - 1);
  file.is_signed = unsigned_of(data, Tag(0x0028, 0x0103), 0) == 1;
  file.planar_samples = unsigned_of(data, Tag(0x0028, 0x0006), 0) == 1;
  file.photometric = text_of(data, Tag(0x0028, 0x0004));
  const int bits = file.bits_allocated;
  if (bits != 8 && bits != 16 && bits != 32)
    throw Error(ErrorCode::unsupported,
                "pixels of " + std::to_string(bits) + " bits are not supported: 8, 16 or 32 are expected");
  if (file.rows == 0 || file.columns == 0)
    throw Error(ErrorCode::input, "the image has " + std::to_string(file.rows) + " rows and " +
                                      std::to_string(file.columns) + " columns");
  if (file.bits_stored < 1 || file.bits_stored > bits || file.high_bit >= bits || file.high_bit + 1 < file.bits_stored)
    throw Error(ErrorCode::input, "BitsStored " + std::to_string(file.bits_stored) + " and HighBit " +
                                      std::to_string(file.high_bit) + " do not fit in BitsAllocated " +
                                      std::to_string(bits) + ": repair the header");
}

}  // namespace

std::string DicomFile::name() const { return std::filesystem::path(path).filename().string(); }

std::optional<DicomFile> read_dicom_file(const std::string& path) try {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(ErrorCode::input, "the file cannot be opened: " + std::string(std::strerror(errno)));
  gdcm::Reader reader;
  reader.SetStream(stream);
  if (!reader.ReadUpToTag(kPixelData, {kPixelData}))
    throw Error(ErrorCode::input, "no DICOM header could be read: the file is damaged or of another kind");
  const DataSet& data = reader.GetFile().GetDataSet();
  if (!data.FindDataElement(Tag(0x0028, 0x0010))) {
    if (text_of(data, Tag(0x0008, 0x0016)).empty() &&
        !reader.GetFile().GetHeader().FindDataElement(Tag(0x0002, 0x0002)))
      throw Error(ErrorCode::input, "no DICOM header could be read: the file is damaged or of another kind");
    return std::nullopt;
  }

  DicomFile file;
  file.path = path;
  file.sop_class = text_of(data, Tag(0x0008, 0x0016));
  file.series_uid = text_of(data, Tag(0x0020, 0x000e));
  file.series_number = text_of(data, Tag(0x0020, 0x0011));
  file.localizer = text_of(data, Tag(0x0008, 0x0008)).find("LOCALIZER") != std::string::npos;
  read_pixel_layout(data, file);
  file.frames = read_frames(data);
  file.multi_frame = file.frames.size() > 1;

  const gdcm::TransferSyntax syntax = reader.GetFile().GetHeader().GetDataSetTransferSyntax();
  const bool deflated = syntax == gdcm::TransferSyntax::DeflatedExplicitVRLittleEndian;
  const bool big_endian = syntax.GetSwapCode() == gdcm::SwapCode::BigEndian;
  if (deflated) return file;
  file.pixel_offset = reader.GetStreamCurrentPosition();
  stream.clear();
  stream.seekg(0, std::ios::end);
  const auto file_bytes = std::uint64_t(stream.tellg());
  const auto length = pixel_length(stream, file.pixel_offset, big_endian);
  file.plain = !syntax.IsEncapsulated() && !big_endian;
  if (!length) file.fault = file.name() + ": the file ends before its pixel data: copy or export it again";
  else if (syntax.IsEncapsulated()) file.fault = fragment_fault(file, stream, file_bytes);
  else file.fault = pixel_fault(file, *length, file_bytes);
  return file;
} catch (Error& error) { throw std::move(error).with_path(path); } catch (const std::exception& error) {
  throw Error(ErrorCode::input, "the DICOM header is damaged: " + std::string(error.what())).with_path(path);
}

namespace {

std::vector<std::uint8_t> read_plain_pixels(const DicomFile& file, std::size_t bytes) {
  std::vector<std::uint8_t> pixels(bytes);
  std::ifstream stream(file.path, std::ios::binary);
  stream.seekg(std::streamoff(file.pixel_offset));
  if (!stream.read(reinterpret_cast<char*>(pixels.data()), std::streamsize(bytes)))
    throw Error(ErrorCode::input, file.name() + ": the pixel data end early; copy or export the file again");
  return pixels;
}

std::vector<std::uint8_t> decode_pixels(DicomFile& file, std::size_t bytes) {
  gdcm::ImageReader reader;
  reader.SetFileName(file.path.c_str());
  if (!reader.Read())
    throw Error(
        ErrorCode::input,
        file.name() +
            ": the pixel data cannot be decoded: the file is damaged or compressed in a way GDCM does not know");
  const gdcm::Image& image = reader.GetImage();
  if (image.GetBufferLength() != bytes)
    throw Error(ErrorCode::input, file.name() + ": the pixel data hold " + std::to_string(image.GetBufferLength()) +
                                      " bytes where the header announces " + std::to_string(bytes) +
                                      ": the file is damaged");
  std::vector<std::uint8_t> pixels(bytes);
  if (!image.GetBuffer(reinterpret_cast<char*>(pixels.data())))
    throw Error(ErrorCode::input,
                file.name() + ": the compressed pixel data are damaged or cut short; copy or export the file again");
  file.planar_samples = image.GetPlanarConfiguration() == 1;
  return pixels;
}

}  // namespace

std::vector<std::uint8_t> read_dicom_pixels(DicomFile& file) try {
  const std::size_t bytes = file.frames.size() * file.frame_bytes();
  return file.plain ? read_plain_pixels(file, bytes) : decode_pixels(file, bytes);
} catch (Error& error) { throw std::move(error).with_path(file.path); } catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory, "no host memory for the pixels of " + file.path).with_path(file.path);
} catch (const std::exception& error) {
  throw Error(ErrorCode::input, "the pixel data are damaged: " + std::string(error.what())).with_path(file.path);
}

}  // namespace volpipe::io
