// Labels that are smoothed before they are sampled.
#pragma once

#include "stages/gather/gather.h"

namespace volpipe {

/// True for label_linear of labels that map.before smooths.
bool votes_by_label(const GatherMap& map);

/// For every target voxel the label whose share is largest: each label's voxels as an image of 0 and 1, smoothed by
/// map.before, sampled linearly. The smaller label wins a tie. Labels go one by one, so
/// that memory does not grow with their number. Throws Error(unsupported) when the labels span more than 2^24 values.
Volume vote_by_label(DeviceContext& context, const Volume& labels, const GatherMap& map, double fill_value,
                     double before_fill, const ImageLookup& images);

/// Device bytes vote_by_label needs beside its input and its output.
std::size_t vote_scratch_bytes(const VolumeInfo& labels, const GatherMap& map);

}  // namespace volpipe
