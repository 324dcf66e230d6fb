// Boxes at random places: what the stages that use them take, and where the boxes lie in each image.
#pragma once

#include "spec/parameters.h"
#include "stages/boxes/voxel_box.h"
#include "stages/stage_context.h"

namespace volpipe {

/// The least and the greatest length of a box along an axis.
struct LengthRange {
  double least = 0, greatest = 0;
};

/// One value is both the least and the greatest; two are a range for every axis; three are for x, y and z.
template <>
struct ParameterType<PerAxis<LengthRange>> {
  static constexpr bool per_axis = true;
  static std::string name() { return "number, [least, greatest], or 3 of these (x, y, z)"; }
  static Json schema(const Limits& limits);
  static std::string read(const Json& json, const Limits& limits, PerAxis<LengthRange>& value);
  static Json write(const PerAxis<LengthRange>& value);
};

struct BoxParams {
  std::int64_t holes = 1;
  PerAxis<LengthRange> size{};
  Units units = Units::mm;
};

template <class P>
Parameters<P> box_parameters() {
  Parameters<P> parameters;
  parameters
      .add("holes", static_cast<std::int64_t P::*>(&BoxParams::holes), {.min = 1, .max = 10000},
           "how many boxes; they may overlap")
      .add("size", static_cast<PerAxis<LengthRange> P::*>(&BoxParams::size),
           {.min = 0, .exclusive_min = true, .unit = "mm or voxel", .required = true},
           "length of each box along the axes of the first image: fixed, or drawn for each box from [least, greatest] "
           "in whole voxels; at least a voxel, at most the image")
      .add("units", static_cast<Units P::*>(&BoxParams::units), {}, "what 'size' is given in");
  return parameters;
}

/// The boxes in an image with this grid. They are whole voxels of context.frame, inside it; an image on another grid
/// has those voxels in a box whose centres lie in the box in the world, so a box may have none there. Where images are
/// shuffled, those on one grid are shuffled alike.
std::vector<VoxelBox> random_boxes(const BoxParams& params, const StageContext& context, const Geometry& grid);

/// All voxels of a grid.
VoxelBox whole_box(const Index3& size);

}  // namespace volpipe
