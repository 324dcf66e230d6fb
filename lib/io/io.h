// Files in, files out. Nothing is trusted: a header is checked before any library sees it, a compressed stream is read
// to its end, an output is verified before it gets its name. World coordinates are RAS+ mm here; each format is
// converted at this border.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/host_threads.h"
#include "io/header_field.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe::io {

/// One volume on disk: a file, or the slices of one DICOM series.
struct Source {
  std::string path;                ///< the file, or the folder of the series
  std::vector<std::string> files;  ///< DICOM: the slice files, sorted by position; empty for a single file
  std::string series_uid;          ///< DICOM only
  std::string directory;           ///< folder relative to the input root, "" at the root: {dir} of output paths
  std::string stem;                ///< name without extension(s); a series: its folder's name (+ series number): {stem}

  bool is_dicom() const { return !files.empty(); }
};

/// What a search for inputs found; faults (an unreadable folder, a broken series) do not hide the rest.
struct Found {
  std::vector<Source> sources;  ///< stable order: bytewise by path
  struct Fault {
    std::string path, message;
  };
  std::vector<Fault> faults;  ///< each becomes a failed item
  Notices notices;            ///< hidden or foreign files passed over, counted
};

/// Which of the two maps of a NIfTI file is to be used; `automatic`: sform when its code > 0, else qform when its code
/// > 0, else pixdim.
enum class NiftiAffine : std::uint8_t { automatic, sform, qform, pixdim };
std::string_view to_string(NiftiAffine affine);

/// What the user decided about inputs. What is not allowed is an error that names the files; what is, a notice.
struct ReadOptions {
  NiftiAffine affine = NiftiAffine::automatic;
  bool allow_gaps = false;         ///< DICOM: a missing slice, or steps that differ by more than 1 %: the mean step
  bool allow_duplicates = false;   ///< DICOM: several slices at one position: the first by name
  bool allow_no_geometry = false;  ///< DICOM: no position, orientation or spacing: instance numbers, axial, 1 mm
  const HostThreads* threads = nullptr;  ///< null: the calling thread alone
};

/// Expands one INPUT of the command line: a file, a DICOM series folder, or a folder searched recursively (files of the
/// known extensions; folders of DICOM slices, one source a series). Hidden files and unknown kinds are counted in a
/// notice. Throws Error(input) when `input` itself does not exist or cannot be opened.
Found find_sources(const std::string& input, const ReadOptions& options = {});

/// Every file that reading `source` opens: the slices of a series; else the file itself, the other file of a .hdr/.img
/// pair, and the data files that a header names (.raw, .zraw), there or not. Never throws for what the files hold.
std::vector<std::string> input_files(const Source& source);

/// Allocates the host memory a volume is read into.
using HostAllocator = std::function<Buffer(std::size_t bytes)>;

struct ReadTiming {
  double read_ms = 0, decode_ms = 0;
};

/// A file, or the files of a series, whose headers were read and checked; the voxels are still to come.
class OpenVolume {
 public:
  virtual ~OpenVolume() = default;
  /// As it will be read; 64-bit integers are announced as 32-bit ones.
  virtual const VolumeInfo& info() const = 0;
  /// To be called once. See io::read.
  virtual Volume read(const HostAllocator& allocate, Notices& notices, ReadTiming* timing) = 0;
};

/// Throws Error(input | unsupported) with the path.
std::unique_ptr<OpenVolume> open(const Source& source, Notices& notices, const ReadOptions& options = {});

/// Header only. Throws as open().
VolumeInfo read_info(const Source& source, Notices& notices, const ReadOptions& options = {});

/// The whole volume, checked to its last byte. Slope and intercept are applied (float32, or float64 where integers of
/// 32 bits would lose by it); without them the pixel type is the file's, 64-bit integers narrowed when they fit.
/// Throws Error(input | unsupported | out_of_memory) with the path.
Volume read(const Source& source, const HostAllocator& allocate, Notices& notices, ReadTiming* timing = nullptr,
            const ReadOptions& options = {});

struct WriteOptions {
  bool overwrite = false;  ///< replace what is there; the .raw of a .mhd only when the .mhd that is there names it
  int compression = 0;     ///< of .nii.gz and .nrrd, 1 (fast) to 3 (dense); 0: the usual, 2
  const HostThreads* threads = nullptr;  ///< null: the calling thread alone; the bytes are the same for any number
};

struct WriteTiming {
  double encode_ms = 0, write_ms = 0;
};

/// Formats by extension: .nii .nii.gz .nrrd .mha .mhd. Throws Error(usage) for another.
void check_output_format(const std::string& path);

/// Every file that writing `path` makes: the path itself, first, and for .mhd the <name>.raw beside it.
std::vector<std::string> output_files(const std::string& path);

/// Writes beside `path`, verifies (size, header re-read), then renames; makes missing folders. Error(output) means that
/// other outputs will fail as well (space, permission, a read-only disk); Error(exists | unsupported) concern this one.
/// Leaves no partial file.
void write(const Volume& volume, const std::string& path, const WriteOptions& options = {},
           WriteTiming* timing = nullptr);

/// Grey or RGB picture, 8 bits a channel, as PNG.
void write_png(const std::string& path, const std::vector<std::uint8_t>& pixels, int width, int height, int channels);

/// Writes a host volume as a DICOM CT series, one file a slice, into `folder` (for phantoms and tests).
void write_dicom_series(const Volume& volume, const std::string& folder, const std::string& series_description);

/// What the header of `source` says, for `volpipe info`: NIfTI, both affines in mm and which is used; NRRD and
/// MetaImage, the fields as they stand there; DICOM, the first slice and the places of all. Throws Error(input |
/// unsupported) with the path where there is no header to speak of.
std::vector<HeaderField> describe_header(const Source& source, const ReadOptions& options = {});

}  // namespace volpipe::io
