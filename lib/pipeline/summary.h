// What the voxels of a volume are like: its numbers for `volpipe info`, its grey window and labels for `volpipe
// preview`.
#pragma once

#include <optional>
#include <vector>

#include "stages/pointwise/statistics.h"
#include "volume/volume.h"

namespace volpipe {

/// Over the finite voxels of all components.
struct IntensitySummary {
  Moments moments;
  std::vector<double> percentiles;  ///< one for each percent asked; NaN when no voxel is finite
  /// Integer volumes of at most kMaxDistinct different values: those values, ascending.
  std::optional<std::vector<std::int64_t>> distinct;

  static constexpr std::size_t kMaxDistinct = 256;
};

/// `volume` lives on the context's device, which is the CPU.
IntensitySummary summarize(DeviceContext& context, const Volume& volume, std::span<const double> percents);

/// Percentiles of the finite voxels of one component.
std::vector<double> component_percentiles(DeviceContext& context, const Volume& volume, std::int64_t component,
                                          std::span<const double> percents);

/// The different values of an integer host volume, ascending; empty for floating types and when there are more than
/// `limit`.
std::optional<std::vector<std::int64_t>> distinct_values(const Volume& volume, std::size_t limit);

}  // namespace volpipe
