// The geometry of a NRRD file from its own fields: ITK's reader takes left-anterior-superior for a half turn about z
// and leaves units as they are.
#pragma once

#include "io/module/payload.h"
#include "volume/matrix.h"
#include "volume/notices.h"

namespace volpipe::io {

/// RAS mm map of voxel indices. `by_itk` (LPS) gives the columns where the header has no space directions; an axis that
/// the image lacks (`axes` below 3) keeps a column of zeros. Throws Error(input | unsupported) naming the field.
Affine nrrd_affine(const HeaderFields& fields, std::size_t axes, const Affine& by_itk, Notices& notices);

/// Whether an axis of this kind is one of the grid rather than of the values at a voxel.
bool is_domain_kind(const std::string& kind);

/// The blank-separated words of a field; none where it is absent.
std::vector<std::string> words_of(const HeaderFields& fields, const std::string& key);

}  // namespace volpipe::io
