#include "io/module/dicom_file.h"

#include <gdcmImage.h>
#include <gdcmSequenceOfFragments.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "io/input_file.h"
#include "io/module/dicom_rle.h"
#include "io/module/in_order.h"
#include "io/module/jpeg_stream.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr auto tag = dicom_tag;
constexpr char kRle[] = "1.2.840.10008.1.2.5";
constexpr std::array<std::string_view, 3> kPlainSyntaxes = {"1.2.840.10008.1.2", "1.2.840.10008.1.2.1",
                                                            "1.2.840.10008.1.2.2"};

/// Those that GDCM decodes.
bool is_packed_syntax(const std::string& uid) {
  const gdcm::TransferSyntax syntax(gdcm::TransferSyntax::GetTSType(uid.c_str()));
  return !uid.empty() && syntax.IsEncapsulated() && !uid.starts_with("1.2.840.10008.1.2.4.10");
}

std::string name_of_syntax(const std::string& uid) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFamilies = {{
      {"1.2.840.10008.1.2.4.10", "MPEG video"},
      {"1.2.840.10008.1.2.4.11", "JPEG XL"},
      {"1.2.840.10008.1.2.4.20", "High-Throughput JPEG 2000"},
      {"1.2.840.10008.1.2.4.92", "JPEG 2000 Part 2"},
      {"1.2.840.10008.1.2.4.93", "JPEG 2000 Part 2"},
      {"1.2.840.10008.1.2.4.94", "JPIP"},
      {"1.2.840.10008.1.2.4.95", "JPIP"},
      {"1.2.840.10008.1.2.4.5", "a retired kind of JPEG"},
  }};
  for (const auto& [start, name] : kFamilies)
    if (uid.starts_with(start)) return uid + " (" + std::string(name) + ")";
  return uid;
}

std::string number_text(std::optional<double> value) {
  if (!value) return {};
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, *value).ptr;
  return std::string(buffer, end);
}

/// The first item of a sequence, or nothing.
const DicomDataSet* item_of(const DicomDataSet& data, DicomTag sequence) {
  const auto& items = data.items(sequence);
  return items.empty() ? nullptr : &items[0];
}

void read_plane(const DicomDataSet& data, DicomFrame& frame) {
  if (const auto p = data.decimals(tag(0x0020, 0x0032)); p.size() == 3) frame.position = Vec3{p[0], p[1], p[2]};
  if (const auto o = data.decimals(tag(0x0020, 0x0037)); o.size() == 6)
    frame.orientation = {{{o[0], o[1], o[2]}, {o[3], o[4], o[5]}}};
}

void read_measures(const DicomDataSet& data, DicomFrame& frame) {
  if (const auto s = data.decimals(tag(0x0028, 0x0030)); s.size() == 2) frame.pixel_spacing = {{s[0], s[1]}};
  if (const auto thickness = data.decimal(tag(0x0018, 0x0050))) frame.slice_thickness = thickness;
  if (const auto between = data.decimal(tag(0x0018, 0x0088))) frame.spacing_between_slices = between;
}

void read_rescale(const DicomDataSet& data, DicomFrame& frame) {
  if (data.contains(tag(0x0028, 0x3000)))
    throw Error(ErrorCode::unsupported,
                "the values are given by a modality lookup table (0028,3000), which volpipe does not apply: convert "
                "the file first");
  frame.slope = data.decimal(tag(0x0028, 0x1053)).value_or(frame.slope);
  frame.intercept = data.decimal(tag(0x0028, 0x1052)).value_or(frame.intercept);
  if (frame.slope == 0)
    throw Error(ErrorCode::input,
                "RescaleSlope is 0, so every voxel would be equal: repair the header or leave the file out");
}

std::string& mark(DicomFrame& frame, FrameMark which) { return frame.marks[std::size_t(which)]; }

/// Every frame of a file has a copy of its marks.
void set_mark(DicomFrame& frame, FrameMark which, std::string text) {
  constexpr std::size_t kLongest = 1024;
  if (text.size() > kLongest)
    throw Error(ErrorCode::input, std::string(kFrameMarkNames[std::size_t(which)]) + " has " +
                                      std::to_string(text.size()) + " characters, expected at most " +
                                      std::to_string(kLongest) + ": the header is damaged");
  if (!text.empty()) mark(frame, which) = std::move(text);
}

DicomFrame classic_frame(const DicomDataSet& data) {
  DicomFrame frame;
  read_plane(data, frame);
  read_measures(data, frame);
  read_rescale(data, frame);
  set_mark(frame, FrameMark::acquisition, data.text(tag(0x0020, 0x0012)));
  set_mark(frame, FrameMark::temporal_position, data.text(tag(0x0020, 0x0100)));
  set_mark(frame, FrameMark::trigger_time, data.text(tag(0x0018, 0x1060)));
  set_mark(frame, FrameMark::b_value, number_text(data.real(tag(0x0018, 0x9087))));
  set_mark(frame, FrameMark::echo_number, data.text(tag(0x0018, 0x0086)));
  set_mark(frame, FrameMark::echo_time, data.text(tag(0x0018, 0x0081)));
  set_mark(frame, FrameMark::image_type, data.text(tag(0x0008, 0x0008)));
  return frame;
}

/// What one item of the shared or per-frame functional groups says.
void read_functional_groups(const DicomDataSet& groups, DicomFrame& frame) {
  if (const auto* item = item_of(groups, tag(0x0020, 0x9113))) read_plane(*item, frame);
  if (const auto* item = item_of(groups, tag(0x0020, 0x9116))) read_plane(*item, frame);
  if (const auto* item = item_of(groups, tag(0x0028, 0x9110))) read_measures(*item, frame);
  if (const auto* item = item_of(groups, tag(0x0028, 0x9145))) read_rescale(*item, frame);
  if (const auto* item = item_of(groups, tag(0x0020, 0x9111))) {
    if (const auto index = item->whole(tag(0x0020, 0x9128)))
      set_mark(frame, FrameMark::temporal_position, std::to_string(*index));
    if (const auto number = item->whole(tag(0x0020, 0x9156)))
      set_mark(frame, FrameMark::acquisition, std::to_string(*number));
  }
  if (const auto* item = item_of(groups, tag(0x0018, 0x9118)))
    set_mark(frame, FrameMark::trigger_time, number_text(item->real(tag(0x0020, 0x9153))));
  if (const auto* item = item_of(groups, tag(0x0018, 0x9117)))
    set_mark(frame, FrameMark::b_value, number_text(item->real(tag(0x0018, 0x9087))));
  if (const auto* item = item_of(groups, tag(0x0018, 0x9114)))
    set_mark(frame, FrameMark::echo_time, number_text(item->real(tag(0x0018, 0x9082))));
  for (const DicomTag type : {tag(0x0018, 0x9226), tag(0x0018, 0x9329), tag(0x0018, 0x9751)})
    if (const auto* item = item_of(groups, type))
      set_mark(frame, FrameMark::image_type, item->text(tag(0x0008, 0x9007)));
}

constexpr DicomTag kFrameGroups = tag(0x5200, 0x9230);

/// Frames of which nothing is said one by one: what the file says of its position holds for none of them, and what it
/// says besides tells none of them apart.
std::vector<DicomFrame> unplaced_frames(DicomFrame common, std::int64_t count) {
  constexpr std::int64_t kMost = 65536;
  if (count > kMost)
    throw Error(ErrorCode::unsupported, "NumberOfFrames is " + std::to_string(count) + ": at most " +
                                            std::to_string(kMost) + " are read where the frames are not described");
  common.position.reset();
  common.marks = {};
  return std::vector<DicomFrame>(std::size_t(count), common);
}

std::int64_t number_of_frames(const DicomDataSet& data) {
  const double count = data.decimal(tag(0x0028, 0x0008)).value_or(1);
  if (count >= 1 && count <= std::numeric_limits<std::int32_t>::max()) return std::int64_t(count);
  throw Error(ErrorCode::input,
              "NumberOfFrames is " + number_text(count) + ", expected a whole number from 1 on: the header is damaged");
}

std::vector<DicomFrame> read_frames(const DicomDataSet& data) {
  const std::int64_t count = number_of_frames(data);
  const DicomTag shared_groups = tag(0x5200, 0x9229), frame_groups = kFrameGroups;
  const bool enhanced = data.contains(frame_groups);

  DicomFrame common = classic_frame(data);
  if (!enhanced) return count == 1 ? std::vector{common} : unplaced_frames(common, count);
  if (const auto* shared = item_of(data, shared_groups)) read_functional_groups(*shared, common);
  const auto& items = data.items(frame_groups);
  if (std::int64_t(items.size()) != count)
    throw Error(ErrorCode::input, "the header announces " + std::to_string(count) + " frames and describes " +
                                      std::to_string(items.size()) + ": the file is damaged");
  std::vector<DicomFrame> frames(items.size(), common);
  for (std::size_t i = 0; i < frames.size(); ++i) read_functional_groups(items[i], frames[i]);
  return frames;
}

/// Why the uncompressed pixel data are not whole; empty when they are.
std::string plain_fault(DicomFile& file, std::uint64_t file_bytes) {
  const std::uint64_t expected = file.frames.size() * file.frame_bytes();
  const std::uint64_t present = std::min(file.pixels.length, file_bytes - std::min(file_bytes, file.pixels.offset));
  if (present >= expected) {
    file.surplus = present - expected > 1 ? present - expected : 0;
    return {};
  }
  return file.name() + ": the pixel data are short, " + std::to_string(present) + " bytes of the " +
         std::to_string(expected) + " that its header announces: copy or export the file again";
}

struct Fragment {
  std::uint64_t offset;
  std::uint32_t length;
};

/// The items of compressed pixel data, the offset table first; nothing when their delimiter is missing.
std::optional<std::vector<Fragment>> find_fragments(InputFile& input, std::uint64_t position) {
  constexpr std::uint32_t kItem = 0xe000fffe, kDelimiter = 0xe0ddfffe;  // as they lie in little-endian files
  std::vector<Fragment> fragments;
  for (std::array<std::uint32_t, 2> head; input.read_at(position, head.data(), sizeof head) == sizeof head;) {
    if (head[0] == kDelimiter) return fragments;
    if (head[0] != kItem) break;
    position += sizeof head;
    fragments.push_back({position, head[1]});
    position += head[1];
  }
  return std::nullopt;
}

/// Two bytes of RLE stand for 128 at most.
std::string rle_fault(const DicomFile& file, const std::vector<Fragment>& fragments) {
  constexpr std::uint64_t kLargestRatio = 64;
  const std::uint64_t expected = file.frames.size() * file.frame_bytes();
  std::uint64_t present = 0;
  for (const Fragment& fragment : fragments) present += fragment.length;
  if (expected <= present * kLargestRatio) return {};
  return file.name() + ": its header announces " + std::to_string(expected) +
         " bytes of pixels, more than RLE can pack into the " + std::to_string(present) +
         " that are there: copy or export the file again";
}

std::string pixel_fault(DicomFile& file, InputFile& input) {
  if (!file.pixels.fragments) return plain_fault(file, input.size());
  if (const auto fragments = find_fragments(input, file.pixels.offset))
    return file.transfer_syntax == kRle ? rle_fault(file, *fragments) : "";
  return file.name() + ": the compressed pixel data are cut short or damaged: copy or export the file again";
}

void read_pixel_layout(const DicomDataSet& data, DicomFile& file) {
  file.rows = data.whole(tag(0x0028, 0x0010)).value_or(0);
  file.columns = data.whole(tag(0x0028, 0x0011)).value_or(0);
  file.samples = int(data.whole(tag(0x0028, 0x0002)).value_or(1));
  file.bits_allocated = int(data.whole(tag(0x0028, 0x0100)).value_or(0));
  file.bits_stored = int(data.whole(tag(0x0028, 0x0101)).value_or(file.bits_allocated));
  file.high_bit = int(data.whole(tag(0x0028, 0x0102)).value_or(file.bits_stored - 1));
  file.is_signed = int(data.whole(tag(0x0028, 0x0103)).value_or(0)) == 1;
  file.planar_samples = int(data.whole(tag(0x0028, 0x0006)).value_or(0)) == 1;
  file.photometric = data.text(tag(0x0028, 0x0004));
  const int bits = file.bits_allocated;
  if (bits != 8 && bits != 16 && bits != 32)
    throw Error(ErrorCode::unsupported,
                "pixels of " + std::to_string(bits) + " bits are not supported: 8, 16 or 32 are expected");
  constexpr std::int64_t kMost = 65535;  // what 16 bits hold, and no product of sizes overflows
  if (file.rows < 1 || file.rows > kMost || file.columns < 1 || file.columns > kMost || file.samples < 1 ||
      file.samples > kMost)
    throw Error(ErrorCode::input, "the image has " + std::to_string(file.rows) + " rows, " +
                                      std::to_string(file.columns) + " columns and " + std::to_string(file.samples) +
                                      " samples, expected 1 to 65535 of each: the header is damaged");
  if (file.bits_stored < 1 || file.bits_stored > bits || file.high_bit >= bits || file.high_bit + 1 < file.bits_stored)
    throw Error(ErrorCode::input, "BitsStored " + std::to_string(file.bits_stored) + " and HighBit " +
                                      std::to_string(file.high_bit) + " do not fit in BitsAllocated " +
                                      std::to_string(bits) + ": repair the header");
}

}  // namespace

std::string DicomFile::name() const { return std::filesystem::path(path).filename().string(); }

std::optional<DicomFile> read_dicom_file(const std::string& path) try {
  InputFile input(path);
  const DicomHeader header = read_dicom_header(input);
  const DicomDataSet& data = header.data;
  if (!data.contains(tag(0x0028, 0x0010))) {
    if (data.text(tag(0x0008, 0x0016)).empty() && header.transfer_syntax.empty())
      throw Error(ErrorCode::input, "no DICOM header could be read: the file is damaged or of another kind");
    return std::nullopt;
  }

  DicomFile file;
  file.path = path;
  file.sop_class = data.text(tag(0x0008, 0x0016));
  file.series_uid = data.text(tag(0x0020, 0x000e));
  file.series_number = data.text(tag(0x0020, 0x0011));
  if (const auto number = data.decimals(tag(0x0020, 0x0013)); number.size() == 1) file.instance_number = number[0];
  file.localizer = data.text(tag(0x0008, 0x0008)).find("LOCALIZER") != std::string::npos;
  file.transfer_syntax = header.transfer_syntax;
  file.big_endian = header.big_endian;
  read_pixel_layout(data, file);
  file.frames = read_frames(data);
  file.multi_frame = file.frames.size() > 1;
  file.lists_frames = data.contains(kFrameGroups);
  file.pixels = header.pixels.value_or(DicomPixels{});
  file.fault = header.pixels ? pixel_fault(file, input)
                             : file.name() + ": the file ends before its pixel data: copy or export it again";
  return file;
} catch (Error& error) { throw std::move(error).with_path(path); } catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory, "no host memory for the DICOM header").with_path(path);
}

void check_transfer_syntax(const DicomFile& file) {
  const bool plain = file.transfer_syntax.empty() || std::find(kPlainSyntaxes.begin(), kPlainSyntaxes.end(),
                                                               file.transfer_syntax) != kPlainSyntaxes.end();
  const bool packed = is_packed_syntax(file.transfer_syntax);
  if (!plain && !packed)
    throw Error(ErrorCode::unsupported, file.name() + ": the transfer syntax " + name_of_syntax(file.transfer_syntax) +
                                            " is not supported: save it uncompressed, as explicit VR little endian")
        .with_path(file.path);
  if (packed == file.pixels.fragments) return;
  throw Error(ErrorCode::input, file.name() + ": the transfer syntax " + name_of_syntax(file.transfer_syntax) +
                                    (packed ? " announces compressed pixels and they lie there uncompressed"
                                            : " announces uncompressed pixels and they lie there compressed") +
                                    ": export the file again")
      .with_path(file.path);
}

namespace {

StoredPixels read_fragments(const DicomFile& file, InputFile& input) {
  const auto found = find_fragments(input, file.pixels.offset);
  if (!found || found->size() < 2) throw Error(ErrorCode::input, file.name() + ": there are no compressed pixel data");
  StoredPixels pieces;
  for (const Fragment& fragment : *found) {
    std::vector<std::uint8_t>& bytes = pieces.emplace_back(fragment.length);
    bytes.resize(input.read_at(fragment.offset, bytes.data(), bytes.size()));
  }
  return pieces;
}

[[noreturn]] void refuse_damaged(const DicomFile& file) {
  throw Error(ErrorCode::input, file.name() + ": the compressed pixel data are damaged: export the file again");
}

std::vector<std::uint8_t> decode_plain(const DicomFile& file, std::vector<std::uint8_t> pixels) {
  const auto word = std::ptrdiff_t(file.bits_allocated / 8);
  if (file.big_endian && word > 1)
    for (auto first = pixels.begin(); first != pixels.end(); first += word) std::reverse(first, first + word);
  return pixels;
}

std::vector<std::uint8_t> decode_rle(DicomFile& file, const StoredPixels& stored) {
  if (stored.size() != file.frames.size() + 1)
    throw Error(ErrorCode::input, file.name() + ": it holds " + std::to_string(stored.size() - 1) +
                                      " compressed frames where its header announces " +
                                      std::to_string(file.frames.size()) + ": export the file again");
  std::vector<std::uint8_t> pixels(file.frames.size() * file.frame_bytes());
  for (std::size_t i = 0; i < file.frames.size(); ++i)
    if (!decode_rle_frame(stored[i + 1], std::size_t(file.rows * file.columns), file.samples, file.bits_allocated / 8,
                          pixels.data() + i * file.frame_bytes()))
      refuse_damaged(file);
  file.planar_samples = true;
  return pixels;
}

/// Whether a fragment ends with the marker FFD9, with which JPEG, JPEG-LS and JPEG 2000 all end and which their data
/// cannot hold.
bool ends_a_frame(const std::vector<std::uint8_t>& fragment) {
  std::size_t length = fragment.size();
  while (length > 0 && fragment[length - 1] == 0) --length;
  return length >= 2 && fragment[length - 2] == 0xff && fragment[length - 1] == 0xd9;
}

/// Whether a fragment starts as a JPEG or JPEG-LS stream, a JPEG 2000 codestream or a JP2 file does.
bool starts_a_frame(const std::vector<std::uint8_t>& fragment) {
  static constexpr std::array<std::uint8_t, 8> kJp2 = {0, 0, 0, 12, 'j', 'P', ' ', ' '};
  if (fragment.size() < kJp2.size()) return false;
  return (fragment[0] == 0xff && (fragment[1] == 0xd8 || fragment[1] == 0x4f)) ||
         std::equal(kJp2.begin(), kJp2.end(), fragment.begin());
}

/// The stream of each frame, of one or several fragments.
std::vector<std::vector<std::uint8_t>> streams_of_frames(const DicomFile& file, const StoredPixels& stored) {
  std::vector<std::vector<std::uint8_t>> streams;
  bool open = false;
  for (auto fragment = stored.begin() + 1; fragment != stored.end(); ++fragment) {
    if (!open) streams.emplace_back();
    streams.back().insert(streams.back().end(), fragment->begin(), fragment->end());
    open = !ends_a_frame(*fragment);
  }
  const std::size_t whole = streams.size() - (open ? 1 : 0);
  if (!open && whole == file.frames.size()) return streams;
  throw Error(ErrorCode::input, file.name() + ": " + std::to_string(whole) + " of its " +
                                    std::to_string(file.frames.size()) +
                                    " compressed frames reach their end mark: they are cut short or damaged, export "
                                    "the file again");
}

JpegKind kind_of_jpeg(const std::string& uid) {
  static constexpr std::string_view kFamily = "1.2.840.10008.1.2.4.";
  const std::string_view number = uid.starts_with(kFamily) ? std::string_view(uid).substr(kFamily.size()) : "";
  if (number == "50" || number == "51") return JpegKind::sequential;
  return number == "57" || number == "70" ? JpegKind::lossless : JpegKind::other;
}

/// The sound stream of a frame, or an Error.
std::vector<std::uint8_t> sound_jpeg(const DicomFile& file, const std::vector<std::uint8_t>& stream) {
  CheckedJpeg jpeg = check_jpeg(
      stream, {kind_of_jpeg(file.transfer_syntax), {file.rows, file.columns, file.samples}, file.bits_allocated});
  if (!jpeg.known)
    throw Error(ErrorCode::unsupported, file.name() + ": the compressed pixel data are not supported (" + jpeg.fault +
                                            "): save it uncompressed");
  if (!jpeg.fault.empty())
    throw Error(ErrorCode::input, file.name() + ": the compressed pixel data are damaged (" + jpeg.fault +
                                      "): export the file again or get a sound copy of it");
  return std::move(jpeg.stream);
}

bool starts_a_jpeg(const std::vector<std::uint8_t>& stream) { return stream[0] == 0xff && stream[1] == 0xd8; }

/// The streams of the frames, behind an empty offset table. The decoders fill up what is missing and say nothing,
/// complain on standard error, or end the process.
StoredPixels sound_frames(const DicomFile& file, const StoredPixels& stored) {
  StoredPixels frames(1);
  for (auto& stream : streams_of_frames(file, stored)) {
    if (!starts_a_frame(stream)) refuse_damaged(file);
    const auto size = compressed_frame_size(stream);
    if (size && *size != FrameSize{file.rows, file.columns, file.samples})
      throw Error(ErrorCode::input, file.name() + ": its compressed frames are of " + std::to_string(size->rows) +
                                        " rows, " + std::to_string(size->columns) + " columns and " +
                                        std::to_string(size->samples) + " samples, its header announces " +
                                        std::to_string(file.rows) + ", " + std::to_string(file.columns) + " and " +
                                        std::to_string(file.samples) + ": export the file again");
    if (starts_a_jpeg(stream)) stream = sound_jpeg(file, stream);
    else if (kind_of_jpeg(file.transfer_syntax) != JpegKind::other) refuse_damaged(file);
    if (stream.size() % 2 != 0) stream.push_back(0);
    frames.push_back(std::move(stream));
  }
  return frames;
}

/// The compressed pixels as GDCM's decoders want them.
gdcm::DataElement pixel_element(const StoredPixels& stored) {
  const auto sequence = gdcm::SequenceOfFragments::New();
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const auto* first = reinterpret_cast<const char*>(stored[i].data());
    const gdcm::VL length(std::uint32_t(stored[i].size()));
    gdcm::Fragment fragment;
    fragment.SetByteValue(first, length);
    if (i == 0) sequence->GetTable().SetByteValue(first, length);
    else sequence->AddFragment(fragment);
  }
  gdcm::DataElement element(gdcm::Tag(0x7fe0, 0x0010));
  element.SetVR(gdcm::VR::OB);
  element.SetValue(*sequence);
  return element;
}

std::vector<std::uint8_t> decode_by_gdcm(DicomFile& file, const StoredPixels& stored) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::input, file.name() + ": " + why); };
  const gdcm::TransferSyntax syntax(gdcm::TransferSyntax::GetTSType(file.transfer_syntax.c_str()));
  if (!syntax.IsEncapsulated())
    refuse("its transfer syntax " + file.transfer_syntax + " is not known: export it uncompressed");
  const StoredPixels frames = sound_frames(file, stored);
  gdcm::Image image;
  image.SetNumberOfDimensions(file.multi_frame ? 3 : 2);
  image.SetDimension(0, unsigned(file.columns));
  image.SetDimension(1, unsigned(file.rows));
  if (file.multi_frame) image.SetDimension(2, unsigned(file.frames.size()));
  using U16 = unsigned short;
  image.SetPixelFormat(gdcm::PixelFormat(U16(file.samples), U16(file.bits_allocated), U16(file.bits_stored),
                                         U16(file.high_bit), U16(file.is_signed)));
  image.SetPhotometricInterpretation(
      gdcm::PhotometricInterpretation(gdcm::PhotometricInterpretation::GetPIType(file.photometric.c_str())));
  image.SetPlanarConfiguration(file.planar_samples ? 1 : 0);
  image.SetTransferSyntax(syntax);
  image.SetDataElement(pixel_element(frames));
  const std::size_t bytes = file.frames.size() * file.frame_bytes();
  if (image.GetBufferLength() != bytes)
    refuse("the compressed pixel data do not have the size that its header announces");
  std::vector<std::uint8_t> pixels(bytes);
  if (!image.GetBuffer(reinterpret_cast<char*>(pixels.data())))
    refuse("the compressed pixel data are damaged, or compressed in a way GDCM does not know: export the file again");
  file.planar_samples = image.GetPlanarConfiguration() == 1;
  return pixels;
}

/// Calls `work`; what it throws becomes an Error with the file's path.
template <class Work>
auto guarded(const DicomFile& file, Work&& work) try {
  return work();
} catch (Error& error) { throw std::move(error).with_path(file.path); } catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory, "no host memory for the pixels of " + file.path).with_path(file.path);
} catch (const std::exception& error) {
  throw Error(ErrorCode::input, "the pixel data are damaged: " + std::string(error.what())).with_path(file.path);
}

}  // namespace

StoredPixels read_stored_pixels(const DicomFile& file) {
  return guarded(file, [&] {
    InputFile input(file.path);
    if (file.pixels.fragments) return read_fragments(file, input);
    std::vector<std::uint8_t> pixels(file.frames.size() * file.frame_bytes());
    if (input.read_at(file.pixels.offset, pixels.data(), pixels.size()) < pixels.size())
      throw Error(ErrorCode::input, file.name() + ": the pixel data end early: copy or export the file again");
    return StoredPixels{std::move(pixels)};
  });
}

std::vector<std::uint8_t> decode_pixels(DicomFile& file, StoredPixels stored) {
  return guarded(file, [&] {
    if (!file.pixels.fragments) return decode_plain(file, std::move(stored[0]));
    return file.transfer_syntax == kRle ? decode_rle(file, stored) : decode_by_gdcm(file, stored);
  });
}

std::vector<DicomFile> read_dicom_files(const std::vector<std::string>& paths, const HostThreads* threads) {
  std::vector<DicomFile> files(paths.size());
  in_order(threads, paths.size(), [&](std::size_t i) {
    auto file = read_dicom_file(paths[i]);
    if (!file) throw Error(ErrorCode::input, "the DICOM file holds no image").with_path(paths[i]);
    files[i] = std::move(*file);
  });
  return files;
}

}  // namespace volpipe::io
