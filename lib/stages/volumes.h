// What the stages on whole volumes share.
#pragma once

#include "device/context.h"

namespace volpipe {

/// The same voxels in memory of their own, on the same device.
Volume copy_of(DeviceContext& context, const Volume& volume);

}  // namespace volpipe
