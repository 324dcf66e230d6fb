// Grids of control points laid over the images of an item, for deformations and other smooth fields.
#pragma once

#include <functional>

#include "stages/geometry/spatial_maps.h"

namespace volpipe {

/// Cells along the axes of the frame image, over the extent of all the item's images (at least the frame's own).
struct ControlGrid {
  Index3 cells{};
  Affine frame_to_cells;  ///< voxel index of the frame -> cells from the low edge: 0 to cells[axis]
};

/// Cells of `size_mm` along each axis of the frame, in its middle, as many as the item's images need.
ControlGrid grid_of_size(const StageContext& context, const Vec3& size_mm);
/// `cells` along each axis of the frame, from edge to edge.
ControlGrid grid_of_count(const StageContext& context, const Index3& cells);

/// The box around all images of the item, edge to edge, in voxels of the frame.
Box3 extent_of_item(const StageContext& context);

/// Throws Error(usage) when a field of so many control points is no smooth field any more.
void check_control_points(double points);

/// A field of vectors value(component, i, j, k) on `size` points.
VectorField make_field(VectorField::Basis basis, const Index3& size,
                       const std::function<double(int, std::int64_t, std::int64_t, std::int64_t)>& value);

/// Cubic B-spline displacements by control points with components uniform in [-limits, limits], smoothed over
/// `smoothness` control points and scaled back to the same largest component; `linear` brings them to world mm.
PointMap random_spline(const StageContext& context, const ControlGrid& grid, const Vec3& limits, double smoothness,
                       const Matrix3& linear);

}  // namespace volpipe
