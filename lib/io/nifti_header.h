// NIfTI-1 and NIfTI-2 headers: from bytes to checked fields, from fields to the volume they describe, and back.
// The standard: https://nifti.nimh.nih.gov/pub/dist/src/niftilib/nifti1.h and .../nifti2/nifti2.h
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/io.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe::io {

/// The header's own size, 348 (NIfTI-1) or 540 (NIfTI-2), from its first four bytes in either byte order; 0 when they
/// are neither.
std::size_t nifti_header_bytes(std::span<const std::byte> start);

/// The fields as they stand in the file, in the machine's byte order.
struct NiftiHeader {
  int version = 1;            ///< 1 or 2
  bool byte_swapped = false;  ///< the file's order is not the machine's
  bool pair = false;          ///< .hdr + .img
  std::array<std::int64_t, 8> dim{};
  int datatype = 0;
  int bitpix = 0;
  std::array<double, 8> pixdim{};
  double vox_offset = 0;
  double scl_slope = 0, scl_inter = 0;
  double cal_max = 0, cal_min = 0;
  int xyzt_units = 0;
  int qform_code = 0, sform_code = 0;
  Vec3 quaternion{};  ///< b, c, d
  Vec3 qoffset{};
  std::array<std::array<double, 4>, 3> srow{};
  int intent_code = 0;
  std::string intent_name, description;
};

/// Checks what can be checked without knowing the file: magic, dim, datatype and bitpix, vox_offset. Needs the
/// nifti_header_bytes() of the header; more may follow. Throws Error(input), Error(unsupported) for data types that
/// volpipe does not read (complex, 128-bit).
NiftiHeader parse_nifti_header(std::span<const std::byte> bytes);

/// Header and the empty extension mark: 352 or 544 bytes, in the order that `byte_swapped` says.
std::vector<std::byte> encode_nifti_header(const NiftiHeader& header);

/// Voxel-to-world maps in the header's own length unit. The qform throws Error(input) when its quaternion is not finite
/// or longer than 1, or a pixdim it rests on is not a positive number; the sform when it is not finite or singular.
Affine nifti_qform(const NiftiHeader& header);
Affine nifti_sform(const NiftiHeader& header);

/// Millimetres per length unit of the header; 1 when the unit is not given.
double nifti_length_unit_mm(const NiftiHeader& header);

/// How the bytes of the data lie and what becomes of them.
struct NiftiImage {
  VolumeInfo info;                              ///< as it is read; 64-bit integers are announced as 32-bit ones
  NiftiAffine affine = NiftiAffine::automatic;  ///< the one that was used, never automatic
  int datatype = 0;
  bool scaled = false;  ///< value = slope * stored + intercept
  double slope = 1, intercept = 0;
  int interleaved = 1;            ///< 3 for RGB24, 4 for RGBA32: channels beside each other in the file
  std::uint64_t data_offset = 0;  ///< in the file that holds the data
  std::uint64_t data_bytes = 0;
};

/// What the header means. Decisions become notices (codes: no_affine, affine_disagreement,
/// qform_unusable, sform_unusable, pixdim_mismatch, skew_removed, missing_axis, unknown_unit, frame_spacing,
/// scaling_ignored). Skew between float32 rounding (1e-6) and 1e-3 is removed; real shear is kept. dim[4] are frames,
/// dim[5] channels. Throws Error(input) where the affine cannot be trusted, Error(unsupported) for data of more than
/// four dimensions.
NiftiImage interpret_nifti_header(const NiftiHeader& header, Notices& notices,
                                  NiftiAffine affine = NiftiAffine::automatic);

/// The header for a volume of its dtype without scaling: NIfTI-2 where a size exceeds 32767, else NIfTI-1; both codes
/// 1, the qform only where it says the same as the sform (no shear).
NiftiHeader make_nifti_header(const VolumeInfo& info);

/// Name of a data type code, such as "int16"; "unknown" for others.
std::string_view nifti_datatype_name(int datatype);

}  // namespace volpipe::io
