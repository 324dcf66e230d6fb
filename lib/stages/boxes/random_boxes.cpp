#include "stages/boxes/random_boxes.h"

#include <algorithm>
#include <cmath>

#include "stages/geometry/grid_maps.h"

namespace volpipe {

namespace {

std::string read_range(const Json& json, const Limits& limits, LengthRange& range) {
  if (json.is_number()) {
    const std::string expected = ParameterType<double>::read(json, limits, range.least);
    range.greatest = range.least;
    return expected;
  }
  std::array<double, 2> pair{};
  if (!ParameterType<std::array<double, 2>>::read(json, limits, pair).empty() || pair[0] > pair[1])
    return "numbers above 0, ascending in [least, greatest]";
  range = {pair[0], pair[1]};
  return "";
}

Json written(const LengthRange& range) {
  if (range.least == range.greatest) return ParameterType<double>::write(range.least);
  return {ParameterType<double>::write(range.least), ParameterType<double>::write(range.greatest)};
}

/// A whole number of [least, greatest].
std::int64_t draw(DrawStream& draws, std::int64_t least, std::int64_t greatest) {
  return std::min(greatest, least + std::int64_t(std::floor(double(greatest - least + 1) * draws.uniform())));
}

struct FrameBox {
  Index3 begin, end;
  std::uint64_t key;
};

std::int64_t length_in_voxels(double length, double voxel, std::int64_t size) {
  return std::int64_t(std::min(round_half_up(length / voxel), double(size)));
}

FrameBox draw_box(const BoxParams& params, const Geometry& frame, DrawStream& draws) {
  FrameBox box;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t n = frame.size()[axis];
    const double voxel = params.units == Units::mm ? frame.spacing()[axis] : 1;
    const LengthRange& range = params.size.value[axis];
    const std::int64_t length =
        draw(draws, length_in_voxels(range.least, voxel, n), length_in_voxels(range.greatest, voxel, n));
    box.begin[axis] = draw(draws, 0, n - length);
    box.end[axis] = box.begin[axis] + length;
  }
  box.key = draws.bits();
  return box;
}

VoxelBox on_frame(const FrameBox& drawn) {
  VoxelBox box;
  std::copy(drawn.begin.begin(), drawn.begin.end(), box.begin);
  std::copy(drawn.end.begin(), drawn.end.end(), box.end);
  return box;
}

/// Empty where no voxel of `grid` can lie in the box.
std::optional<VoxelBox> on_grid(const FrameBox& drawn, const Geometry& frame, const Geometry& grid) {
  constexpr double kForgiven = 1e-6;  // voxels, for the rounding of the maps; contains() decides
  const Affine to_frame = frame.world_to_index() * grid.index_to_world();
  VoxelBox box;
  box.whole = false;
  Box3 edges;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    edges.low[axis] = box.low[axis] = double(drawn.begin[axis]) - 0.5;
    edges.high[axis] = box.high[axis] = double(drawn.end[axis]) - 0.5;
    std::copy_n(to_frame.linear[int(axis)].begin(), 3, box.matrix[axis]);
    box.matrix[axis][3] = to_frame.offset[axis];
  }
  const Box3 around = box_around(grid.world_to_index() * frame.index_to_world(), edges);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double n = double(grid.size()[axis]);
    box.begin[axis] = std::int64_t(std::clamp(std::ceil(around.low[axis] - kForgiven), 0.0, n));
    box.end[axis] = std::int64_t(std::clamp(std::floor(around.high[axis] + kForgiven) + 1, 0.0, n));
    if (box.begin[axis] >= box.end[axis]) return std::nullopt;
  }
  return box;
}

}  // namespace

Json ParameterType<PerAxis<LengthRange>>::schema(const Limits& limits) {
  const Json number = ParameterType<double>::schema(limits);
  const Json pair = ParameterType<std::array<double, 2>>::schema(limits);
  const Json one = {{"anyOf", {number, pair}}};
  return {{"anyOf", {number, pair, {{"type", "array"}, {"items", one}, {"minItems", 3}, {"maxItems", 3}}}}};
}

std::string ParameterType<PerAxis<LengthRange>>::read(const Json& json, const Limits& limits,
                                                      PerAxis<LengthRange>& value) {
  const bool per_axis = json.is_array() && json.size() == 3;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (!read_range(per_axis ? json[axis] : json, limits, value.value[axis]).empty())
      return name() + "; above 0, ascending";
  return "";
}

Json ParameterType<PerAxis<LengthRange>>::write(const PerAxis<LengthRange>& value) {
  return {written(value.value[0]), written(value.value[1]), written(value.value[2])};
}

std::vector<VoxelBox> random_boxes(const BoxParams& params, const StageContext& context, const Geometry& grid) {
  const Geometry& frame = context.frame.geometry;
  const bool on_frames_grid = same_grid(grid, frame);
  DrawStream draws = context.draws();
  std::vector<VoxelBox> boxes;
  for (std::int64_t i = 0; i < params.holes; ++i) {
    const FrameBox drawn = draw_box(params, frame, draws);
    std::optional<VoxelBox> box = on_frames_grid ? on_frame(drawn) : on_grid(drawn, frame, grid);
    if (!box) continue;
    box->order = KeyedPermutation::of(drawn.key, std::uint64_t(box->extent(0) * box->extent(1) * box->extent(2)));
    boxes.push_back(*box);
  }
  return boxes;
}

VoxelBox whole_box(const Index3& size) { return on_frame({{0, 0, 0}, size, 0}); }

}  // namespace volpipe
