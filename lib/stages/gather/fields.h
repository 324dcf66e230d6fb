// Point maps as the executors of gathers take them: what moves a target voxel, in the space of source indices.
#pragma once

#include <vector>

#include "stages/gather/executors.h"
#include "stages/gather/gather.h"

namespace volpipe {

/// The fields of a map with their vectors on the device, for as long as this object lives.
class DeviceFields {
 public:
  /// Throws Error(input) for an image that is no field.
  DeviceFields(DeviceContext& context, const PointMap& map, const ImageLookup& images);

  /// Sets `start` and `fields` of a gather to `target_size` from an image to whose indices `map` leads.
  void describe(const PointMap& map, const Index3& target_size, GatherWork& work) const;

 private:
  struct Vectors {
    const Volume* volume;
    double scale = 1;  ///< of the vectors
  };
  Vectors on_device(DeviceContext& context, const FieldStep& step, const ImageLookup& images);

  std::vector<Volume> owned_;
  std::vector<Vectors> vectors_;  ///< of the map's fields, in order
};

/// The axes of a volume as it lies in memory.
std::array<SourceAxis, 3> whole_volume(const Index3& size);

/// Device bytes DeviceFields needs while it is made and while it lives.
std::size_t scratch_bytes_of_fields(const PointMap& map);

}  // namespace volpipe
