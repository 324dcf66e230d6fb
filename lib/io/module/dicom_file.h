// One DICOM file as it says it is: its pixel layout and, for each of its frames, where that frame lies and what its
// values mean. Nothing is filled in: what the file does not say stays empty.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/host_threads.h"
#include "io/module/dicom_data_set.h"
#include "volume/matrix.h"

namespace volpipe::io {

/// What may tell apart frames that lie at one position.
enum class FrameMark { acquisition, temporal_position, trigger_time, b_value, echo_number, echo_time, image_type };
inline constexpr std::array<const char*, 7> kFrameMarkNames = {
    "AcquisitionNumber", "TemporalPosition", "TriggerTime", "b-value", "EchoNumbers", "EchoTime", "ImageType"};
using FrameMarks = std::array<std::string, kFrameMarkNames.size()>;  ///< as text; empty where the file says nothing

struct DicomFrame {
  std::optional<Vec3> position;                        ///< LPS mm, centre of the first pixel
  std::optional<std::array<Vec3, 2>> orientation;      ///< LPS: along a row (column index grows), along a column
  std::optional<std::array<double, 2>> pixel_spacing;  ///< mm, as stored: between rows, between columns
  std::optional<double> slice_thickness;               ///< mm
  std::optional<double> spacing_between_slices;        ///< mm
  double slope = 1;
  double intercept = 0;
  FrameMarks marks;
};

struct DicomFile {
  std::string path;
  std::string sop_class;
  std::string series_uid;
  std::string series_number;
  std::optional<double> instance_number;
  std::string photometric;
  std::int64_t rows = 0, columns = 0;
  int samples = 1, bits_allocated = 16, bits_stored = 16, high_bit = 15;
  bool is_signed = false;
  bool planar_samples = false;  ///< RRR..GGG..BBB.. rather than RGBRGB..
  bool localizer = false;       ///< ImageType says LOCALIZER
  bool multi_frame = false;     ///< more than one frame
  bool lists_frames = false;    ///< enhanced: says of each frame where it lies
  std::string transfer_syntax;  ///< UID
  bool big_endian = false;
  DicomPixels pixels;
  std::vector<DicomFrame> frames;
  std::uint64_t surplus = 0;  ///< bytes of uncompressed pixel data beyond those of the frames, padding aside
  std::string fault;          ///< why the pixel data cannot be whole, naming the file; empty when they seem to be

  std::uint64_t frame_bytes() const { return std::uint64_t(rows) * columns * samples * (bits_allocated / 8); }
  std::string name() const;  ///< without the folder
};

/// Reads the header, not the pixels; empty for a sound object that is no image (a directory, a report, a structure
/// set). Throws Error(input | unsupported) when it is no DICOM file or its pixel layout makes no sense.
std::optional<DicomFile> read_dicom_file(const std::string& path);

/// The same of every path, on `threads` (null: the calling one); Error(input) where one holds no image. Of several
/// faults that of the first path is thrown.
std::vector<DicomFile> read_dicom_files(const std::vector<std::string>& paths, const HostThreads* threads);

/// Throws Error(unsupported) naming a transfer syntax that cannot be read, Error(input) when the pixel data do not lie
/// as theirs says.
void check_transfer_syntax(const DicomFile& file);

/// The pixel data as they lie in the file: one piece where they are plain, else the offset table and the fragments.
using StoredPixels = std::vector<std::vector<std::uint8_t>>;

/// Throws Error(input | out_of_memory) with the path.
StoredPixels read_stored_pixels(const DicomFile& file);

/// The pixels of every frame, decompressed, in the byte order of this machine, frame after frame: file.frames.size() *
/// file.frame_bytes() bytes. `file.planar_samples` is set to how the samples of the result lie. A frame whose stream is
/// damaged or not whole throws Error(input) with the path. May be called for different files at one time.
std::vector<std::uint8_t> decode_pixels(DicomFile& file, StoredPixels stored);

}  // namespace volpipe::io
