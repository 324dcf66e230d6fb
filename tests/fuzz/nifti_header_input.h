// One input of the NIfTI fuzzer, a .nii file: it is refused in words, or it is a sound volume that the file can hold
// and whose header survives being written and read again.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "fuzz/require.h"
#include "io/nifti_header.h"

namespace volpipe::fuzz {

/// Fields go through bytes unchanged; NaN is compared by its bytes.
inline void check_fields_survive(const io::NiftiHeader& header) {
  const std::vector<std::byte> bytes = io::encode_nifti_header(header);
  require(bytes.size() == (header.version == 1 ? 352u : 544u));
  require(io::nifti_header_bytes(bytes) == bytes.size() - 4);
  const io::NiftiHeader again = io::parse_nifti_header(bytes);
  require(again.dim == header.dim && again.datatype == header.datatype && again.bitpix == header.bitpix);
  require(again.vox_offset == header.vox_offset && again.xyzt_units == header.xyzt_units);
  require(again.qform_code == header.qform_code && again.sform_code == header.sform_code);
  require(again.byte_swapped == header.byte_swapped && again.pair == header.pair && again.version == header.version);
  require(again.intent_name == header.intent_name && again.description == header.description);
  require(io::encode_nifti_header(again) == bytes);
}

/// Whether float32 keeps the grid, and rounding cannot take it over the bounds of skew that is removed or singular.
inline bool float_keeps(const Geometry& geometry) {
  double smallest = INFINITY, largest = 0;
  for (const double length : geometry.spacing()) {
    smallest = std::min(smallest, length);
    largest = std::max(largest, length);
  }
  const Index3& n = geometry.size();
  for (int corner = 0; corner < 8; ++corner) {
    const Vec3 index{corner & 1 ? double(n[0]) : 0, corner & 2 ? double(n[1]) : 0, corner & 4 ? double(n[2]) : 0};
    for (const double value : geometry.to_world(index)) largest = std::max(largest, std::abs(value));
  }
  for (const double value : geometry.origin()) largest = std::max(largest, std::abs(value));
  const double shear = geometry.shear();
  return smallest > 1e-20 && largest < 1e20 && largest < 500 * smallest &&
         (shear < 1e-7 || (shear > 1.1e-3 && shear < 0.9));
}

inline void check_written_again(const VolumeInfo& info) {
  const io::NiftiHeader header = io::make_nifti_header(info);
  if (!float_keeps(info.geometry)) return;
  check_fields_survive(header);
  Notices notices;
  const VolumeInfo again = io::interpret_nifti_header(header, notices).info;
  require(again.components == info.components && again.dtype == info.dtype);
  require(again.component_axis == info.component_axis);
  require(same_grid(again.geometry, info.geometry));
}

inline void check_meaning(const io::NiftiHeader& header, io::NiftiAffine affine) try {
  Notices notices;
  const io::NiftiImage image = io::interpret_nifti_header(header, notices, affine);
  check_info(image.info);
  require(image.affine != io::NiftiAffine::automatic && image.data_offset == std::uint64_t(header.vox_offset));
  require(image.data_bytes * 8 == std::uint64_t(image.info.value_count()) * header.bitpix / image.interleaved);
  require(std::isfinite(image.slope) && std::isfinite(image.intercept) && image.slope != 0);
  for (const Notice& notice : notices.list()) require(!notice.code.empty() && !notice.message.empty());
  check_written_again(image.info);
} catch (const Error& error) { check_refusal(error); }

/// The largest growth is that of uint8 with a slope, to float64.
inline void check_file(std::string_view file) try {
  Notices notices;
  const std::string path = test::write_bytes(scratch() / "image.nii", file);
  check_whole(io::read(source_of(path), at_most(8 * file.size()), notices));
} catch (const Error& error) {
  check_refusal(error);
  require(error.code() != ErrorCode::out_of_memory && !error.path().empty());
}

inline void run_nifti_header(std::string_view file) {
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  try {
    const io::NiftiHeader header = io::parse_nifti_header(bytes);
    require(header.dim[0] >= 1 && header.dim[0] <= 7 && file.size() >= io::nifti_header_bytes(bytes));
    check_fields_survive(header);
    for (const auto affine :
         {io::NiftiAffine::automatic, io::NiftiAffine::sform, io::NiftiAffine::qform, io::NiftiAffine::pixdim})
      check_meaning(header, affine);
  } catch (const Error& error) { check_refusal(error); }
  check_file(file);
}

}  // namespace volpipe::fuzz
