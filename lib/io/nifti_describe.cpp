#include <bit>

#include "io/nifti.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

std::string printable(const std::string& field) {
  std::string text = field;
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

template <class Range>
HeaderField first_of(const char* name, const Range& values, std::size_t count) {
  return list_field(name, std::vector<double>(values.begin(), values.begin() + std::ptrdiff_t(count)));
}

HeaderField matrix_field(const char* name, const Affine& map, double unit) {
  std::vector<double> values;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) values.push_back(map.linear[row][column] * unit);
    values.push_back(map.offset[row] * unit);
  }
  return table_field(name, std::move(values), 4);
}

HeaderField code_field(const char* name, int code) {
  static constexpr const char* kNames[] = {"unknown", "scanner", "aligned", "talairach", "mni", "template"};
  return number_field(
      name, code, std::to_string(code) + " (" + (code >= 0 && code < 6 ? kNames[code] : "not in the standard") + ")");
}

std::string units(int xyzt) {
  static constexpr const char* kLengths[] = {"unknown", "m", "mm", "um"};
  static constexpr const char* kTimes[] = {"unknown", "s", "ms", "us", "Hz", "ppm", "rad/s"};
  const int length = xyzt & 7, time = (xyzt & 0x38) >> 3;
  return std::string(length < 4 ? kLengths[length] : "not in the standard") + ", " +
         (time < 7 ? kTimes[time] : "not in the standard");
}

template <class Describe>
HeaderField or_what_is_wrong(const char* name, Describe&& describe) {
  try {
    return describe();
  } catch (const Error& error) { return text_field(name, std::string("invalid: ") + error.what()); }
}

HeaderField disagreement(const NiftiHeader& header, double unit) {
  if (header.qform_code <= 0 || header.sform_code <= 0)
    return text_field("disagreement_mm", "none, not both are given");
  Index3 size;
  for (int axis = 0; axis < 3; ++axis) size[axis] = axis < header.dim[0] ? header.dim[axis + 1] : 1;
  return number_field(
      "disagreement_mm",
      max_corner_distance_mm(Geometry(size, nifti_sform(header)), Geometry(size, nifti_qform(header))) * unit);
}

std::string kind_of(const NiftiFields& fields) {
  const NiftiHeader& header = fields.header;
  const bool little = (std::endian::native == std::endian::little) != header.byte_swapped;
  return "NIfTI-" + std::to_string(header.version) + (header.pair ? " pair" : "") + (fields.packed ? ", gzip" : "") +
         (little ? ", little-endian" : ", big-endian");
}

std::string intent(const NiftiHeader& header) {
  return std::to_string(header.intent_code) + (header.intent_name.empty() ? "" : " ") + printable(header.intent_name);
}

}  // namespace

std::vector<HeaderField> describe_nifti_header(const std::string& path, NiftiAffine affine) {
  return with_path(path, [&] {
    const NiftiFields fields = read_nifti_fields(path);
    const NiftiHeader& header = fields.header;
    const double unit = nifti_length_unit_mm(header);
    const auto shown = std::size_t(header.dim[0]) + 1;
    Notices ignored;
    return std::vector<HeaderField>{
        text_field("format", kind_of(fields)),
        first_of("dim", header.dim, shown),
        number_field("datatype", header.datatype,
                     std::string(nifti_datatype_name(header.datatype)) + " (" + std::to_string(header.datatype) + ")"),
        number_field("bitpix", header.bitpix),
        first_of("pixdim", header.pixdim, shown),
        text_field("units", units(header.xyzt_units)),
        number_field("vox_offset", header.vox_offset),
        number_field("scl_slope", header.scl_slope),
        number_field("scl_inter", header.scl_inter),
        code_field("qform_code", header.qform_code),
        or_what_is_wrong("qform_mm", [&] { return matrix_field("qform_mm", nifti_qform(header), unit); }),
        code_field("sform_code", header.sform_code),
        or_what_is_wrong("sform_mm", [&] { return matrix_field("sform_mm", nifti_sform(header), unit); }),
        or_what_is_wrong("disagreement_mm", [&] { return disagreement(header, unit); }),
        or_what_is_wrong("affine_used",
                         [&] {
                           const auto used = interpret_nifti_header(header, ignored, affine).affine;
                           return text_field("affine_used", std::string(to_string(used)));
                         }),
        number_field("intent", header.intent_code, intent(header)),
        text_field("description", printable(header.description))};
  });
}

}  // namespace volpipe::io
