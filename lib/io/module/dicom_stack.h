// From DICOM frames to one regular grid, or an error that names the files that stand in the way.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/io.h"
#include "io/module/dicom_file.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe::io {

/// A frame by its file (index into the list the stack was made from) and its number in that file.
struct FrameRef {
  std::size_t file = 0, frame = 0;
  bool operator==(const FrameRef&) const = default;
};

/// Frames of one volume: [component][slice], slices ascending along the normal (row x column) of the image plane.
struct DicomStack {
  std::vector<std::vector<FrameRef>> components;
  std::vector<FrameRef> left_out;  ///< further frames at positions that are taken (ReadOptions::allow_duplicates)
  VolumeInfo info;
};

/// Lists of files (indices) of which each makes one volume: one series, image size, orientation, spacing and pixel
/// layout (files of one stack that differ in the last alone stay together and fail); images that share their positions
/// are told apart by AcquisitionNumber, echo, time or type. Multi-frame files stand alone. A list that cannot be told
/// apart stays together and fails in arrange_stack.
std::vector<std::vector<std::size_t>> split_into_volumes(const std::vector<DicomFile>& files);

/// What keeps files of one series from being one volume, in words; empty when nothing does or the series differ.
std::string difference_within_series(const DicomFile& a, const DicomFile& b);

/// The grid of the frames of `files`. Slices are placed by their positions alone. A missing, doubled or displaced slice
/// (more than 1 % of the step) and a missing position, orientation or spacing throw Error(input) with the files' names;
/// what volpipe does not handle throws Error(unsupported). A step that is not along the normal (gantry tilt) is kept.
///
/// What the user allows is done, and a notice names the files:
/// - allow_gaps (notice `gaps_allowed`): every slice is kept, in order, and none is invented; the grid has the mean
///   step, so that the first and the last slice lie where they were taken and those between are off by the largest
///   deviation in mm that the notice gives. Slices that leave the line of the others are still refused.
/// - allow_duplicates (`duplicates_left_out`): of the files at one position the first by name is used. Frames of one
///   file are no copies and stay refused.
/// - allow_no_geometry (`geometry_assumed`): what is known is kept. Where any position is missing, slices follow
///   InstanceNumber (those without one last), then name, from (0, 0, 0) along the normal, in steps of
///   SpacingBetweenSlices, else SliceThickness, else 1 mm. A missing orientation is axial (rows to the left, columns to
///   posterior), a missing spacing 1 mm.
DicomStack arrange_stack(const std::vector<DicomFile>& files, const ReadOptions& options, Notices& notices);

}  // namespace volpipe::io
