// What a file's name says about its kind.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace volpipe::io {

/// The extension of a volume that `path` ends with, lower case, one of .nii .nii.gz .hdr .img .hdr.gz .img.gz .nrrd
/// .nhdr .mha .mhd; upper and lower case are alike.
std::optional<std::string_view> volume_extension(const std::string& path);

/// The file's name without folder and without a volume's extension or ".dcm".
std::string stem_of(const std::string& path);

}  // namespace volpipe::io
