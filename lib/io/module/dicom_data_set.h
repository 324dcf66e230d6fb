// The elements of a DICOM file up to its pixels. Read here and not by GDCM, whose distribution builds end the process
// by an assertion when a header is damaged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/input_file.h"

namespace volpipe::io {

/// (group << 16) | element.
using DicomTag = std::uint32_t;
constexpr DicomTag dicom_tag(std::uint16_t group, std::uint16_t element) { return DicomTag(group) << 16 | element; }
std::string to_string(DicomTag tag);  ///< "(0028,0010)"

class DicomDataSet {
 public:
  bool contains(DicomTag tag) const { return values_.contains(tag) || sequences_.contains(tag); }
  /// Without blanks and zero bytes at the ends; empty when absent.
  std::string text(DicomTag tag) const;
  /// The `\`-separated numbers of a decimal or integer string, empty when absent or blank. Throws Error(input) for a
  /// value that is no finite number.
  std::vector<double> decimals(DicomTag tag) const;
  std::optional<double> decimal(DicomTag tag) const;
  std::optional<std::uint32_t> whole(DicomTag tag) const;  ///< a binary value of 2 or 4 bytes, unsigned
  std::optional<double> real(DicomTag tag) const;          ///< a binary value of 8 bytes
  /// The items of a sequence; empty when absent.
  const std::vector<DicomDataSet>& items(DicomTag tag) const;

 private:
  friend class DicomParser;
  std::map<DicomTag, std::string> values_;
  std::map<DicomTag, std::vector<DicomDataSet>> sequences_;
  bool big_endian_ = false;
};

/// Where the pixels lie in the file.
struct DicomPixels {
  std::uint64_t offset = 0;  ///< of the value
  std::uint64_t length = 0;  ///< as announced; of no meaning for fragments
  bool fragments = false;    ///< compressed: items up to a delimiter
};

struct DicomHeader {
  std::string transfer_syntax;  ///< UID
  bool big_endian = false;
  DicomDataSet data;
  std::optional<DicomPixels> pixels;
};

/// Throws Error(input) when the file is no DICOM file or an element reaches beyond its end, Error(unsupported) for a
/// deflated data set.
DicomHeader read_dicom_header(InputFile& file);

}  // namespace volpipe::io
