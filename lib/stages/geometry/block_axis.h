// What the stages that put images together and take them apart share.
#pragma once

#include "spec/parameters.h"

namespace volpipe {

/// Along what images are put together or taken apart: their components, or a voxel axis.
enum class BlockAxis : std::uint8_t { x, y, z, component };
template <>
struct EnumNames<BlockAxis> {
  static constexpr std::array names{"x", "y", "z", "component"};
};

}  // namespace volpipe
