#include "stages/geometry/moved_grid.h"

#include <cmath>

#include "volume/error.h"

namespace volpipe {

void check_grid(const GridParams& params, const std::string& pointer, Faults& faults) {
  if (params.reference && params.grid == OutputGrid::fit)
    faults.add(pointer + "/grid", "give \"grid\": \"fit\" or 'reference', not both");
}

bool is_singular(const Matrix3& matrix) {
  const double size = norm(matrix.column(0)) * norm(matrix.column(1)) * norm(matrix.column(2));
  return !(std::abs(matrix.determinant()) > 1e-12 * size);
}

SpatialMap sample_moved(const VolumeInfo& input, PointMap pull, const GridParams& grid, const SamplingParams& sampling,
                        const StageContext& context) {
  const auto target = [&] {
    if (grid.reference) return reference_geometry(grid.reference->name, context);
    if (grid.grid == OutputGrid::same) return input.geometry;
    if (!pull.is_affine())
      throw Error(ErrorCode::usage,
                  "\"grid\": \"fit\" is for affine transforms, and this one bends: give the grid with 'reference'");
    return fitted_grid(input.geometry, pull.affine().inverse());
  }();
  SpatialMap map = sample_grid(input, target, std::move(pull), sampling, context, grid.reference ? kHeaderSnap : 1e-9);
  notice_empty_overlap(input, map);
  return map;
}

void notice_empty_overlap(const VolumeInfo& input, SpatialMap& map) {
  if (!map.pull.is_affine()) return;
  const Geometry& target = map.output().geometry;
  const Affine to_source = input.geometry.world_to_index() * map.pull.affine() * target.index_to_world();
  const Box3 centres = box_around(to_source, voxel_centres(target.size())), edges = voxel_edges(input.geometry.size());
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (centres.high[axis] < edges.low[axis] || centres.low[axis] > edges.high[axis]) {
      map.notices.add("no_overlap", "the result shows nothing of the image: the two grids do not overlap in the world");
      return;
    }
}

}  // namespace volpipe
