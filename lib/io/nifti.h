// NIfTI files: .nii, .nii.gz and .hdr/.img pairs in, .nii and .nii.gz out. No library comes between volpipe and the
// bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/io.h"
#include "io/nifti_header.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe::io {

/// True for the names .nii .nii.gz .hdr .img (and .hdr.gz .img.gz), in any case of letters.
bool is_nifti_name(const std::string& path);
/// True for the names that are written: .nii and .nii.gz.
bool is_nifti_output_name(const std::string& path);

/// The other file of a pair, .img for .hdr and the other way round, there or not; empty for a single file's name.
std::string nifti_partner(const std::string& path);

/// Headers read and checked; notices as interpret_nifti_header(), and `misleading_name` when a .gz is not gzip or the
/// other way round. 64-bit integers are announced as 32-bit ones. Either file of a pair names it. Checks that the data
/// can be there: the length of a plain file, the largest that a packed one can unpack to. Throws Error(input |
/// unsupported) with the path.
std::unique_ptr<OpenVolume> open_nifti(const std::string& path, Notices& notices,
                                       NiftiAffine affine = NiftiAffine::automatic);
/// The same, for what the header says alone.
VolumeInfo read_nifti_info(const std::string& path, Notices& notices, NiftiAffine affine = NiftiAffine::automatic);

/// The whole volume, read to the last byte of the file, in one buffer from `allocate`. Stored values with a slope
/// become float32, or float64 where they have 32 bits or more as integers or are float64; the arithmetic is double.
/// 64-bit integers become int32 or uint32, Error(unsupported) where a value does not fit. RGB24 and RGBA32 become
/// planar channels of uint8. Non-finite voxels are kept and counted in the notice `non_finite_voxels`; bytes after the
/// data give `trailing_bytes`. Throws Error(input | unsupported | out_of_memory) with the path.
Volume read_nifti(const std::string& path, const HostAllocator& allocate, Notices& notices,
                  ReadTiming* timing = nullptr, NiftiAffine affine = NiftiAffine::automatic);

/// Writes .nii or .nii.gz in the volume's own dtype, frames along dim[4], channels along dim[5]. The affine is stored
/// as float32 (NIfTI-1), which must keep the grid within 1e-3 voxel. The file is verified (size, header, gzip trailer)
/// before it gets its name. The volume must be in host memory. Throws Error(output | exists |
/// unsupported | usage) with the path.
void write_nifti(const Volume& volume, const std::string& path, const WriteOptions& options = {},
                 WriteTiming* timing = nullptr);

struct NiftiFields {
  NiftiHeader header;
  bool packed = false;  ///< gzip, whatever the name says
};

/// The header as it stands in the file. Either file of a pair names it. Throws Error(input | unsupported) where there
/// is no header to speak of.
NiftiFields read_nifti_fields(const std::string& path);

/// The fields of the header, both affines and which was chosen. What is wrong with an affine is said in its text;
/// throws as read_nifti_fields().
std::vector<HeaderField> describe_nifti_header(const std::string& path, NiftiAffine affine = NiftiAffine::automatic);

}  // namespace volpipe::io
