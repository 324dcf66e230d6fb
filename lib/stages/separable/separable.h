// Stages that act axis by axis on the grid: what they state, and the two executors that run any composition of them.
#pragma once

#include <array>
#include <optional>

#include "device/context.h"
#include "stages/separable/axis_matrix.h"
#include "stages/separable/sampling.h"
#include "stages/stage.h"

namespace volpipe {

struct GridSampling {
  Interpolation interpolation;
  Boundary boundary;
  bool operator==(const GridSampling&) const = default;
};

/// How the axes of a map are gone through. It decides the rounding of what is computed, so a part of a map goes through
/// them as the whole does. Axes are the source's, or the target's where they are permuted first.
struct GridPasses {
  bool copies = false;            ///< voxels are moved bit for bit: the rest does not matter
  bool permutes_first = false;    ///< axes change places before the filter, not after it
  bool planes_first = true;       ///< x and y are filtered before z
  bool pairs = false;             ///< at most two taps an axis, which CUDA takes in one pass
  std::array<bool, 3> filters{};  ///< axes that are not left alone
};

/// A map from a source grid to a target grid that keeps the axes apart: axis i of the target comes from axis
/// source_axis[i] of the source through matrices[i].
struct GridMap {
  VolumeInfo output;  ///< of the map applied to the volume it was made for
  std::array<int, 3> source_axis{0, 1, 2};
  std::array<AxisMatrix, 3> matrices;
  Fill fill{};
  bool computes = false;  ///< it interpolates or filters, even where its matrices happen to copy
  /// Target index -> source index, where the map has one: crops, flips, pads, resampling; not after fill or folding.
  Affine target_to_source{};
  /// The output's geometry says that voxels moved in the world: not input.remapped(target_to_source).
  bool moves_world = false;
  /// How an interpolating map samples between voxels, so that it can join a gather; none when it smooths as well.
  std::optional<GridSampling> sampling{};
  std::optional<GridPasses> passes{};  ///< of the map that this one is a part of; none: passes_of()

  bool copies() const { return matrices[0].copies() && matrices[1].copies() && matrices[2].copies(); }
  bool uses_fill() const { return matrices[0].uses_fill() || matrices[1].uses_fill() || matrices[2].uses_fill(); }
};

/// A stage that is such a map: lattice stages, resampling along the axes, separable filters.
class SeparableStage : public Stage {
 public:
  virtual GridMap map(const VolumeInfo& input) const = 0;
};

/// `second` after `first` in one map; empty when that would change the result: both interpolate, the fill values
/// differ, a "min" fill would look at another image, one computes in float32 and the other in float64, the passes would
/// run in another order and do not commute (a derivative with a fill value), or the windows do not stay contiguous.
std::optional<GridMap> compose(const GridMap& second, const GridMap& first);

/// How `map` goes through a volume `input`.
GridPasses passes_of(const VolumeInfo& input, const GridMap& map);

/// Runs a map. Copying maps that keep the pixel type keep every bit; the others compute in float32 (float64 when the
/// output's type is float64) and give float32 (float64), axis by axis; every pass finds the fill value outside. A map
/// that keeps all sizes runs x, y, z. `fill_value` is what the fill taps stand for.
Volume apply_map(DeviceContext& context, const Volume& input, const GridMap& map, double fill_value);

/// Device bytes apply_map needs beside its input and its output.
std::size_t scratch_bytes(const VolumeInfo& input, const GridMap& map);

}  // namespace volpipe
