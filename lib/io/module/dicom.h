// DICOM series in, CT series out, with GDCM. Positions decide, never names or instance numbers; values are never
// inverted.
#pragma once

#include "io/module/module.h"

namespace volpipe::io {

/// The volumes among `files`, which lie in one folder. A group holds the files that options.allow_duplicates leaves out
/// too, after the others: open_dicom says so again.
DicomFolder group_dicom(const std::vector<std::string>& files, const ReadOptions& options);

/// For a source with files. Slope and intercept are applied slice by slice; values keep their stored type without them,
/// become int16 or int32 when they are whole numbers common to all slices, float32 otherwise (float64 for more than 16
/// stored bits). Several frames a position are frames, RGB is three channels. Throws Error(input | unsupported |
/// out_of_memory), naming the files concerned. Headers and pixels are read on options.threads, which must outlive the
/// result; voxels, notices and the error thrown are the same for any number of them. Of the time that reading takes,
/// read_ms and decode_ms are the shares of files and decoders.
std::unique_ptr<OpenVolume> open_dicom(const Source& source, Notices& notices, const ReadOptions& options);

/// What the first file says, and the positions of all.
std::vector<HeaderField> describe_dicom(const Source& source);

/// One component of whole values within int16, on an unsheared grid; else Error(unsupported). Files are slice_0001.dcm
/// and so on, the same bytes for the same volume and description. Throws Error(output | exists).
void write_dicom_slices(const Volume& volume, const std::string& folder, const std::string& series_description);

}  // namespace volpipe::io
