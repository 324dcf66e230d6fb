#include "io/module/itk_formats.h"

#include <itkMetaImageIO.h>
#include <itkNrrdImageIO.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include "io/atomic_file.h"
#include "io/companion_files.h"
#include "io/file_names.h"
#include "io/gzip_writer.h"
#include "io/module/nrrd_geometry.h"
#include "io/module/payload.h"
#include "io/module/png.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kLargestShear = 1e-5;  // what a reader of MetaImage takes for rounding

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool is_nrrd(const std::string& path) {
  const auto extension = volume_extension(path);
  return extension == ".nrrd" || extension == ".nhdr";
}

/// Calls `work`; what ITK throws becomes Error(input) with the path.
template <class Work>
decltype(auto) reading(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (Error& error) { throw std::move(error).with_path(path); } catch (const itk::ExceptionObject& error) {
    throw Error(ErrorCode::input, "the file cannot be read: " + itk_reason(error.GetDescription())).with_path(path);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no host memory for the volume").with_path(path);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::input, "the file cannot be read: " + std::string(error.what())).with_path(path);
  }
}

/// Stored value types: those of a volume, and 64-bit integers, which are narrowed.
struct StoredType {
  DataType type;
  bool is_64_bit = false;

  std::size_t bytes() const { return is_64_bit ? 8 : size_of(type); }
};

template <class T>
StoredType integer_type() {
  if constexpr (sizeof(T) == 8) return {std::is_signed_v<T> ? DataType::int32 : DataType::uint32, true};
  else return {std::is_signed_v<T> ? DataType::int32 : DataType::uint32, false};
}

StoredType stored_type(const itk::ImageIOBase& io) {
  using Component = itk::IOComponentEnum;
  switch (io.GetComponentType()) {
    case Component::UCHAR:
      return {DataType::uint8};
    case Component::CHAR:
      return {DataType::int8};
    case Component::USHORT:
      return {DataType::uint16};
    case Component::SHORT:
      return {DataType::int16};
    case Component::UINT:
      return {DataType::uint32};
    case Component::INT:
      return {DataType::int32};
    case Component::ULONG:
      return integer_type<unsigned long>();
    case Component::LONG:
      return integer_type<long>();
    case Component::ULONGLONG:
      return integer_type<unsigned long long>();
    case Component::LONGLONG:
      return integer_type<long long>();
    case Component::FLOAT:
      return {DataType::float32};
    case Component::DOUBLE:
      return {DataType::float64};
    default:
      throw Error(ErrorCode::unsupported, "values of type " +
                                              itk::ImageIOBase::GetComponentTypeAsString(io.GetComponentType()) +
                                              " are not supported: save it with integers or floats of at most 64 bits");
  }
}

/// How the components of a voxel lie in the file.
enum class Layout { planar, interleaved, unknown };

struct Header {
  VolumeInfo info;
  StoredType stored;
  Layout layout;
  Payload payload;
  itk::ImageIOBase::Pointer io;

  std::uint64_t stored_bytes() const { return std::uint64_t(info.value_count()) * stored.bytes(); }
};

/// Sets the layout and, for an axis of kind "list", that its components are frames.
void apply_nrrd_kinds(const HeaderFields& fields, std::int64_t components, Header& header) {
  const auto kinds = words_of(fields, "kinds");
  const auto sizes = words_of(fields, "sizes");
  header.layout = Layout::unknown;
  for (std::size_t axis = 0; axis < kinds.size() && axis < sizes.size(); ++axis) {
    if (is_domain_kind(kinds[axis])) continue;
    if (kinds[axis] == "list") header.info.component_axis = ComponentAxis::frames;
    if (sizes[axis] != std::to_string(components)) continue;
    if (axis == 0) header.layout = Layout::interleaved;
    else if (axis + 1 == sizes.size()) header.layout = Layout::planar;
  }
}

void note_missing_geometry(const HeaderFields& fields, bool nrrd, Notices& notices) {
  const auto has = [&](const char* key) { return fields.contains(key); };
  if (nrrd ? !has("space directions") && !has("spacings") : !has("ElementSpacing") && !has("ElementSize"))
    notices.add("no_spacing", "the header gives no voxel spacing: 1 mm was taken");
  if (nrrd ? !has("space directions") : !has("TransformMatrix") && !has("Orientation") && !has("Rotation"))
    notices.add("no_direction",
                "the header gives no axis directions: the axes were taken to run to the left, posterior and superior");
  else if (nrrd && !has("space"))
    notices.add("no_space", "the header does not name its space: its axes were taken to be left, posterior, superior");
}

/// What ITK says of the first three dimensions, LPS.
Affine lps_map(const itk::ImageIOBase& io) {
  const unsigned spatial = std::min(io.GetNumberOfDimensions(), 3u);
  Affine map;
  for (unsigned axis = 0; axis < spatial; ++axis) {
    const std::vector<double> direction = io.GetDirection(axis);
    for (unsigned world = 0; world < 3; ++world)
      map.linear[int(world)][axis] =
          world < std::min<std::size_t>(spatial, direction.size()) ? direction[world] * io.GetSpacing(axis) : 0.0;
    map.offset[axis] = io.GetOrigin(axis);
  }
  return map;
}

/// LPS in `unit` mm to RAS mm.
Affine ras_map(Affine map, double unit) {
  for (int world = 0; world < 3; ++world) {
    const double factor = world < 2 ? -unit : unit;
    for (int axis = 0; axis < 3; ++axis) map.linear[world][axis] = factor * map.linear[world][axis] + 0.0;
    map.offset[world] = factor * map.offset[world] + 0.0;
  }
  return map;
}

/// MetaIO knows the units and leaves the numbers as they are.
double meta_unit(const HeaderFields& fields, Notices& notices) {
  const auto field = fields.find("DistanceUnits");
  if (field == fields.end() || field->second.empty() || field->second == "?") return 1;
  if (const auto unit = millimetres_of(field->second)) return *unit;
  notices.add("unknown_unit",
              "the header field 'DistanceUnits' is '" + field->second + "', no known unit of length: mm are assumed");
  return 1;
}

/// The first three dimensions; missing ones are one voxel of 1 mm.
Geometry geometry_of(const itk::ImageIOBase& io, const HeaderFields& fields, bool nrrd, Notices& notices) {
  const unsigned dimensions = io.GetNumberOfDimensions();
  Index3 size{1, 1, 1};
  for (unsigned axis = 0; axis < std::min(dimensions, 3u); ++axis) size[axis] = std::int64_t(io.GetDimensions(axis));
  Affine map =
      nrrd ? nrrd_affine(fields, dimensions, lps_map(io), notices) : ras_map(lps_map(io), meta_unit(fields, notices));
  if (dimensions == 2) {
    notices.add("two_dimensional", "the image has two dimensions: it was taken as one slice of 1 mm");
    const Vec3 normal = cross(map.linear.column(0), map.linear.column(1));
    for (int world = 0; world < 3; ++world) map.linear[world][2] = normal[world] / norm(normal);
  }
  try {
    return Geometry(size, map);
  } catch (const Error& error) {
    throw Error(ErrorCode::input, std::string("the header fields ") +
                                      (nrrd ? "'space directions', 'spacings' and 'space origin'"
                                            : "'TransformMatrix', 'ElementSpacing' and 'Offset'") +
                                      " place no voxels in space (" + error.what() + "): repair the header");
  }
}

/// Refuses sizes whose product no file can hold, before anything multiplies them.
void check_sizes(const itk::ImageIOBase& io) {
  double values = io.GetNumberOfComponents();
  for (unsigned axis = 0; axis < io.GetNumberOfDimensions(); ++axis) values *= double(io.GetDimensions(axis));
  if (!(values >= 1 && values < 1e15))
    throw Error(ErrorCode::input, "the header announces an impossible size: the file is damaged");
}

void note_surplus(std::uint64_t bytes, Notices& notices) {
  if (bytes > 0) notices.add("trailing_bytes", std::to_string(bytes) + " bytes follow the data and are not read");
}

Header read_header(const std::string& path, Notices& notices) {
  const bool nrrd = is_nrrd(path);
  const TextHeader text = nrrd ? read_nrrd_header(path) : read_meta_header(path);
  Header header;
  if (nrrd) header.io = itk::NrrdImageIO::New();
  else header.io = itk::MetaImageIO::New();
  header.io->SetFileName(path);
  header.io->ReadImageInformation();

  const itk::ImageIOBase& io = *header.io;
  const unsigned dimensions = io.GetNumberOfDimensions();
  const auto components = std::int64_t(io.GetNumberOfComponents());
  const auto frames = dimensions == 4 ? std::int64_t(io.GetDimensions(3)) : 1;
  if (dimensions < 2 || dimensions > 4)
    throw Error(ErrorCode::unsupported,
                "the image has " + std::to_string(dimensions) + " dimensions: 2, 3 or 4 are supported");
  check_sizes(io);
  if (frames > 1 && components > 1)
    throw Error(ErrorCode::unsupported,
                "the image has both a fourth dimension and several components a voxel: split it first");
  if (io.GetPixelType() == itk::IOPixelEnum::COMPLEX)
    throw Error(ErrorCode::unsupported, "complex values are not supported: save their magnitude or their parts");

  header.payload = text.payload;
  header.stored = stored_type(io);
  header.layout = frames > 1 || components == 1 ? Layout::planar : Layout::interleaved;
  header.info.dtype = header.stored.type;
  header.info.geometry = geometry_of(io, text.fields, nrrd, notices);
  header.info.components = frames * components;
  if (components > 1) header.info.component_axis = ComponentAxis::channels;
  if (frames > 1) {
    header.info.component_axis = ComponentAxis::frames;
    header.info.frame_spacing = io.GetSpacing(3);
  }
  if (nrrd && components > 1) apply_nrrd_kinds(text.fields, components, header);
  note_missing_geometry(text.fields, nrrd, notices);
  if (header.stored.is_64_bit)
    notices.add("narrowed", "the 64-bit integers are read as " + std::string(to_string(header.info.dtype)));
  if (dimensions == 4 && frames == 1)
    notices.add("single_frame", "the fourth dimension has one frame: the image was taken as three-dimensional");
  note_surplus(check_payload(header.payload, header.stored_bytes()), notices);
  return header;
}

std::vector<std::uint8_t> read_with_itk(const Header& header) {
  std::vector<std::uint8_t> values(header.stored_bytes());
  itk::ImageIORegion region(header.io->GetNumberOfDimensions());
  for (unsigned axis = 0; axis < header.io->GetNumberOfDimensions(); ++axis)
    region.SetSize(axis, header.io->GetDimensions(axis));
  header.io->SetIORegion(region);
  header.io->Read(values.data());
  return values;
}

/// Copies values of `Stored` into planar values of `Out`; throws where a 64-bit integer does not fit.
template <class Stored, class Out>
void unpack(const Stored* in, bool interleaved, const VolumeInfo& info, Out* out) {
  const std::int64_t voxels = info.geometry.voxel_count(), components = info.components;
  for (std::int64_t c = 0; c < components; ++c)
    for (std::int64_t i = 0; i < voxels; ++i) {
      const Stored value = interleaved ? in[i * components + c] : in[c * voxels + i];
      if constexpr (sizeof(Stored) > sizeof(Out))
        if (value < Stored(std::numeric_limits<Out>::lowest()) || value > Stored(std::numeric_limits<Out>::max()))
          throw Error(ErrorCode::unsupported,
                      "the 64-bit value " + std::to_string(value) + " does not fit " +
                          std::string(to_string(info.dtype)) +
                          ": volpipe works with integers of at most 32 bits, rescale or relabel the file");
      out[c * voxels + i] = Out(value);
    }
}

void unpack_values(const std::uint8_t* in, bool interleaved, const Header& header, Volume& volume) {
  if (header.stored.is_64_bit && header.info.dtype == DataType::int32)
    return unpack(reinterpret_cast<const std::int64_t*>(in), interleaved, header.info, volume.data_as<std::int32_t>());
  if (header.stored.is_64_bit)
    return unpack(reinterpret_cast<const std::uint64_t*>(in), interleaved, header.info,
                  volume.data_as<std::uint32_t>());
  visit(header.info.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    unpack(reinterpret_cast<const T*>(in), interleaved, header.info, volume.data_as<T>());
  });
}

void note_non_finite(const Volume& volume, Notices& notices) {
  std::int64_t found = 0;
  visit(volume.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>)
      for (std::int64_t i = 0; i < volume.info().value_count(); ++i) found += !std::isfinite(volume.data_as<T>()[i]);
  });
  if (found > 0)
    notices.add("non_finite_voxels", std::to_string(found) + " of " + std::to_string(volume.info().value_count()) +
                                         " values are NaN or infinite: they are kept");
}

}  // namespace

namespace {

class OpenItk final : public OpenVolume {
 public:
  OpenItk(const std::string& path, Notices& notices) : path_(path), header_(read_header(path, notices)) {
    opening_ms_ = milliseconds_since(start_);
  }

  const VolumeInfo& info() const override { return header_.info; }

  Volume read(const HostAllocator& allocate, Notices& notices, ReadTiming* timing) override {
    return reading(path_, [&] {
      const auto start = Clock::now();
      Volume volume(header_.info, allocate(header_.info.bytes()));
      const bool by_itk = header_.layout == Layout::unknown || header_.payload.encoding == Payload::Encoding::other;
      if (!by_itk && header_.layout == Layout::planar && !header_.stored.is_64_bit) {
        note_surplus(read_payload(header_.payload, volume.data(), header_.stored_bytes(), header_.stored.bytes()),
                     notices);
        note_non_finite(volume, notices);
        if (timing) *timing = {opening_ms_ + milliseconds_since(start), 0};
        return volume;
      }
      std::vector<std::uint8_t> values;
      if (by_itk) {
        values = read_with_itk(header_);
      } else {
        values.resize(header_.stored_bytes());
        note_surplus(read_payload(header_.payload, values.data(), values.size(), header_.stored.bytes()), notices);
      }
      const double read_ms = opening_ms_ + milliseconds_since(start);
      const auto decoding = Clock::now();
      unpack_values(values.data(), by_itk || header_.layout == Layout::interleaved, header_, volume);
      note_non_finite(volume, notices);
      if (timing) *timing = {read_ms, milliseconds_since(decoding)};
      return volume;
    });
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::string path_;
  Header header_;
  double opening_ms_ = 0;
};

}  // namespace

std::vector<HeaderField> describe_itk(const std::string& path) {
  return reading(path, [&] {
    const TextHeader text = is_nrrd(path) ? read_nrrd_header(path) : read_meta_header(path);
    std::vector<HeaderField> fields = {text_field("format", is_nrrd(path) ? "NRRD" : "MetaImage")};
    for (const auto& [name, value] : text.fields) fields.push_back(parsed_field(name, value));
    return fields;
  });
}

std::unique_ptr<OpenVolume> open_itk(const std::string& path, Notices& notices) {
  return reading(path, [&] { return std::make_unique<OpenItk>(path, notices); });
}

namespace {

/// Shortest text that reads back as the same double.
std::string exact(double value) {
  char buffer[32];
  for (int precision = 15; precision <= 17; ++precision) {
    std::snprintf(buffer, sizeof buffer, "%.*g", precision, value + 0.0);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  return buffer;
}

/// Columns along the voxel axes and the origin, in LPS.
struct LpsAxes {
  std::array<Vec3, 3> step;
  Vec3 origin;

  explicit LpsAxes(const Geometry& geometry) {
    const Affine& map = geometry.index_to_world();
    const auto lps = [](const Vec3& ras) { return Vec3{-ras[0], -ras[1], ras[2]}; };
    for (int axis = 0; axis < 3; ++axis) step[axis] = lps(map.linear.column(axis));
    origin = lps(map.offset);
  }
};

std::string nrrd_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return "float";
    case DataType::float64:
      return "double";
    default:
      return std::string(to_string(type));
  }
}

std::string nrrd_header(const VolumeInfo& info) {
  const LpsAxes axes(info.geometry);
  const bool frames = info.component_axis == ComponentAxis::frames && info.components > 1;
  const bool channels = !frames && info.components > 1;
  const auto vector = [&](const Vec3& v) {
    return "(" + exact(v[0]) + "," + exact(v[1]) + "," + exact(v[2]) + (frames ? ",0)" : ")");
  };
  const std::string components = std::to_string(info.components);
  std::ostringstream text;
  text << "NRRD0004\n# written by volpipe\ntype: " << nrrd_type(info.dtype)
       << "\ndimension: " << 3 + (frames || channels) << "\nspace: left-posterior-superior" << (frames ? "-time" : "")
       << "\nsizes:" << (channels ? " " + components : "");
  for (const auto n : info.geometry.size()) text << ' ' << n;
  text << (frames ? " " + components : "") << "\nspace directions:" << (channels ? " none" : "");
  for (const Vec3& step : axes.step) text << ' ' << vector(step);
  if (frames) text << " (0,0,0," << exact(info.frame_spacing) << ")";
  text << "\nkinds:" << (channels ? " vector" : "") << " domain domain domain" << (frames ? " domain" : "");
  if (size_of(info.dtype) > 1) text << "\nendian: little";
  text << "\nencoding: gzip\nspace origin: " << vector(axes.origin) << "\n\n";
  return text.str();
}

const char* meta_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return "MET_UCHAR";
    case DataType::int8:
      return "MET_CHAR";
    case DataType::uint16:
      return "MET_USHORT";
    case DataType::int16:
      return "MET_SHORT";
    case DataType::uint32:
      return "MET_UINT";
    case DataType::int32:
      return "MET_INT";
    case DataType::float32:
      return "MET_FLOAT";
    case DataType::float64:
      break;
  }
  return "MET_DOUBLE";
}

std::string meta_header(const VolumeInfo& info, const std::string& data_file) {
  const Vec3 spacing = info.geometry.spacing();
  const LpsAxes axes(info.geometry);
  const bool frames = info.component_axis == ComponentAxis::frames && info.components > 1;
  std::ostringstream matrix;
  for (int axis = 0; axis < 3; ++axis) {
    for (int world = 0; world < 3; ++world) matrix << ' ' << exact(axes.step[axis][world] / spacing[axis]);
    if (frames) matrix << " 0";
  }
  if (frames) matrix << " 0 0 0 1";
  std::ostringstream text;
  text << "ObjectType = Image\nNDims = " << (frames ? 4 : 3)
       << "\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False"
       << "\nTransformMatrix =" << matrix.str() << "\nOffset =";
  for (const double value : axes.origin) text << ' ' << exact(value);
  text << (frames ? " 0" : "") << "\nCenterOfRotation = 0 0 0" << (frames ? " 0" : "") << "\nElementSpacing =";
  for (const double value : spacing) text << ' ' << exact(value);
  if (frames) text << ' ' << exact(info.frame_spacing);
  text << "\nDimSize =";
  for (const auto n : info.geometry.size()) text << ' ' << n;
  if (frames) text << ' ' << info.components;
  if (!frames && info.components > 1) text << "\nElementNumberOfChannels = " << info.components;
  text << "\nElementType = " << meta_type(info.dtype) << "\nElementDataFile = " << data_file << '\n';
  return text.str();
}

/// Hands the values to `sink` in file order, planar for frames, interleaved for channels, in pieces that grow with the
/// number of threads.
template <class Sink>
void send_values(const Volume& volume, const HostThreads* threads, Sink&& sink) {
  const VolumeInfo& info = volume.info();
  if (info.components == 1 || info.component_axis == ComponentAxis::frames) return sink(volume.data(), info.bytes());
  constexpr std::int64_t kVoxelsAtOnce = 1 << 16;
  const std::size_t value = size_of(info.dtype), voxel = std::size_t(info.components) * value;
  const std::int64_t voxels = info.geometry.voxel_count();
  const std::int64_t piece = std::min(voxels, kVoxelsAtOnce * (threads ? threads->count() : 1));
  std::vector<std::byte> block(std::size_t(piece) * voxel);
  for (std::int64_t first = 0; first < voxels; first += piece) {
    const std::int64_t count = std::min(piece, voxels - first);
    const auto interleave = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = 0; c < info.components; ++c) {
        const auto* in = static_cast<const std::byte*>(volume.component(c)) + std::size_t(first) * value;
        for (std::int64_t i = begin; i < end; ++i)
          std::memcpy(block.data() + std::size_t(i) * voxel + std::size_t(c) * value, in + std::size_t(i) * value,
                      value);
      }
    };
    if (threads) threads->parallel(count, kVoxelsAtOnce, interleave);
    else interleave(0, count);
    sink(block.data(), std::size_t(count) * voxel);
  }
}

/// Reads the header of a finished file back and compares it with what was to be written.
void verify(const std::string& partial, const std::string& path, const VolumeInfo& wanted) {
  Notices ignored;
  const VolumeInfo found = open_itk(partial, ignored)->info();
  const bool frames_agree = wanted.components == 1 || found.component_axis == wanted.component_axis;
  if (found.dtype != wanted.dtype || found.components != wanted.components || !frames_agree ||
      !same_grid(found.geometry, wanted.geometry, 1e-6))
    throw Error(ErrorCode::unsupported,
                "the file just written does not read back as the same volume: write .nii.gz instead")
        .with_path(path);
}

void write_nrrd(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing) {
  const auto start = Clock::now();
  AtomicFile file(path, options.overwrite);
  const std::string header = nrrd_header(volume.info());
  file.write(header.data(), header.size());
  GzipWriter packer(file, options.compression, options.threads);
  send_values(volume, options.threads, [&](const void* data, std::size_t bytes) { packer.write(data, bytes); });
  packer.finish();
  const double packed_ms = milliseconds_since(start) - packer.write_ms();
  verify(file.partial_path(), path, volume.info());
  file.commit();
  if (timing) *timing = {packed_ms, milliseconds_since(start) - packed_ms};
}

/// Refuses a data file that is there and that an earlier run did not write for the same header. Without a header it may
/// be replaced like any output: it is what a run leaves that ends between the two.
void check_companion(const std::string& path, const std::string& data_path, bool overwrite) {
  std::error_code failure;
  if (!fs::exists(data_path, failure) || (overwrite && !fs::exists(path, failure))) return;
  const auto named = detached_data_files(path);
  if (named.size() == 1 && fs::path(named[0]).lexically_normal() == fs::path(data_path).lexically_normal()) return;
  throw Error(ErrorCode::exists, "'" + data_path + "' is there and does not belong to an earlier '" + path +
                                     "': choose another name, or write .mha, which is one file")
      .with_path(path);
}

void write_meta(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing) {
  if (volume.geometry().shear() > kLargestShear)
    throw Error(ErrorCode::unsupported,
                "MetaImage cannot hold a sheared grid: write .nii.gz or .nrrd, or straighten the volume with the stage "
                "'untilt'")
        .with_path(path);
  const auto start = Clock::now();
  const bool two_files = volume_extension(path) == ".mhd";
  const fs::path data_path = meta_data_file(path);
  if (two_files) check_companion(path, data_path.string(), options.overwrite);
  AtomicFile header_file(path, options.overwrite);
  std::optional<AtomicFile> data_file;
  if (two_files) data_file.emplace(data_path.string(), options.overwrite);
  AtomicFile& values = two_files ? *data_file : header_file;
  const std::string header = meta_header(volume.info(), two_files ? data_path.filename().string() : "LOCAL");
  header_file.write(header.data(), header.size());
  send_values(volume, options.threads, [&](const void* data, std::size_t bytes) { values.write(data, bytes); });
  std::error_code ignored;
  if (two_files) fs::remove(path, ignored);  // an old header never stands beside new voxels
  try {
    if (data_file) data_file->commit();
    verify(header_file.partial_path(), path, volume.info());
    header_file.commit();
  } catch (...) {
    if (data_file) fs::remove(data_path, ignored);
    if (data_file) fs::remove(path, ignored);
    throw;
  }
  if (timing) *timing = {0, milliseconds_since(start)};
}

}  // namespace

void write_itk(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing) {
  if (is_nrrd(path)) write_nrrd(volume, path, options, timing);
  else write_meta(volume, path, options, timing);
}

void write_png_file(const std::string& path, const std::vector<std::uint8_t>& pixels, int width, int height,
                    int channels) {
  if (width < 1 || height < 1 || (channels != 1 && channels != 3) ||
      pixels.size() != std::size_t(width) * height * channels)
    throw Error(ErrorCode::internal, "a picture needs width * height pixels of 1 or 3 channels").with_path(path);
  const std::vector<std::uint8_t> bytes = encode_png(pixels, width, height, channels);
  AtomicFile file(path, true);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace volpipe::io
