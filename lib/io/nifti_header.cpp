#include "io/nifti_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr std::size_t kHeaderBytes[] = {0, 348, 540};
constexpr std::size_t kExtensionMark = 4;
constexpr std::string_view kMagicTail2 = "\r\n\032\n";
constexpr int kIntentVector = 1007;
constexpr int kMillimetresAndSeconds = 2 | 8;

constexpr double kRoundingSkew = 1e-6;   // what float32 leaves
constexpr double kSmallestShear = 1e-3;  // below it, skew is an accident of rounding
constexpr double kAgreement = 1e-3;      // voxels between two affines that say the same, and relative for pixdim

struct Datatype {
  int code;
  std::string_view name;
  int bits;
  std::optional<DataType> native;  // none: not read
};

constexpr Datatype kDatatypes[] = {
    {1, "binary", 1, {}},
    {2, "uint8", 8, DataType::uint8},
    {4, "int16", 16, DataType::int16},
    {8, "int32", 32, DataType::int32},
    {16, "float32", 32, DataType::float32},
    {32, "complex64", 64, {}},
    {64, "float64", 64, DataType::float64},
    {128, "RGB24", 24, DataType::uint8},
    {256, "int8", 8, DataType::int8},
    {512, "uint16", 16, DataType::uint16},
    {768, "uint32", 32, DataType::uint32},
    {1024, "int64", 64, DataType::int32},
    {1280, "uint64", 64, DataType::uint32},
    {1536, "float128", 128, {}},
    {1792, "complex128", 128, {}},
    {2048, "complex256", 256, {}},
    {2304, "RGBA32", 32, DataType::uint8},
};
constexpr int kRgb = 128, kRgba = 2304, kInt64 = 1024, kUint64 = 1280;

const Datatype* find_datatype(int code) {
  const auto* found =
      std::find_if(std::begin(kDatatypes), std::end(kDatatypes), [&](const auto& d) { return d.code == code; });
  return found == std::end(kDatatypes) ? nullptr : found;
}

Error input_error(const std::string& message) { return Error(ErrorCode::input, message); }

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

std::string element(const char* field, int index) { return std::string(field) + "[" + std::to_string(index) + "]"; }

template <class T>
T swapped(T value) {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

// One table of fields serves both directions: a Loader fills the header from bytes, a Storer the bytes from the header.
class Loader {
 public:
  Loader(std::span<const std::byte> bytes, bool swap) : bytes_(bytes), swap_(swap) {}

  template <class Stored, class Field>
  void number(std::size_t offset, Field& field) const {
    Stored value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    field = Field(swap_ ? swapped(value) : value);
  }
  void letters(std::size_t offset, std::size_t size, std::string& field) const {
    const char* start = reinterpret_cast<const char*>(bytes_.data() + offset);
    field.assign(start, ::strnlen(start, size));
  }

 private:
  std::span<const std::byte> bytes_;
  bool swap_;
};

class Storer {
 public:
  Storer(std::span<std::byte> bytes, bool swap) : bytes_(bytes), swap_(swap) {}

  template <class Stored, class Field>
  void number(std::size_t offset, const Field& field) const {
    const Stored value = swap_ ? swapped(Stored(field)) : Stored(field);
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  void letters(std::size_t offset, std::size_t size, const std::string& field) const {
    std::memcpy(bytes_.data() + offset, field.data(), std::min(size, field.size()));
  }

 private:
  std::span<std::byte> bytes_;
  bool swap_;
};

template <class Stored, class Codec, class Array>
void numbers(const Codec& codec, std::size_t offset, Array& array) {
  for (std::size_t i = 0; i < array.size(); ++i) codec.template number<Stored>(offset + i * sizeof(Stored), array[i]);
}

template <class Codec, class Header>
void fields_of_nifti1(const Codec& codec, Header& header) {
  numbers<std::int16_t>(codec, 40, header.dim);
  codec.template number<std::int16_t>(68, header.intent_code);
  codec.template number<std::int16_t>(70, header.datatype);
  codec.template number<std::int16_t>(72, header.bitpix);
  numbers<float>(codec, 76, header.pixdim);
  codec.template number<float>(108, header.vox_offset);
  codec.template number<float>(112, header.scl_slope);
  codec.template number<float>(116, header.scl_inter);
  codec.template number<std::uint8_t>(123, header.xyzt_units);
  codec.template number<float>(124, header.cal_max);
  codec.template number<float>(128, header.cal_min);
  codec.letters(148, 80, header.description);
  codec.template number<std::int16_t>(252, header.qform_code);
  codec.template number<std::int16_t>(254, header.sform_code);
  numbers<float>(codec, 256, header.quaternion);
  numbers<float>(codec, 268, header.qoffset);
  for (int row = 0; row < 3; ++row) numbers<float>(codec, 280 + 16 * row, header.srow[row]);
  codec.letters(328, 16, header.intent_name);
}

template <class Codec, class Header>
void fields_of_nifti2(const Codec& codec, Header& header) {
  codec.template number<std::int16_t>(12, header.datatype);
  codec.template number<std::int16_t>(14, header.bitpix);
  numbers<std::int64_t>(codec, 16, header.dim);
  numbers<double>(codec, 104, header.pixdim);
  codec.template number<std::int64_t>(168, header.vox_offset);
  codec.template number<double>(176, header.scl_slope);
  codec.template number<double>(184, header.scl_inter);
  codec.template number<double>(192, header.cal_max);
  codec.template number<double>(200, header.cal_min);
  codec.letters(240, 80, header.description);
  codec.template number<std::int32_t>(344, header.qform_code);
  codec.template number<std::int32_t>(348, header.sform_code);
  numbers<double>(codec, 352, header.quaternion);
  numbers<double>(codec, 376, header.qoffset);
  for (int row = 0; row < 3; ++row) numbers<double>(codec, 400 + 32 * row, header.srow[row]);
  codec.template number<std::int32_t>(500, header.xyzt_units);
  codec.template number<std::int32_t>(504, header.intent_code);
  codec.letters(508, 16, header.intent_name);
}

bool read_magic(std::span<const std::byte> bytes, int version) {
  const char* magic = reinterpret_cast<const char*>(bytes.data()) + (version == 1 ? 344 : 4);
  const char digit = char('0' + version);
  const bool single = magic[0] == 'n' && magic[1] == '+', pair = magic[0] == 'n' && magic[1] == 'i';
  if (!(single || pair) || magic[2] != digit || magic[3] != 0)
    throw input_error(std::string("the magic bytes are not those of NIfTI-") + digit + " ('n+" + digit + "' or 'ni" +
                      digit + "'): an ANALYZE file does not say which side is left, so convert it to NIfTI first");
  if (version == 2 && std::string_view(magic + 4, 4) != kMagicTail2)
    throw input_error("the magic bytes were altered by a text-mode transfer: copy the file again in binary mode");
  return pair;
}

void check_dim(const NiftiHeader& header) {
  if (header.dim[0] < 1 || header.dim[0] > 7)
    throw input_error("dim[0] is " + std::to_string(header.dim[0]) +
                      ", expected 1 to 7 dimensions: the header is damaged");
  for (int i = 1; i <= header.dim[0]; ++i)
    if (header.dim[i] < 1)
      throw input_error(element("dim", i) + " is " + std::to_string(header.dim[i]) +
                        ", expected at least 1: the header is damaged");
}

void check_datatype(const NiftiHeader& header) {
  const Datatype* type = find_datatype(header.datatype);
  if (!type)
    throw input_error("datatype " + std::to_string(header.datatype) +
                      " is not a NIfTI data type: the header is damaged");
  if (!type->native)
    throw Error(ErrorCode::unsupported, "the data type " + std::string(type->name) +
                                            " is not read: convert the file to a real type such as float64 first");
  if (header.bitpix != type->bits)
    throw input_error("bitpix is " + std::to_string(header.bitpix) + " where " + std::string(type->name) + " has " +
                      std::to_string(type->bits) + " bits: the header is damaged");
}

void check_vox_offset(const NiftiHeader& header) {
  const double least = header.pair ? 0.0 : double(kHeaderBytes[header.version] + kExtensionMark);
  const double most = 0x1p53;
  if (!(header.vox_offset >= least && header.vox_offset <= most) || header.vox_offset != std::floor(header.vox_offset))
    throw input_error("vox_offset is " + text(header.vox_offset) + ", expected a whole number of at least " +
                      text(least) + ": the header is damaged");
}

Matrix3 rotation_of(const Vec3& quaternion) {
  auto [b, c, d] = quaternion;
  const double rest = 1.0 - (b * b + c * c + d * d);
  double a = 0;
  if (rest < 1e-7) {
    const double length = norm(quaternion);
    b /= length, c /= length, d /= length;
  } else {
    a = std::sqrt(rest);
  }
  return {{{{a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
            {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
            {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b}}}};
}

// Shepperd's method: the largest of the four is divided by, so nothing cancels.
Vec3 quaternion_of(const Matrix3& r) {
  const std::array<double, 4> squares = {1 + r[0][0] + r[1][1] + r[2][2], 1 + r[0][0] - r[1][1] - r[2][2],
                                         1 - r[0][0] + r[1][1] - r[2][2], 1 - r[0][0] - r[1][1] + r[2][2]};
  const int largest = int(std::max_element(squares.begin(), squares.end()) - squares.begin());
  const double half = 0.5 * std::sqrt(squares[largest]), quarter = 0.25 / half;
  std::array<double, 4> q;
  switch (largest) {
    case 0:
      q = {half, (r[2][1] - r[1][2]) * quarter, (r[0][2] - r[2][0]) * quarter, (r[1][0] - r[0][1]) * quarter};
      break;
    case 1:
      q = {(r[2][1] - r[1][2]) * quarter, half, (r[0][1] + r[1][0]) * quarter, (r[0][2] + r[2][0]) * quarter};
      break;
    case 2:
      q = {(r[0][2] - r[2][0]) * quarter, (r[0][1] + r[1][0]) * quarter, half, (r[1][2] + r[2][1]) * quarter};
      break;
    default:
      q = {(r[1][0] - r[0][1]) * quarter, (r[0][2] + r[2][0]) * quarter, (r[1][2] + r[2][1]) * quarter, half};
  }
  const double sign = q[0] < 0 ? -1 : 1;
  return {sign * q[1], sign * q[2], sign * q[3]};
}

// Newton's iteration for the orthogonal factor of the polar decomposition (Higham 1986): the nearest orthogonal matrix.
Matrix3 nearest_orthogonal(Matrix3 m) {
  for (int step = 0; step < 20; ++step) {
    const Matrix3 inverse = m.inverse();
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) m[i][j] = 0.5 * (m[i][j] + inverse[j][i]);
  }
  return m;
}

Affine scaled_by(Affine map, double factor) {
  for (auto& row : map.linear.m)
    for (double& value : row) value *= factor;
  for (double& value : map.offset) value *= factor;
  return map;
}

bool has_axis(const NiftiHeader& header, int axis) { return axis < header.dim[0]; }

void check_pixdim(const NiftiHeader& header, int axis, const char* use) {
  const double value = header.pixdim[axis + 1];
  if (!(value > 0) || !std::isfinite(value))
    throw input_error(element("pixdim", axis + 1) + " is " + text(value) + ", expected a positive length because " +
                      use + ": correct the header");
}

// An axis that a 1-D or 2-D file does not have needs no length of its own.
Vec3 voxel_lengths(const NiftiHeader& header, const char* use) {
  Vec3 lengths;
  for (int axis = 0; axis < 3; ++axis) {
    const bool absent = !has_axis(header, axis) && header.pixdim[axis + 1] == 0;
    if (!absent) check_pixdim(header, axis, use);
    lengths[axis] = absent ? 1.0 : header.pixdim[axis + 1];
  }
  return lengths;
}

Affine pixdim_affine(const NiftiHeader& header) {
  const Vec3 lengths = voxel_lengths(header, "there is neither an sform nor a qform");
  Affine map;
  for (int axis = 0; axis < 3; ++axis) map.linear[axis][axis] = lengths[axis];
  return map;
}

Affine raw_sform(const NiftiHeader& header) {
  Affine map;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) map.linear[row][column] = header.srow[row][column];
    map.offset[row] = header.srow[row][3];
  }
  return map;
}

void check_sform(const Affine& map) {
  static constexpr const char* kRows[] = {"srow_x", "srow_y", "srow_z"};
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 4; ++column) {
      const double value = column < 3 ? map.linear[row][column] : map.offset[row];
      if (!std::isfinite(value))
        throw input_error("the sform cannot be used, " + element(kRows[row], column) + " is " + text(value) +
                          ": correct the header, or use the qform if that is sound");
    }
  const double volume = std::abs(map.linear.determinant());
  const double box = norm(map.linear.column(0)) * norm(map.linear.column(1)) * norm(map.linear.column(2));
  if (!(volume > 1e-6 * box))
    throw input_error(
        "the sform cannot be used, its matrix is singular: correct the header, or use the qform if that is sound");
}

NiftiAffine choose_affine(const NiftiHeader& header, NiftiAffine wanted) {
  if (wanted == NiftiAffine::sform && header.sform_code <= 0)
    throw input_error("the sform was asked for, but sform_code is 0");
  if (wanted == NiftiAffine::qform && header.qform_code <= 0)
    throw input_error("the qform was asked for, but qform_code is 0");
  if (wanted != NiftiAffine::automatic) return wanted;
  if (header.sform_code > 0) return NiftiAffine::sform;
  return header.qform_code > 0 ? NiftiAffine::qform : NiftiAffine::pixdim;
}

Affine affine_of(const NiftiHeader& header, NiftiAffine which) {
  switch (which) {
    case NiftiAffine::sform:
      return nifti_sform(header);
    case NiftiAffine::qform:
      return nifti_qform(header);
    default:
      return pixdim_affine(header);
  }
}

void note_missing_axes(const NiftiHeader& header, NiftiAffine chosen, Notices& notices) {
  for (int axis = int(std::min<std::int64_t>(header.dim[0], 3)); axis < 3; ++axis) {
    const bool by_sform = chosen == NiftiAffine::sform;
    if ((by_sform ? norm(raw_sform(header).linear.column(axis)) : header.pixdim[axis + 1]) == 0)
      notices.add("missing_axis", "the file has " + std::to_string(header.dim[0]) +
                                      " dimensions and no voxel length along axis " + std::to_string(axis + 1) +
                                      ": 1 unit is used");
  }
}

void note_disagreement(const NiftiHeader& header, const Index3& size, const Geometry& used, NiftiAffine chosen,
                       double unit, Notices& notices) {
  const NiftiAffine other = chosen == NiftiAffine::sform ? NiftiAffine::qform : NiftiAffine::sform;
  if (header.sform_code <= 0 || header.qform_code <= 0) return;
  const std::string other_name(to_string(other)), name(to_string(chosen));
  try {
    const Geometry second(size, scaled_by(affine_of(header, other), unit));
    if (!same_grid(used, second, kAgreement))
      notices.add("affine_disagreement", "sform and qform disagree by up to " +
                                             text(max_corner_distance_mm(used, second)) + " mm: the " + name +
                                             " is used");
  } catch (const Error& error) {
    notices.add(other_name + "_unusable",
                "the " + name + " is used; the " + other_name + " is present too and unusable (" + error.what() + ")");
  }
}

void note_pixdim(const NiftiHeader& header, const Geometry& used, double unit, Notices& notices) {
  const Vec3 spacing = used.spacing();
  for (int axis = 0; axis < 3 && has_axis(header, axis); ++axis) {
    const double length = header.pixdim[axis + 1] * unit;
    if (std::abs(length - spacing[axis]) <= kAgreement * spacing[axis]) continue;
    notices.add("pixdim_mismatch", element("pixdim", axis + 1) + " says " + text(length) + " mm, the sform " +
                                       text(spacing[axis]) + " mm: the sform is used");
  }
}

Geometry without_skew(const Geometry& geometry, Notices& notices) {
  const double skew = geometry.shear();
  if (skew < kRoundingSkew || skew >= kSmallestShear) return geometry;
  const Geometry straight = Geometry::from_spacing(geometry.size(), geometry.spacing(), geometry.origin(),
                                                   nearest_orthogonal(geometry.direction()));
  notices.add("skew_removed", "the voxel axes are skewed by a rounding-size " + text(skew) +
                                  " (cosine): made orthogonal, which moves corners by up to " +
                                  text(max_corner_distance_mm(geometry, straight)) + " mm");
  return straight;
}

/// A geometry whose errors name what in the header gave them.
Geometry placed(const Index3& size, const Affine& map, NiftiAffine chosen) {
  try {
    return Geometry(size, map);
  } catch (const Error& error) {
    throw input_error("the " + std::string(to_string(chosen)) + " cannot be used (" + error.what() +
                      "): correct the header");
  }
}

/// `asked`: what the user said; what was asked for needs no notice.
Geometry geometry_of(const NiftiHeader& header, NiftiAffine asked, NiftiAffine chosen, Notices& notices) {
  Index3 size;
  for (int axis = 0; axis < 3; ++axis) size[axis] = has_axis(header, axis) ? header.dim[axis + 1] : 1;
  const double unit = nifti_length_unit_mm(header);
  const Geometry geometry = placed(size, scaled_by(affine_of(header, chosen), unit), chosen);
  note_missing_axes(header, chosen, notices);
  if (chosen == NiftiAffine::pixdim) {
    if (asked == NiftiAffine::pixdim) return geometry;
    notices.add(
        "no_affine",
        "the header has neither an sform nor a qform: the voxel axes are taken to run along R, A and S from "
        "a first voxel at the origin, with pixdim as spacing (some programs mirror x or centre the volume instead)");
    return geometry;
  }
  note_disagreement(header, size, geometry, chosen, unit, notices);
  if (chosen == NiftiAffine::sform) note_pixdim(header, geometry, unit, notices);
  return without_skew(geometry, notices);
}

double frame_spacing_of(const NiftiHeader& header, Notices& notices) {
  const int unit = header.xyzt_units & 0x38;
  const double factor = unit == 16 ? 1e-3 : unit == 24 ? 1e-6 : 1.0;
  const double value = header.pixdim[4];
  if (unit > 24)
    notices.add("unknown_unit", "the fourth axis is not in units of time (xyzt_units " +
                                    std::to_string(header.xyzt_units) + "): its step is kept as a number");
  if (value > 0 && std::isfinite(value)) return value * factor;
  notices.add("frame_spacing", "pixdim[4] is " + text(value) + ", not a time between frames: 1 s is used");
  return 1.0;
}

void set_components(const NiftiHeader& header, NiftiImage& image, Notices& notices) {
  const auto extent = [&](int axis) { return axis <= header.dim[0] ? header.dim[axis] : 1; };
  const std::int64_t frames = extent(4), channels = extent(5);
  const bool many = extent(6) > 1 || extent(7) > 1 || (frames > 1 && channels > 1);
  if (many || (image.interleaved > 1 && (frames > 1 || channels > 1)))
    throw Error(ErrorCode::unsupported,
                "the file holds a volume for each of several frames and channels (dim 4 to 7: " +
                    std::to_string(frames) + " x " + std::to_string(channels) + " x " + std::to_string(extent(6)) +
                    " x " + std::to_string(extent(7)) + "): split it into 4-D files first");
  auto& info = image.info;
  info.components = std::max({frames, channels, std::int64_t(image.interleaved)});
  if (frames > 1) {
    info.component_axis = ComponentAxis::frames;
    info.frame_spacing = frame_spacing_of(header, notices);
  } else if (info.components > 1) {
    info.component_axis = ComponentAxis::channels;
  }
}

void set_scaling(const NiftiHeader& header, NiftiImage& image, Notices& notices) {
  const double slope = header.scl_slope, intercept = header.scl_inter;
  if (image.interleaved > 1) return;
  if (!std::isfinite(slope)) {
    notices.add("scaling_ignored", "scl_slope is " + text(slope) + ": the stored values are used without scaling");
  } else if (slope == 0) {
    if (intercept != 0)
      notices.add("scaling_ignored",
                  "scl_slope is 0, which means no scaling: scl_inter (" + text(intercept) + ") is not added");
  } else if (!std::isfinite(intercept)) {
    throw input_error("scl_slope is " + text(slope) + " but scl_inter is " + text(intercept) + ": correct the header");
  } else if (slope != 1 || intercept != 0) {
    image.scaled = true;
    image.slope = slope;
    image.intercept = intercept;
  }
}

DataType scaled_type(const Datatype& stored, double slope, double intercept) {
  const bool exact = fits_float32(*stored.native);
  const bool ordinary = std::abs(slope) > 1e-30 && std::abs(slope) < 1e30 && std::abs(intercept) < 1e30;
  return exact && ordinary ? DataType::float32 : DataType::float64;
}

// Room for 8-byte values is checked whatever the type, so no later product can overflow.
std::uint64_t checked_value_count(const NiftiHeader& header, int interleaved) {
  std::int64_t count = interleaved, bytes = 0;
  bool overflow = false;
  for (int i = 1; i <= header.dim[0]; ++i) overflow |= __builtin_mul_overflow(count, header.dim[i], &count);
  if (overflow || __builtin_mul_overflow(count, std::int64_t(8), &bytes) || bytes > std::int64_t(1) << 60)
    throw input_error("the product of dim[1] to dim[" + std::to_string(header.dim[0]) +
                      "] is larger than any file: the header is damaged");
  return std::uint64_t(count);
}

// The qform as a reader of the file will see it, against the sform as a reader will see it.
bool qform_says_the_same(const NiftiHeader& header, const VolumeInfo& info) {
  if (info.geometry.shear() > 1e-5) return false;
  return same_grid(Geometry(info.geometry.size(), nifti_qform(header)), info.geometry, 0.5 * kAgreement);
}

template <class Array>
void round_to_float(Array& values) {
  for (auto& value : values) value = float(value);
}

void set_affines(NiftiHeader& header, const VolumeInfo& info) {
  const Affine& map = info.geometry.index_to_world();
  Matrix3 rotation = nearest_orthogonal(info.geometry.direction());
  header.pixdim[0] = rotation.determinant() < 0 ? -1 : 1;
  for (int row = 0; row < 3; ++row) {
    rotation[row][2] *= header.pixdim[0];
    header.pixdim[row + 1] = info.geometry.spacing()[row];
    header.qoffset[row] = map.offset[row];
    header.srow[row] = {map.linear[row][0], map.linear[row][1], map.linear[row][2], map.offset[row]};
  }
  header.quaternion = quaternion_of(rotation);
  header.sform_code = 1;
  if (header.version == 1) {
    round_to_float(header.pixdim);
    round_to_float(header.quaternion);
    round_to_float(header.qoffset);
    for (auto& row : header.srow) round_to_float(row);
  }
  header.qform_code = qform_says_the_same(header, info) ? 1 : 0;
  if (!header.qform_code) header.quaternion = header.qoffset = {};
}

int datatype_code(DataType type) {
  return std::find_if(std::begin(kDatatypes), std::end(kDatatypes), [&](const auto& d) { return d.native == type; })
      ->code;
}

}  // namespace

std::size_t nifti_header_bytes(std::span<const std::byte> start) {
  if (start.size() < 4) return 0;
  std::int32_t size;
  std::memcpy(&size, start.data(), sizeof size);
  for (const std::int32_t candidate : {size, swapped(size)})
    if (candidate == 348 || candidate == 540) return std::size_t(candidate);
  return 0;
}

NiftiHeader parse_nifti_header(std::span<const std::byte> bytes) {
  const std::size_t size = nifti_header_bytes(bytes);
  if (size == 0) throw input_error("the file is not NIfTI: its header does not start with its size, 348 or 540");
  if (bytes.size() < size)
    throw input_error("the file ends within its header, after " + std::to_string(bytes.size()) + " of " +
                      std::to_string(size) + " bytes");
  std::int32_t first;
  std::memcpy(&first, bytes.data(), sizeof first);

  NiftiHeader header;
  header.version = size == 348 ? 1 : 2;
  header.byte_swapped = first != std::int32_t(size);
  header.pair = read_magic(bytes, header.version);
  const Loader loader(bytes, header.byte_swapped);
  if (header.version == 1) fields_of_nifti1(loader, header);
  else fields_of_nifti2(loader, header);
  check_dim(header);
  check_datatype(header);
  check_vox_offset(header);
  return header;
}

std::vector<std::byte> encode_nifti_header(const NiftiHeader& header) {
  const std::size_t size = kHeaderBytes[header.version];
  std::vector<std::byte> bytes(size + kExtensionMark);
  const Storer storer(bytes, header.byte_swapped);
  storer.number<std::int32_t>(0, size);
  const std::string magic = std::string(header.pair ? "ni" : "n+") + char('0' + header.version);
  if (header.version == 1) {
    storer.letters(344, 4, magic);
    fields_of_nifti1(storer, header);
  } else {
    storer.letters(4, 4, magic);
    storer.letters(8, 4, std::string(kMagicTail2));
    fields_of_nifti2(storer, header);
  }
  return bytes;
}

Affine nifti_qform(const NiftiHeader& header) {
  const auto [b, c, d] = header.quaternion;
  const double length2 = b * b + c * c + d * d;
  if (!(length2 <= 1 + 1e-5))
    throw input_error("the qform cannot be used, its quaternion (" + text(b) + ", " + text(c) + ", " + text(d) +
                      ") is not part of a unit quaternion: correct the header");
  const Vec3 lengths = voxel_lengths(header, "the qform rests on it");
  Affine map{rotation_of(header.quaternion), header.qoffset};
  for (int axis = 0; axis < 3; ++axis)
    if (!std::isfinite(map.offset[axis]))
      throw input_error("the qform cannot be used, its offset is " + text(map.offset[axis]) + ": correct the header");
  for (int row = 0; row < 3; ++row) {
    if (header.pixdim[0] < 0) map.linear[row][2] = -map.linear[row][2];
    for (int axis = 0; axis < 3; ++axis) map.linear[row][axis] *= lengths[axis];
  }
  return map;
}

Affine nifti_sform(const NiftiHeader& header) {
  Affine map = raw_sform(header);
  if (header.dim[0] == 2 && norm(map.linear.column(2)) == 0) {
    const Vec3 normal = cross(map.linear.column(0), map.linear.column(1));
    const double length = norm(normal);
    for (int row = 0; length > 0 && row < 3; ++row) map.linear[row][2] = normal[row] / length;
  }
  check_sform(map);
  return map;
}

double nifti_length_unit_mm(const NiftiHeader& header) {
  switch (header.xyzt_units & 7) {
    case 1:
      return 1e3;
    case 3:
      return 1e-3;
    default:
      return 1.0;
  }
}

std::string_view to_string(NiftiAffine affine) {
  switch (affine) {
    case NiftiAffine::automatic:
      return "automatic";
    case NiftiAffine::sform:
      return "sform";
    case NiftiAffine::qform:
      return "qform";
    case NiftiAffine::pixdim:
      return "pixdim";
  }
  return "automatic";
}

NiftiImage interpret_nifti_header(const NiftiHeader& header, Notices& notices, NiftiAffine affine) {
  const Datatype& type = *find_datatype(header.datatype);
  NiftiImage image;
  image.datatype = header.datatype;
  image.interleaved = type.code == kRgb ? 3 : type.code == kRgba ? 4 : 1;
  image.data_offset = std::uint64_t(header.vox_offset);
  image.data_bytes =
      checked_value_count(header, image.interleaved) * (std::uint64_t(type.bits) / 8 / image.interleaved);
  set_components(header, image, notices);
  if ((header.xyzt_units & 7) > 3)
    notices.add("unknown_unit",
                "xyzt_units is " + std::to_string(header.xyzt_units) + ", no known unit of length: mm are assumed");
  image.affine = choose_affine(header, affine);
  image.info.geometry = geometry_of(header, affine, image.affine, notices);
  set_scaling(header, image, notices);
  const bool wide = type.code == kInt64 || type.code == kUint64;
  image.info.dtype = !image.scaled ? *type.native
                     : wide        ? DataType::float64
                                   : scaled_type(type, image.slope, image.intercept);
  if (wide && !image.scaled) notices.add("narrowed", "the 64-bit integers are read with 32 bits, which must hold them");
  if (header.dim[0] == 4 && header.dim[4] == 1)
    notices.add("single_frame", "the fourth dimension has one frame: the image was taken as three-dimensional");
  return image;
}

NiftiHeader make_nifti_header(const VolumeInfo& info) {
  const Index3& size = info.geometry.size();
  const std::int64_t largest = std::max({size[0], size[1], size[2], info.components});
  const bool frames = info.component_axis == ComponentAxis::frames, several = info.components > 1;

  NiftiHeader header;
  header.version = largest > std::numeric_limits<std::int16_t>::max() ? 2 : 1;
  header.dim = {several ? (frames ? 4 : 5) : 3, size[0], size[1], size[2], 1, 1, 1, 1};
  if (several) header.dim[frames ? 4 : 5] = info.components;
  header.datatype = datatype_code(info.dtype);
  header.bitpix = int(8 * size_of(info.dtype));
  header.pixdim = {1, 1, 1, 1, several && frames ? info.frame_spacing : 1, 1, 1, 1};
  header.vox_offset = double(kHeaderBytes[header.version] + kExtensionMark);
  header.scl_slope = 1;
  header.xyzt_units = kMillimetresAndSeconds;
  header.intent_code = several && !frames ? kIntentVector : 0;
  header.description = "volpipe";
  set_affines(header, info);
  return header;
}

std::string_view nifti_datatype_name(int datatype) {
  const Datatype* type = find_datatype(datatype);
  return type ? type->name : "unknown";
}

}  // namespace volpipe::io
