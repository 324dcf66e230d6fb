#include "io/nifti.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "io/atomic_file.h"
#include "io/gzip.h"
#include "io/gzip_writer.h"
#include "io/input_file.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestHeader = 540;
constexpr std::size_t kChunkValues = 3 << 16;  // a multiple of 3 and 4, so RGB and RGBA voxels are never cut
constexpr std::uint64_t kLongestTail = std::uint64_t(64) << 20;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return text;
}

bool has_gz_name(const std::string& path) { return lower_case(path).ends_with(".gz"); }

// The bytes of a file from its start, unpacked when they are gzip, whatever the name says.
class Content {
 public:
  explicit Content(const std::string& path) : file_(path) {
    if (is_gzip(file_)) gzip_.emplace(file_);
  }

  const std::string& path() const { return file_.path(); }
  bool packed() const { return gzip_.has_value(); }
  std::uint64_t file_size() const { return file_.size(); }
  std::uint64_t largest_size() const { return packed() ? file_.size() * kLargestGzipRatio : file_.size(); }
  double read_ms() const { return file_.read_ms(); }
  void expect_sequential_reads() const { file_.expect_sequential_reads(); }
  void expect(std::uint64_t bytes) {
    if (gzip_) gzip_->expect(bytes);
  }

  std::size_t read(void* out, std::size_t bytes) {
    const std::size_t count = gzip_ ? gzip_->read(out, bytes) : file_.read_at(position_, out, bytes);
    position_ += count;
    return count;
  }

  std::uint64_t skip_to(std::uint64_t offset) {
    if (!gzip_) return position_ = std::min(offset, file_.size());
    std::vector<std::byte> scratch(std::min<std::uint64_t>(offset - position_, 1 << 16));
    while (position_ < offset)
      if (read(scratch.data(), std::min<std::uint64_t>(scratch.size(), offset - position_)) == 0) break;
    return position_;
  }

 private:
  InputFile file_;
  std::optional<GzipReader> gzip_;
  std::uint64_t position_ = 0;
};

struct Opened {
  NiftiHeader header;
  NiftiImage image;
  std::unique_ptr<Content> data;  // at its start, or behind the header that begins it
};

// With or without .gz after it.
bool has_extension(const std::string& path, const char* extension) {
  const std::string name = lower_case(path);
  return name.ends_with(extension) || name.ends_with(extension + std::string(".gz"));
}

// The partner of a file of a pair, in the same case of letters: .img for .hdr and the other way round, packed or not.
std::string partner_of(const std::string& path) {
  const bool gz = has_gz_name(path);
  const std::string plain = gz ? path.substr(0, path.size() - 3) : path;
  const bool upper = plain.back() >= 'A' && plain.back() <= 'Z';
  const char* extension = has_extension(plain, ".hdr") ? (upper ? ".IMG" : ".img") : (upper ? ".HDR" : ".hdr");
  const std::string partner = plain.substr(0, plain.size() - 4) + extension;
  const std::string packed = partner + (upper ? ".GZ" : ".gz");
  const std::string& first = gz ? packed : partner;
  const std::string& second = gz ? partner : packed;
  if (fs::exists(first) || !fs::exists(second)) return first;
  return second;
}

void note_name(const Content& content, Notices& notices) {
  if (content.packed() == has_gz_name(content.path())) return;
  notices.add("misleading_name", content.packed()
                                     ? "the file is gzip although its name does not end in .gz: read as gzip"
                                     : "the file is not gzip although its name ends in .gz: read as it is");
}

NiftiHeader read_header(Content& content) {
  std::array<std::byte, kLargestHeader> bytes;
  if (content.file_size() == 0) throw Error(ErrorCode::input, "the file is empty");
  std::size_t count = content.read(bytes.data(), 4);
  const std::size_t size = nifti_header_bytes(std::span(bytes).first(count));
  if (size > 0) count += content.read(bytes.data() + 4, size - 4);
  return parse_nifti_header(std::span(bytes).first(count));
}

void check_pairing(const NiftiHeader& header, const std::string& path) {
  const bool pair_name = has_extension(path, ".hdr");
  if (header.pair && !pair_name)
    throw Error(ErrorCode::input,
                "the magic bytes say that the data are in an .img file, but the name is not one of an .hdr file: "
                "rename the pair to .hdr and .img");
  if (!header.pair && pair_name)
    throw Error(ErrorCode::input,
                "the magic bytes say that header and data are in one file, but the name is one of a pair: "
                "rename it to .nii");
}

void check_length(const NiftiImage& image, const Content& data) {
  const std::uint64_t needed = image.data_offset + image.data_bytes;
  if (needed <= data.largest_size()) return;
  const std::string size = std::to_string(data.file_size());
  throw Error(ErrorCode::input, "the header promises " + std::to_string(needed) + " bytes, " +
                                    (data.packed() ? "more than gzip can pack into the " + size + " of the file"
                                                   : "the file has " + size) +
                                    ": it is truncated or damaged, get a sound copy")
      .with_path(data.path());
}

Opened open_files(const std::string& path, Notices& notices, NiftiAffine affine) {
  const std::string header_path = has_extension(path, ".img") ? partner_of(path) : path;
  Opened opened;
  opened.data = std::make_unique<Content>(header_path);
  note_name(*opened.data, notices);
  opened.header = read_header(*opened.data);
  check_pairing(opened.header, header_path);
  opened.image = interpret_nifti_header(opened.header, notices, affine);
  if (opened.header.pair) {
    opened.data = std::make_unique<Content>(partner_of(header_path));
    note_name(*opened.data, notices);
  }
  check_length(opened.image, *opened.data);
  opened.data->expect(opened.image.data_offset + opened.image.data_bytes);
  return opened;
}

void read_fully(Content& data, const NiftiImage& image, std::uint64_t done, void* out, std::size_t bytes) {
  const std::size_t count = data.read(out, bytes);
  if (count == bytes) return;
  throw Error(ErrorCode::input, "the data end after " + std::to_string(done + count) + " of " +
                                    std::to_string(image.data_bytes) +
                                    " bytes: the file is truncated, get a sound copy")
      .with_path(data.path());
}

template <class T>
T swapped(T value) {
  if constexpr (sizeof(T) == 2) return std::bit_cast<T>(__builtin_bswap16(std::bit_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(__builtin_bswap32(std::bit_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
  return value;
}

template <class T>
void swap_bytes(T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = swapped(values[i]);
}

template <class T>
std::size_t count_non_finite(const T* values, std::size_t count) {
  std::size_t found = 0;
  if constexpr (std::is_floating_point_v<T>)
    for (std::size_t i = 0; i < count; ++i) found += !(std::abs(values[i]) <= std::numeric_limits<T>::max());
  return found;
}

// Calls visitor(TypeTag<T>{}) with the C++ type of one stored number.
template <class Visitor>
decltype(auto) visit_stored(int datatype, Visitor&& visitor) {
  switch (datatype) {
    case 4:
      return visitor(TypeTag<std::int16_t>{});
    case 8:
      return visitor(TypeTag<std::int32_t>{});
    case 16:
      return visitor(TypeTag<float>{});
    case 64:
      return visitor(TypeTag<double>{});
    case 256:
      return visitor(TypeTag<std::int8_t>{});
    case 512:
      return visitor(TypeTag<std::uint16_t>{});
    case 768:
      return visitor(TypeTag<std::uint32_t>{});
    case 1024:
      return visitor(TypeTag<std::int64_t>{});
    case 1280:
      return visitor(TypeTag<std::uint64_t>{});
    default:
      return visitor(TypeTag<std::uint8_t>{});  // uint8, RGB24, RGBA32
  }
}

// Brings the stored numbers of one file into the buffer, a chunk that stays in the cache at a time.
class VoxelReader {
 public:
  VoxelReader(Opened& opened, void* out)
      : data_(*opened.data), image_(opened.image), swap_(opened.header.byte_swapped), out_(out) {}

  void read() {
    visit_stored(image_.datatype, [&](auto tag) {
      using Stored = typename decltype(tag)::type;
      if (image_.interleaved > 1) read_interleaved();
      else if (image_.scaled && image_.info.dtype == DataType::float32) read_scaled<Stored, float>();
      else if (image_.scaled) read_scaled<Stored, double>();
      else if constexpr (std::is_integral_v<Stored> && sizeof(Stored) == 8) read_narrowed<Stored>();
      else read_as_stored<Stored>();
    });
  }

  /// Throws Error(unsupported) where 64-bit integers do not fit; to be asked when the file is known to be sound.
  DataType dtype() const {
    if (!range_) return image_.info.dtype;
    const auto& [least, most, is_signed, text] = *range_;
    if (is_signed && least >= std::numeric_limits<std::int32_t>::min() &&
        most <= std::numeric_limits<std::int32_t>::max())
      return DataType::int32;
    if (least >= 0 && most <= std::numeric_limits<std::uint32_t>::max()) return DataType::uint32;
    throw Error(ErrorCode::unsupported, "the 64-bit integers reach from " + text +
                                            ", which 32 bits do not hold: renumber them, or store float64");
  }
  std::size_t non_finite() const { return non_finite_; }

 private:
  struct Range {
    std::int64_t least;
    std::uint64_t most;  // 0 where all are negative
    bool is_signed;
    std::string text;
  };

  // work(values, first, count) on native-endian chunks; `place` says where each is read to.
  template <class Stored, class Place, class Work>
  void for_chunks(Place&& place, Work&& work) {
    const std::size_t total = image_.data_bytes / sizeof(Stored);
    for (std::size_t first = 0; first < total; first += kChunkValues) {
      const std::size_t count = std::min(kChunkValues, total - first);
      Stored* values = place(first);
      read_fully(data_, image_, first * sizeof(Stored), values, count * sizeof(Stored));
      if (swap_) swap_bytes(values, count);
      work(values, first, count);
    }
  }

  template <class Stored, class Work>
  void through_scratch(Work&& work) {
    std::vector<Stored> scratch(std::min<std::size_t>(kChunkValues, image_.data_bytes / sizeof(Stored)));
    for_chunks<Stored>([&](std::size_t) { return scratch.data(); }, work);
  }

  template <class Stored>
  void read_as_stored() {
    auto* out = static_cast<Stored*>(out_);
    for_chunks<Stored>(
        [&](std::size_t first) { return out + first; },
        [&](const Stored* values, std::size_t, std::size_t count) { non_finite_ += count_non_finite(values, count); });
  }

  template <class Stored, class Result>
  void read_scaled() {
    auto* out = static_cast<Result*>(out_);
    through_scratch<Stored>([&](const Stored* values, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i)
        out[first + i] = Result(double(values[i]) * image_.slope + image_.intercept);
      non_finite_ += count_non_finite(out + first, count);
    });
  }

  // The low 32 bits are the same for both signs, so which it is can be decided at the end.
  template <class Stored>
  void read_narrowed() {
    auto* out = static_cast<std::uint32_t*>(out_);
    Stored least = std::numeric_limits<Stored>::max(), most = std::numeric_limits<Stored>::lowest();
    through_scratch<Stored>([&](const Stored* values, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        least = std::min(least, values[i]);
        most = std::max(most, values[i]);
        out[first + i] = std::uint32_t(values[i]);
      }
    });
    constexpr auto kHighest = std::uint64_t(std::numeric_limits<std::int64_t>::max());
    range_ = Range{least > 0 ? std::int64_t(std::min(std::uint64_t(least), kHighest)) : std::int64_t(least),
                   most > 0 ? std::uint64_t(most) : 0, std::is_signed_v<Stored>,
                   std::to_string(least) + " to " + std::to_string(most)};
  }

  void read_interleaved() {
    auto* out = static_cast<std::uint8_t*>(out_);
    const std::size_t channels = std::size_t(image_.interleaved),
                      plane = std::size_t(image_.info.geometry.voxel_count());
    through_scratch<std::uint8_t>([&](const std::uint8_t* values, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) out[(i % channels) * plane + (first + i) / channels] = values[i];
    });
  }

  Content& data_;
  const NiftiImage& image_;
  bool swap_;
  void* out_;
  std::size_t non_finite_ = 0;
  std::optional<Range> range_;  // of 64-bit integers
};

// Reads to the end of the file, so that a packed one is checked whole.
void note_tail(Content& data, const NiftiImage& image, Notices& notices) {
  const std::uint64_t end = image.data_offset + image.data_bytes;
  const std::uint64_t tail = (data.packed() ? data.skip_to(end + kLongestTail) : data.file_size()) - end;
  if (data.packed() && tail == kLongestTail)
    throw Error(ErrorCode::input,
                "the gzip stream goes on for more than " + std::to_string(kLongestTail) +
                    " bytes after the data that the header promises: the header or the file is damaged")
        .with_path(data.path());
  if (tail > 0) notices.add("trailing_bytes", std::to_string(tail) + " bytes follow the data and are not read");
}

void check_kept(const VolumeInfo& wanted, const VolumeInfo& found) {
  const bool several = wanted.components > 1;
  const auto axis = !several                                         ? ComponentAxis::none
                    : wanted.component_axis == ComponentAxis::frames ? ComponentAxis::frames
                                                                     : ComponentAxis::channels;
  if (found.geometry.size() != wanted.geometry.size() || found.dtype != wanted.dtype ||
      found.components != wanted.components || found.component_axis != axis)
    throw Error(ErrorCode::output,
                "the header of the written file does not describe the volume: check the disk and run again");
  if (same_grid(found.geometry, wanted.geometry)) return;
  char mm[32];
  std::snprintf(mm, sizeof mm, "%.3g", max_corner_distance_mm(found.geometry, wanted.geometry));
  throw Error(ErrorCode::unsupported, std::string("the grid would move by ") + mm +
                                          " mm because NIfTI-1 stores the affine as float32: write .nrrd instead");
}

// A grid that float32 cannot hold must not cost the time of writing the voxels first.
std::vector<std::byte> header_for(const VolumeInfo& info) {
  try {
    std::vector<std::byte> bytes = encode_nifti_header(make_nifti_header(info));
    Notices ignored;
    check_kept(info, interpret_nifti_header(parse_nifti_header(bytes), ignored).info);
    return bytes;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) throw;
    throw Error(ErrorCode::unsupported,
                std::string("the volume cannot be stored as NIfTI (") + error.what() + "): write .nrrd instead");
  }
}

void verify_written(const VolumeInfo& info, const std::string& partial_path, std::uint64_t content_bytes, bool packed) {
  try {
    Notices ignored;
    check_kept(info, read_nifti_info(partial_path, ignored));
    if (!packed) return;
    InputFile file(partial_path);
    if (gzip_trailer_length(file) != std::uint32_t(content_bytes))
      throw Error(ErrorCode::output,
                  "the trailer of the written file is not the one of its data: check the disk and run again");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::output || error.code() == ErrorCode::unsupported) throw;
    throw Error(ErrorCode::output, std::string("the written file cannot be read back (") + error.what() +
                                       "): check the disk and run again");
  }
}

struct Encoded {
  std::uint64_t content_bytes;
  double encode_ms;
};

Encoded write_content(AtomicFile& file, const std::vector<std::byte>& header, const Volume& volume, bool packed,
                      const WriteOptions& options) {
  const std::size_t bytes = volume.info().bytes();
  if (!packed) {
    file.write(header.data(), header.size());
    file.write(volume.data(), bytes);
    return {header.size() + bytes, 0.0};
  }
  const auto start = Clock::now();
  GzipWriter gzip(file, options.compression, options.threads);
  gzip.write(header.data(), header.size());
  gzip.write(volume.data(), bytes);
  gzip.finish();
  return {gzip.content_bytes(), ms_since(start) - gzip.write_ms()};
}

}  // namespace

bool is_nifti_name(const std::string& path) {
  const std::string name = lower_case(path);
  return has_extension(name, ".nii") || has_extension(name, ".hdr") || has_extension(name, ".img");
}

bool is_nifti_output_name(const std::string& path) { return has_extension(path, ".nii"); }

std::string nifti_partner(const std::string& path) {
  return has_extension(path, ".hdr") || has_extension(path, ".img") ? partner_of(path) : std::string();
}

namespace {

class OpenNifti final : public OpenVolume {
 public:
  explicit OpenNifti(Opened opened) : opened_(std::move(opened)) {}

  const VolumeInfo& info() const override { return opened_.image.info; }

  Volume read(const HostAllocator& allocate, Notices& notices, ReadTiming* timing) override {
    return with_path(opened_.data->path(), [&] {
      VolumeInfo info = opened_.image.info;
      Buffer buffer = allocate(info.bytes());
      const auto start = Clock::now();
      const double opening_ms = opened_.data->read_ms();
      opened_.data->expect_sequential_reads();
      opened_.data->skip_to(opened_.image.data_offset);
      VoxelReader reader(opened_, buffer.data());
      reader.read();
      note_tail(*opened_.data, opened_.image, notices);
      info.dtype = reader.dtype();
      if (reader.non_finite() > 0)
        notices.add("non_finite_voxels", std::to_string(reader.non_finite()) + " of " +
                                             std::to_string(info.value_count()) +
                                             " values are NaN or infinite: they are kept");
      if (timing) {
        timing->read_ms = opened_.data->read_ms();
        timing->decode_ms = ms_since(start) - (timing->read_ms - opening_ms);
      }
      return Volume(info, std::move(buffer));
    });
  }

 private:
  Opened opened_;
};

}  // namespace

std::unique_ptr<OpenVolume> open_nifti(const std::string& path, Notices& notices, NiftiAffine affine) {
  return with_path(path, [&] { return std::make_unique<OpenNifti>(open_files(path, notices, affine)); });
}

VolumeInfo read_nifti_info(const std::string& path, Notices& notices, NiftiAffine affine) {
  return open_nifti(path, notices, affine)->info();
}

Volume read_nifti(const std::string& path, const HostAllocator& allocate, Notices& notices, ReadTiming* timing,
                  NiftiAffine affine) {
  return with_path(path, [&] { return open_nifti(path, notices, affine)->read(allocate, notices, timing); });
}

void write_nifti(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing) {
  with_path(path, [&] {
    if (!volume.device().is_cpu()) throw Error(ErrorCode::internal, "a volume must be in host memory to be written");
    const auto start = Clock::now();
    if (!is_nifti_output_name(path))
      throw Error(ErrorCode::usage, "NIfTI is written as .nii or .nii.gz, not as '" + path + "'");
    const bool packed = has_gz_name(path);
    const std::vector<std::byte> header = header_for(volume.info());
    AtomicFile file(path, options.overwrite);
    const Encoded encoded = write_content(file, header, volume, packed, options);
    verify_written(volume.info(), file.partial_path(), encoded.content_bytes, packed);
    file.commit();
    if (timing) *timing = {encoded.encode_ms, ms_since(start) - encoded.encode_ms};
  });
}

NiftiFields read_nifti_fields(const std::string& path) {
  return with_path(path, [&] {
    Content content(has_extension(path, ".img") ? partner_of(path) : path);
    const NiftiHeader header = read_header(content);
    return NiftiFields{header, content.packed()};
  });
}

}  // namespace volpipe::io
