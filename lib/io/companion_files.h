// The files that belong to one volume beside the one that names it.
#pragma once

#include <string>
#include <vector>

namespace volpipe::io {

/// Where writing the MetaImage header `path` (.mhd) puts the voxels.
std::string meta_data_file(const std::string& path);

/// The files that a .mhd, .mha, .nrrd or .nhdr header names as holding its voxels, there or not; empty when the voxels
/// follow the header or the header cannot be read. Never throws for what the file holds.
std::vector<std::string> detached_data_files(const std::string& path);

}  // namespace volpipe::io
