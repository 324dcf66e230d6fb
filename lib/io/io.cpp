#include "io/io.h"

#include <algorithm>
#include <array>

#include "io/companion_files.h"
#include "io/file_names.h"
#include "io/load_module.h"
#include "io/nifti.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

bool goes_to_nifti(const Source& source) { return !source.is_dicom() && is_nifti_name(source.path); }

void check_input_format(const Source& source) {
  if (source.is_dicom() || volume_extension(source.path)) return;
  throw Error(ErrorCode::input,
              "the file is of no known kind: .nii, .nii.gz, .hdr/.img, .nrrd, .nhdr, .mha, .mhd or DICOM is expected")
      .with_path(source.path);
}

}  // namespace

std::vector<std::string> input_files(const Source& source) {
  if (source.is_dicom()) return source.files;
  std::vector<std::string> files = {source.path};
  if (goes_to_nifti(source)) {
    if (const std::string partner = nifti_partner(source.path); !partner.empty()) files.push_back(partner);
    return files;
  }
  for (std::string& name : detached_data_files(source.path)) files.push_back(std::move(name));
  return files;
}

std::unique_ptr<OpenVolume> open(const Source& source, Notices& notices, const ReadOptions& options) {
  return with_path(source.path, [&] {
    check_input_format(source);
    return goes_to_nifti(source) ? open_nifti(source.path, notices, options.affine)
                                 : load_module().open(source, notices, options);
  });
}

VolumeInfo read_info(const Source& source, Notices& notices, const ReadOptions& options) {
  return open(source, notices, options)->info();
}

Volume read(const Source& source, const HostAllocator& allocate, Notices& notices, ReadTiming* timing,
            const ReadOptions& options) {
  return with_path(source.path, [&] { return open(source, notices, options)->read(allocate, notices, timing); });
}

void check_output_format(const std::string& path) {
  const auto extension = volume_extension(path);
  constexpr std::array<std::string_view, 5> kWritten = {".nii", ".nii.gz", ".nrrd", ".mha", ".mhd"};
  if (extension && std::find(kWritten.begin(), kWritten.end(), *extension) != kWritten.end()) return;
  throw Error(
      ErrorCode::usage,
      "'" + path + "' does not name a format that can be written: end it with .nii.gz, .nii, .nrrd, .mha or .mhd")
      .with_path(path);
}

std::vector<std::string> output_files(const std::string& path) {
  if (volume_extension(path) == ".mhd") return {path, meta_data_file(path)};
  return {path};
}

void write(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing) {
  check_output_format(path);
  if (!volume.device().is_cpu())
    throw Error(ErrorCode::internal,
                "a volume on " + volume.device().name() + " was to be written: copy it to the host first")
        .with_path(path);
  with_path(path, [&] {
    if (is_nifti_name(path)) write_nifti(volume, path, options, timing);
    else load_module().write(volume, path, options, timing);
  });
}

void write_png(const std::string& path, const std::vector<std::uint8_t>& pixels, int width, int height, int channels) {
  load_module().write_png(path, pixels, width, height, channels);
}

void write_dicom_series(const Volume& volume, const std::string& folder, const std::string& series_description) {
  load_module().write_dicom_series(volume, folder, series_description);
}

std::vector<HeaderField> describe_header(const Source& source, const ReadOptions& options) {
  return with_path(source.path, [&] {
    check_input_format(source);
    return goes_to_nifti(source) ? describe_nifti_header(source.path, options.affine) : load_module().describe(source);
  });
}

}  // namespace volpipe::io
