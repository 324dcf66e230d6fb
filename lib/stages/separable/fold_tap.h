// Where a tap that reaches beyond an axis lies, one voxel at a time, on either device.
#pragma once

#include <cstdint>

#include "device/host_device.h"
#include "stages/separable/sampling.h"

namespace volpipe {

/// Index of a tap, folded; -1 for the fill value. Taps reach a few voxels beyond the axis at most, or many axes of one
/// or two voxels.
VOLPIPE_HD inline std::int64_t fold_tap(std::int64_t i, std::int64_t size, Boundary boundary) {
  if (i >= 0 && i < size) return i;
  switch (boundary) {
    case Boundary::grid_constant:
      return -1;
    case Boundary::nearest:
      return i < 0 ? 0 : size - 1;
    case Boundary::reflect: {
      const std::int64_t rest = i % (2 * size), folded = rest < 0 ? rest + 2 * size : rest;
      return folded < size ? folded : 2 * size - 1 - folded;
    }
    case Boundary::grid_wrap: {
      const std::int64_t rest = i % size;
      return rest < 0 ? rest + size : rest;
    }
    default: {  // mirror, and constant and wrap, whose coordinates lie inside
      if (size == 1) return 0;
      const std::int64_t rest = i % (2 * size - 2), folded = rest < 0 ? rest + 2 * size - 2 : rest;
      return folded < size ? folded : 2 * size - 2 - folded;
    }
  }
}

}  // namespace volpipe
