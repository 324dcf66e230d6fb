#include <cmath>

#include "io/module/dicom.h"
#include "io/module/dicom_file.h"

namespace volpipe::io {

namespace {

void append(std::vector<double>& values, const Vec3& v) { values.insert(values.end(), v.begin(), v.end()); }

HeaderField optional_field(const char* name, const std::optional<double>& value) {
  return value ? number_field(name, *value) : text_field(name, "absent");
}

/// Of every frame, NaN where it has none.
HeaderField positions_field(const std::vector<DicomFile>& files) {
  std::vector<double> values;
  for (const DicomFile& file : files)
    for (const DicomFrame& frame : file.frames) append(values, frame.position.value_or(Vec3{NAN, NAN, NAN}));
  HeaderField field = table_field("positions_lps_mm", values, 3);
  const std::string& text = field.text;
  if (values.size() > 6) field.text = text.substr(0, text.find(';')) + " ... " + text.substr(text.rfind(';') + 2);
  return field;
}

HeaderField orientation_field(const DicomFrame& frame) {
  if (!frame.orientation) return text_field("orientation_lps", "absent");
  std::vector<double> values;
  for (const Vec3& axis : *frame.orientation) append(values, axis);
  return list_field("orientation_lps", std::move(values));
}

HeaderField spacing_field(const DicomFrame& frame) {
  if (!frame.pixel_spacing) return text_field("pixel_spacing_mm", "absent");
  return list_field("pixel_spacing_mm", {(*frame.pixel_spacing)[0], (*frame.pixel_spacing)[1]});
}

HeaderField of_each_frame(const char* name, const std::vector<DicomFile>& files, double DicomFrame::*member) {
  std::vector<double> values;
  bool alike = true;
  for (const DicomFile& file : files)
    for (const DicomFrame& frame : file.frames) {
      values.push_back(frame.*member);
      alike &= values.back() == values.front();
    }
  return alike ? number_field(name, values.front()) : list_field(name, std::move(values));
}

}  // namespace

std::vector<HeaderField> describe_dicom(const Source& source) {
  const std::vector<DicomFile> files = read_dicom_files(source.files, nullptr);
  const DicomFile& first = files.at(0);
  const DicomFrame& frame = first.frames.at(0);
  return {text_field("format", "DICOM"),
          text_field("transfer_syntax", first.transfer_syntax),
          text_field("sop_class", first.sop_class),
          text_field("series_number", first.series_number),
          text_field("photometric", first.photometric),
          number_field("rows", double(first.rows)),
          number_field("columns", double(first.columns)),
          number_field("frames", double(first.frames.size())),
          number_field("samples", first.samples),
          number_field("bits_allocated", first.bits_allocated),
          number_field("bits_stored", first.bits_stored),
          number_field("high_bit", first.high_bit),
          number_field("pixel_representation", first.is_signed, first.is_signed ? "1 (signed)" : "0 (unsigned)"),
          spacing_field(frame),
          orientation_field(frame),
          optional_field("slice_thickness_mm", frame.slice_thickness),
          optional_field("spacing_between_slices_mm", frame.spacing_between_slices),
          of_each_frame("rescale_slope", files, &DicomFrame::slope),
          of_each_frame("rescale_intercept", files, &DicomFrame::intercept),
          positions_field(files)};
}

}  // namespace volpipe::io
