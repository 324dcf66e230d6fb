// Where the voxels of a volume are in the world: an immutable size and a 4x4 index-to-world map, in double precision.
#pragma once

#include <string>

#include "volume/matrix.h"

namespace volpipe {

/// World coordinates are RAS+ millimetres (x grows to the patient's Right, y to Anterior, z to Superior, as NIfTI and
/// nibabel). The map may be left-handed and may be sheared (gantry tilt).
class Geometry {
 public:
  Geometry() : Geometry({1, 1, 1}, Affine{}) {}
  /// `size` at least 1 an axis, `index_to_world` finite and invertible, voxels of 1e-90 to 1e90 mm, else Error(input).
  Geometry(const Index3& size, const Affine& index_to_world);
  /// Axes along the columns of `direction` (unit vectors), `spacing` in mm, `origin` = world position of voxel 0.
  static Geometry from_spacing(const Index3& size, const Vec3& spacing, const Vec3& origin = {},
                               const Matrix3& direction = Matrix3::identity());

  const Index3& size() const { return size_; }
  std::int64_t voxel_count() const { return size_[0] * size_[1] * size_[2]; }
  const Affine& index_to_world() const { return index_to_world_; }
  Affine world_to_index() const { return index_to_world_.inverse(); }

  Vec3 spacing() const;  ///< length of one voxel step along each axis, mm
  Vec3 origin() const { return index_to_world_.offset; }
  Matrix3 direction() const;  ///< columns: unit vectors along the voxel axes
  Vec3 to_world(const Vec3& index) const { return index_to_world_(index); }

  /// Largest |cosine| between two different voxel axes: 0 for an orthogonal grid.
  double shear() const;
  /// Closest orientation code, one letter an axis, nibabel's meaning ("RAS": axis 0 runs toward Right).
  std::string orientation() const;

  /// The grid whose voxel i lies where voxel target_to_source(i) of this one lies.
  Geometry remapped(const Index3& size, const Affine& target_to_source) const;

  bool operator==(const Geometry&) const = default;

 private:
  Index3 size_;
  Affine index_to_world_;
};

/// An axis-aligned reorientation: axis i of the result is axis source_axis[i] of the source, reversed when flipped[i].
struct AxisOrder {
  std::array<int, 3> source_axis{0, 1, 2};
  std::array<bool, 3> flipped{false, false, false};
};

/// For each voxel axis the world axis it follows most closely, each world axis used once (best total cosine, as
/// nibabel's io_orientation), and whether it runs against it.
AxisOrder closest_world_axes(const Geometry& geometry);

/// The axis order that brings `geometry` to the orientation `code` (one letter of RL, AP, SI each; any order).
/// Throws Error(usage) for a code that is not one of the 48.
AxisOrder axis_order_for(const Geometry& geometry, const std::string& code);

/// Largest distance in mm between the corners of two grids; infinity when their sizes differ.
double max_corner_distance_mm(const Geometry& a, const Geometry& b);

/// Same size, and corners closer than `tolerance` voxels (of the smallest spacing).
bool same_grid(const Geometry& a, const Geometry& b, double tolerance = 1e-3);

}  // namespace volpipe
