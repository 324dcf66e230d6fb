// NRRD and MetaImage: headers through ITK's readers, voxels with every byte checked, LPS <-> RAS at this border.
#pragma once

#include "io/io.h"

namespace volpipe::io {

/// .nrrd, .nhdr, .mha, .mhd by extension. A fourth dimension (or a NRRD axis of kind "list") is frames, other
/// components are channels. 64-bit integers become int32 or uint32; a value that does not fit throws
/// Error(unsupported). Throws Error(input | unsupported | out_of_memory) with the path.
std::unique_ptr<OpenVolume> open_itk(const std::string& path, Notices& notices);

/// The fields of the text header, as they stand there.
std::vector<HeaderField> describe_itk(const std::string& path);

/// .nrrd is packed with gzip, .mha and .mhd are plain, as other programs write them by default; .mhd puts its voxels
/// into <name>.raw beside it, which is replaced only when the .mhd that is there names it. NRRD holds a sheared grid,
/// MetaImage does not: Error(unsupported). The result is read back (header and size) before it gets its name. Throws
/// Error(output | exists | unsupported).
void write_itk(const Volume& volume, const std::string& path, const WriteOptions& options, WriteTiming* timing);

/// See io.h.
void write_png_file(const std::string& path, const std::vector<std::uint8_t>& pixels, int width, int height,
                    int channels);

}  // namespace volpipe::io
