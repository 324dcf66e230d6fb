// Stages that sample a volume at arbitrary points: rotations, displacement fields, grids of other files.
#pragma once

#include <optional>

#include "device/context.h"
#include "stages/gather/point_map.h"
#include "stages/separable/separable.h"

namespace volpipe {

/// A target grid and where its voxels are found in a source.
struct GatherMap {
  VolumeInfo output;
  /// What happens to the source first: a lattice map, read through as a view, or smoothing, run before. Its output is
  /// what `points` index.
  GridMap before;
  PointMap points;  ///< target index -> index of before.output
  Interpolation interpolation = Interpolation::linear;
  Boundary boundary = Boundary::constant;
  Fill fill{};
  /// Target voxels outside [window_begin, window_end) hold window_fill: padding that follows.
  Index3 window_begin{}, window_end{};
  double window_fill = 0;

  bool whole_window() const { return window_begin == Index3{} && window_end == output.geometry.size(); }
};

/// Finds the device volume of an item's image, for fields that are one.
using ImageLookup = std::function<const Volume&(const std::string& name)>;

/// Runs a map: coordinates in double; values in float32, in float64 when the output's type is float64, or bit for bit
/// (nearest, label_linear). `fill_value` is what map.fill stands for, `before_fill` what map.before.fill does.
Volume apply_gather(DeviceContext& context, const Volume& input, const GatherMap& map, double fill_value,
                    double before_fill, const ImageLookup& images);

/// Device bytes apply_gather needs beside its input and its output.
std::size_t scratch_bytes(const VolumeInfo& input, const GatherMap& map);

}  // namespace volpipe
