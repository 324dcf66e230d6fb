// Displacements of stationary velocity fields.
#pragma once

#include <map>
#include <string>

#include "stages/gather/gather.h"

namespace volpipe {

/// A point map whose velocity fields have become displacement fields, by scaling and squaring (Arsigny et al. 2006):
/// the velocity over 2^n, its largest component at most a quarter of a voxel, composed with itself n times, linear
/// between voxels. The displacements live as long as this object.
class Exponentials {
 public:
  Exponentials(DeviceContext& context, const PointMap& points, const ImageLookup& images);

  const PointMap& points() const { return points_; }
  /// Finds the displacements, and the item's own images.
  ImageLookup images() const;

 private:
  PointMap points_;
  ImageLookup given_;
  std::map<std::string, Volume> displacements_;
};

/// Device bytes that the velocity fields of a map take while they become displacements.
std::size_t exponential_scratch_bytes(const PointMap& points);

}  // namespace volpipe
