// The table through which lib/io reaches the file formats of ITK and GDCM. They live in libvolpipe_io.so, which is
// loaded on first use, so that a command that reads no such file starts without them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/io.h"

namespace volpipe::io {

/// The files of one folder that make one volume, sorted by position.
struct DicomGroup {
  std::vector<std::string> files;
  std::string series_uid;
  std::string series_number;  ///< empty when the files have none
};

/// What the DICOM files of one folder are.
struct DicomFolder {
  std::vector<DicomGroup> groups;    ///< ordered by series number, series UID and first file
  std::vector<Found::Fault> faults;  ///< files that cannot be read, series that make no volume
  std::size_t volumes = 0;           ///< groups, and series that make no volume
  Notices notices;                   ///< series that fell into several volumes because their files differ
  std::size_t not_images = 0;        ///< sound objects without pixels: directories, reports, structures
};

/// All functions throw volpipe::Error only, and start no threads but those of ReadOptions and WriteOptions: ITK's
/// readers and writers have none of their own.
struct Module {
  DicomFolder (*group_dicom)(const std::vector<std::string>& files, const ReadOptions& options);
  std::unique_ptr<OpenVolume> (*open)(const Source& source, Notices& notices, const ReadOptions& options);
  std::vector<HeaderField> (*describe)(const Source& source);
  void (*write)(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing);
  void (*write_png)(const std::string& path, const std::vector<std::uint8_t>& pixels, int width, int height,
                    int channels);
  void (*write_dicom_series)(const Volume& volume, const std::string& folder, const std::string& series_description);
};

/// The one symbol of the module.
extern "C" const Module* volpipe_io_module();
inline constexpr char kModuleSymbol[] = "volpipe_io_module";

}  // namespace volpipe::io
