// Chains of geometric maps as one.
#pragma once

#include <optional>
#include <variant>

#include "stages/gather/gather.h"
#include "stages/separable/separable.h"

namespace volpipe {

using SpatialForm = std::variant<GridMap, GatherMap>;

/// Which chains become one map: those where it changes nothing (at most one of them interpolates), or also those that
/// sample twice in the same way. The latter interpolates once, which is sharper, and sees what an earlier stage had cut
/// away.
enum class Fusing : std::uint8_t { exact, all };

/// `second` after `first` on a volume `input`; empty when the rule does not allow it, or no one map says it.
std::optional<SpatialForm> compose(const SpatialForm& second, const SpatialForm& first, const VolumeInfo& input,
                                   Fusing fusing);

/// The map that leaves a volume as it is.
GridMap identity_map(const VolumeInfo& info);

}  // namespace volpipe
