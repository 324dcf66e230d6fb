#include "stages/geometry/transform_file.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "stages/geometry/itk_transforms.h"
#include "volume/error.h"

namespace volpipe {

namespace {

using detail::checked_map;
using detail::fail;
using detail::number_text;
using detail::shown;

constexpr std::string_view kItkTextStart = "#Insight Transform File";

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Takes the text before the next end of line, of any system's, off `rest`.
std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return trimmed(line);
}

std::vector<double> numbers_of(std::string_view text, const std::string& where) {
  std::vector<double> result;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const auto length = std::size_t(std::find_if(text.begin(), text.end(), is_space) - text.begin());
    const std::string_view word = text.substr(0, length);
    text.remove_prefix(length);
    const char* first = word.data() + (word.starts_with('+') && !word.starts_with("+-") ? 1 : 0);
    double value = 0;
    const auto [end, code] = std::from_chars(first, word.data() + word.size(), value);
    if (code == std::errc::result_out_of_range) fail(where + ": " + shown(word) + " is beyond what a double can hold");
    if (code != std::errc() || end != word.data() + word.size()) fail(where + ": " + shown(word) + " is not a number");
    if (!std::isfinite(value)) fail(where + ": " + shown(word) + " is not finite");
    result.push_back(value);
  }
  return result;
}

std::string extension_of(const std::string& name) {
  std::string extension = std::filesystem::path(name).extension().string();
  for (char& c : extension) c = char(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

std::vector<ItkTransform> read_itk_text(std::string_view rest) {
  std::vector<ItkTransform> transforms;
  bool has_parameters = false, has_fixed = false;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t colon = line.find(':');
    if (colon == line.npos) fail(shown(line) + " is not of the form 'Name: value' that an ITK transform file has");
    const std::string_view key = trimmed(line.substr(0, colon)), value = trimmed(line.substr(colon + 1));
    if (key == "Transform") {
      transforms.push_back({std::string(value), {}, {}});
      has_parameters = has_fixed = false;
      continue;
    }
    if (key != "Parameters" && key != "FixedParameters")
      fail(shown(key) + " is not known in an ITK transform file, expected Transform, Parameters or FixedParameters");
    if (transforms.empty()) fail(std::string(key) + " stand before the first Transform");
    bool& seen = key == "Parameters" ? has_parameters : has_fixed;
    if (seen) fail("transform " + std::to_string(transforms.size()) + " has " + std::string(key) + " twice");
    seen = true;
    auto& numbers = key == "Parameters" ? transforms.back().parameters : transforms.back().fixed;
    numbers = numbers_of(value, std::string(key) + " of transform " + std::to_string(transforms.size()));
  }
  return transforms;
}

// Matlab level 4: a header of five 32-bit integers (type, rows, columns, imaginary part or not, length of the name
// with its final 0), the name, the values.

constexpr std::size_t kMatlabHeader = 20;
constexpr std::uint32_t kMatlabBigEndian = 1000, kMatlabSingle = 10;
constexpr std::uint32_t kLongestName = 256;

template <class T>
T load(const char* from, bool big_endian) {
  T result = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    result |= T(static_cast<unsigned char>(from[i])) << 8 * (big_endian ? sizeof(T) - 1 - i : i);
  return result;
}

template <class T>
void store(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to += char(value >> 8 * i & 0xff);
}

struct MatlabVector {
  std::string name;
  std::vector<double> values;
};

/// Takes the next variable off `rest`.
MatlabVector next_vector(std::string_view& rest, bool big_endian) {
  if (rest.size() < kMatlabHeader) fail("the Matlab file ends inside the header of a variable");
  std::uint32_t header[5];
  for (std::size_t i = 0; i < 5; ++i) header[i] = load<std::uint32_t>(rest.data() + 4 * i, big_endian);
  const auto [type, rows, columns, imaginary, name_length] = header;
  rest.remove_prefix(kMatlabHeader);

  const std::uint32_t number_type = type % 100;
  const std::uint32_t order = type - type % 1000;  // the hundreds are ITK's: matrices by rows, the same for a vector
  if (order != (big_endian ? kMatlabBigEndian : 0) || (number_type != 0 && number_type != kMatlabSingle) ||
      imaginary != 0)
    fail("the Matlab file holds a variable of type " + std::to_string(type) + ", expected real doubles or singles");
  if (name_length == 0 || name_length > kLongestName || name_length > rest.size())
    fail("the Matlab file says that a variable's name has " + std::to_string(name_length) + " bytes");
  MatlabVector result{std::string(rest.substr(0, name_length)), {}};
  result.name.resize(std::min(result.name.find('\0'), result.name.size()));
  rest.remove_prefix(name_length);

  if (rows > 1 && columns > 1)
    fail("the Matlab variable " + shown(result.name) + " is " + std::to_string(rows) + " x " + std::to_string(columns) +
         ", expected a vector");
  const std::uint64_t count = std::uint64_t(rows) * columns;
  const std::size_t bytes = number_type == kMatlabSingle ? 4 : 8;
  if (count > rest.size() / bytes)
    fail("the Matlab variable " + shown(result.name) + " should have " + std::to_string(count) + " values of " +
         std::to_string(bytes) + " bytes, but the file has " + std::to_string(rest.size()) + " bytes left");
  for (std::size_t i = 0; i < count; ++i) {
    const char* at = rest.data() + i * bytes;
    const double value = bytes == 4 ? double(std::bit_cast<float>(load<std::uint32_t>(at, big_endian)))
                                    : std::bit_cast<double>(load<std::uint64_t>(at, big_endian));
    if (!std::isfinite(value)) fail("the Matlab variable " + shown(result.name) + " has a value that is not finite");
    result.values.push_back(value);
  }
  rest.remove_prefix(count * bytes);
  return result;
}

std::vector<ItkTransform> read_itk_matlab(std::string_view rest) {
  const bool big_endian = load<std::uint32_t>(rest.data(), true) / 1000 == 1;
  if (!big_endian && load<std::uint32_t>(rest.data(), false) >= 1000)
    fail("the file is binary, but not of Matlab's level 4, in which ITK and ANTs write transforms");
  std::vector<ItkTransform> transforms;
  while (!rest.empty()) {
    MatlabVector parameters = next_vector(rest, big_endian);
    if (rest.empty()) fail("the Matlab file ends after " + shown(parameters.name) + ", expected the variable 'fixed'");
    MatlabVector fixed = next_vector(rest, big_endian);
    if (fixed.name != "fixed")
      fail("the Matlab file has " + shown(fixed.name) + " after " + shown(parameters.name) +
           ", expected the variable 'fixed', as in a transform of ITK");
    transforms.push_back({std::move(parameters.name), std::move(parameters.values), std::move(fixed.values)});
  }
  return transforms;
}

std::string matlab_vector(const std::string& name, const std::vector<double>& values) {
  std::string result;
  for (std::size_t field : {std::size_t(0), values.size(), std::size_t(1), std::size_t(0), name.size() + 1})
    store(result, std::uint32_t(field));
  result += name + '\0';
  for (double value : values) store(result, std::bit_cast<std::uint64_t>(value + 0.0));
  return result;
}

/// At least `fewest_rows` rows of 4 numbers; a fourth is 0 0 0 1.
Affine read_matrix(std::string_view rest, std::size_t fewest_rows) {
  const std::string wanted = fewest_rows == 4 ? "4 rows of 4 numbers" : "4 rows (or the upper 3) of 4 numbers";
  std::vector<std::vector<double>> rows;
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = "row " + std::to_string(rows.size() + 1);
    if (rows.size() == 4) fail("the matrix has more than 4 rows, expected " + wanted);
    rows.push_back(numbers_of(line, where));
    if (rows.back().size() != 4)
      fail(where + " has " + std::to_string(rows.back().size()) + " numbers, expected " + wanted);
  }
  if (rows.size() < fewest_rows) fail("the matrix has " + std::to_string(rows.size()) + " rows, expected " + wanted);
  if (rows.size() == 4)
    for (std::size_t i = 0; i < 4; ++i)
      if (std::abs(rows[3][i] - (i == 3 ? 1 : 0)) > 1e-9) fail("the last row of the matrix is not 0 0 0 1");
  Affine result;
  for (std::size_t i = 0; i < 3; ++i) {
    result.linear.m[i] = {rows[i][0], rows[i][1], rows[i][2]};
    result.offset[i] = rows[i][3];
  }
  return checked_map(result, "the matrix");
}

Affine flirt_map(const Affine& input_to_reference, const TransformGrids& grids) {
  if (!grids.reference || !grids.input)
    throw Error(ErrorCode::usage,
                "a matrix of FSL's FLIRT says where points go only together with both its images: give the one that "
                "FLIRT had as reference by \"reference\" (a 4x4 matrix in world coordinates is not called .mat)");
  const Affine pull =
      fsl_to_world(*grids.input) * input_to_reference.inverse() * fsl_to_world(*grids.reference).inverse();
  return checked_map(pull, "the matrix");
}

bool is_binary(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.begin() + std::min<std::size_t>(bytes.size(), 512),
                     [](unsigned char c) { return c < '\t' || (c > '\r' && c < ' '); });
}

PointMap read(std::string_view bytes, const std::string& name, const TransformGrids& grids) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);  // a byte order mark
  if (bytes.find_first_not_of(" \t\v\f\r\n") == bytes.npos) fail("the file is empty, expected a transform");
  if (bytes.starts_with(kItkTextStart)) return point_map(read_itk_text(bytes));
  if (bytes.size() >= kMatlabHeader && bytes.substr(0, 4).find('\0') != bytes.npos)
    return point_map(read_itk_matlab(bytes));
  if (bytes.starts_with("\x89HDF"))
    fail("the file is HDF5 (ITK's .h5), which is not read: write the transform as .tfm");
  if (bytes.starts_with("MATLAB 5.0"))
    fail("the file is of Matlab's level 5, expected level 4, in which ITK and ANTs write transforms");
  if (is_binary(bytes))
    fail("the file is binary, but no transform: expected ITK text, Matlab level 4 of ITK, or a 4x4 matrix as text");
  if (extension_of(name) == ".mat") return flirt_map(read_matrix(bytes, 4), grids);
  return checked_map(read_matrix(bytes, 3).inverse(), "the matrix");
}

}  // namespace

Affine fsl_to_world(const Geometry& grid) {
  const Vec3 spacing = grid.spacing();
  Affine to_index;
  for (int axis = 0; axis < 3; ++axis) to_index.linear[axis][axis] = 1 / spacing[std::size_t(axis)];
  if (grid.index_to_world().linear.determinant() > 0) {
    to_index.linear[0][0] = -1 / spacing[0];
    to_index.offset[0] = double(grid.size()[0] - 1);
  }
  return grid.index_to_world() * to_index;
}

PointMap read_transform(const std::string& bytes, const std::string& name, const TransformGrids& grids) {
  return with_path(name, [&] { return read(bytes, name, grids); });
}

std::string write_transform(const PointMap& pull, const std::string& name) {
  if (!pull.is_affine())
    throw Error(ErrorCode::unsupported,
                "the map bends space, and only affine maps can be written as a transform file: save it for stages "
                "that move, turn, scale or shear the image")
        .with_path(name);
  const Affine map = pull.affine();
  const std::string extension = extension_of(name);
  if (extension == ".txt") {
    const Affine push = map.inverse();
    std::string text;
    for (int i = 0; i < 3; ++i)
      text += number_text(push.linear[i][0]) + ' ' + number_text(push.linear[i][1]) + ' ' +
              number_text(push.linear[i][2]) + ' ' + number_text(push.offset[std::size_t(i)]) + '\n';
    return text + "0 0 0 1\n";
  }
  const Affine lps = between_lps_and_ras(map);
  std::vector<double> parameters;
  for (const auto& row : lps.linear.m) parameters.insert(parameters.end(), row.begin(), row.end());
  parameters.insert(parameters.end(), lps.offset.begin(), lps.offset.end());
  const std::string class_name = "AffineTransform_double_3_3";
  if (extension == ".mat") return matlab_vector(class_name, parameters) + matlab_vector("fixed", {0, 0, 0});
  if (extension == ".tfm") {
    std::string text = std::string(kItkTextStart) + " V1.0\n#Transform 0\nTransform: " + class_name + "\nParameters:";
    for (double value : parameters) text += ' ' + number_text(value);
    return text + "\nFixedParameters: 0 0 0\n";
  }
  throw Error(ErrorCode::unsupported, "a transform is written to .tfm (ITK text), .mat (ITK Matlab) or .txt (4x4)")
      .with_path(name);
}

}  // namespace volpipe
