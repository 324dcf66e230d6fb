// Maps of stages as transform files.
#pragma once

#include <string>

#include "stages/gather/point_map.h"

namespace volpipe {

/// Writes `pull` (world point of the output -> world point of the input, RAS mm) as a transform file by its extension,
/// completely or not at all. Throws Error(unsupported) when the format cannot hold the map, Error(exists | output).
void save_map(const PointMap& pull, const std::string& path, bool overwrite);

}  // namespace volpipe
