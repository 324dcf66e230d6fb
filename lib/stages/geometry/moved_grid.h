// What the stages that move an image share: the grid that its new place is shown on.
#pragma once

#include "stages/geometry/spatial_maps.h"

namespace volpipe {

enum class OutputGrid : std::uint8_t { same, fit };
template <>
struct EnumNames<OutputGrid> {
  static constexpr std::array names{"same", "fit"};
};

struct GridParams {
  OutputGrid grid = OutputGrid::same;
  std::optional<ImageOrFile> reference{};
};

template <class P>
void add_grid_parameters(Parameters<P>& parameters) {
  parameters
      .add("grid", static_cast<OutputGrid P::*>(&GridParams::grid), {},
           "same: the input's grid; fit: its axes and spacing, as large as the moved image")
      .add("reference", static_cast<std::optional<ImageOrFile> P::*>(&GridParams::reference), {},
           "the grid of this image or file instead");
}

void check_grid(const GridParams& params, const std::string& pointer, Faults& faults);

/// True when a matrix flattens space, relative to the size of its columns.
bool is_singular(const Matrix3& matrix);

/// Moves `input` by `pull` onto the grid asked for.
SpatialMap sample_moved(const VolumeInfo& input, PointMap pull, const GridParams& grid, const SamplingParams& sampling,
                        const StageContext& context);

/// A notice when no voxel of `map` meets the image.
void notice_empty_overlap(const VolumeInfo& input, SpatialMap& map);

}  // namespace volpipe
