#include "stages/boxes/box_work.h"

namespace volpipe {

void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const std::vector<BoxFill>& fills,
                Volume& output) {
  if (!boxes.empty()) run_on(context, cpu::fill_boxes, cuda::fill_boxes, boxes, fills, output);
}

void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input, Volume& output) {
  if (!boxes.empty()) run_on(context, cpu::shuffle_boxes, cuda::shuffle_boxes, boxes, input, output);
}

namespace cpu {

namespace {

/// body(voxel) for the voxels of a box, in parallel.
template <class Body>
void for_voxels(DeviceContext& context, const VoxelBox& box, const Body& body) {
  constexpr std::int64_t kVoxels = 16384;
  const std::int64_t nx = box.extent(0), ny = box.extent(1), rows = ny * box.extent(2);
  context.parallel(rows, std::max<std::int64_t>(1, kVoxels / nx), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t y = box.begin[1] + row % ny, z = box.begin[2] + row / ny;
      for (std::int64_t x = box.begin[0]; x < box.end[0]; ++x)
        if (box.contains(x, y, z)) body(VoxelIndex{x, y, z});
    }
  });
}

/// Number of a voxel of the first component.
std::int64_t number_of(const Index3& size, const VoxelIndex& voxel) {
  return (voxel.z * size[1] + voxel.y) * size[0] + voxel.x;
}

}  // namespace

void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const std::vector<BoxFill>& fills,
                Volume& output) {
  const Index3& size = output.geometry().size();
  const std::int64_t voxels = output.geometry().voxel_count();
  visit(output.dtype(), [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    T* values = output.data_as<T>();
    for (const VoxelBox& box : boxes)
      for_voxels(context, box, [&](const VoxelIndex& voxel) {
        std::int64_t value = number_of(size, voxel);
        for (const BoxFill& fill : fills) {
          values[value] = filled<T>(fill, value);
          value += voxels;
        }
      });
  });
}

void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input, Volume& output) {
  const Index3& size = output.geometry().size();
  const std::int64_t values = output.info().value_count(), voxels = output.geometry().voxel_count();
  visit(output.dtype(), [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    const T* from = input.data_as<T>();
    T* to = output.data_as<T>();
    for (const VoxelBox& box : boxes)
      for_voxels(context, box, [&](const VoxelIndex& voxel) {
        const std::int64_t source = number_of(size, shuffled_from(boxes.data(), std::int64_t(boxes.size()), voxel));
        const std::int64_t target = number_of(size, voxel);
        for (std::int64_t component = 0; component < values; component += voxels)
          to[component + target] = from[component + source];
      });
  });
}

}  // namespace cpu

}  // namespace volpipe
