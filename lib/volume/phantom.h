// Volumes known from formulas: samples, demonstrations, tests. The same voxels on every machine and compiler: only
// IEEE additions, products, quotients and comparisons of doubles, and a hash for noise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "volume/volume.h"

namespace volpipe {

struct Phantom {
  Volume image;
  std::optional<Volume> label;  ///< uint8, on the same grid
};

/// The 3-D Shepp-Logan head with Toft's contrasts, float32 in [0, 1], size^3 voxels over the cube [-1, 1]^3 scaled to
/// 200 mm; sampled at voxel centres. Axes run along RAS.
Phantom shepp_logan_phantom(std::int64_t size);

/// A chest as CT shows it: int16 Hounsfield units with noise, size x size x 5/8 size voxels over 384 x 384 x 300 mm,
/// axes along LPS. Labels: 1 body, 2 lungs, 3 heart and aorta, 4 liver, 5 bone, 6 spleen, 7 a nodule of 22 mm in the
/// right lung.
Phantom torso_phantom(std::int64_t size);

/// The middle 150 mm of the torso as `slices` thick slices of size x size voxels.
Phantom torso_slab_phantom(std::int64_t size, std::int64_t slices);

/// A head as T1-weighted MR shows it: uint16, smooth bias, noise, zero background; size x size x size/2 voxels over
/// 216 x 216 x 172.8 mm, sagittal slices, oblique, left-handed (PSR). Labels: 1 CSF, 2 grey, 3 white matter.
Phantom head_phantom(std::int64_t size);

}  // namespace volpipe
