#include "device/cuda_context.h"
#include "stages/boxes/box_work.h"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 256;

struct GridSize {
  std::int64_t nx, ny, nz;

  explicit GridSize(const Index3& size) : nx(size[0]), ny(size[1]), nz(size[2]) {}
  __device__ std::int64_t voxels() const { return nx * ny * nz; }
  __device__ std::int64_t number_of(const VoxelIndex& voxel) const { return (voxel.z * ny + voxel.y) * nx + voxel.x; }
};

/// body(voxel) for the voxels of box blockIdx.y: each warp takes rows of the box.
template <class Body>
__global__ void __launch_bounds__(kThreads) voxels_kernel(const VoxelBox* boxes, Body body) {
  const VoxelBox& box = boxes[blockIdx.y];
  const std::int64_t ny = box.extent(1), rows = ny * box.extent(2);
  const std::int64_t warps = gridDim.x * std::int64_t(kThreads / 32);
  for (std::int64_t row = blockIdx.x * std::int64_t(kThreads / 32) + threadIdx.x / 32; row < rows; row += warps) {
    const std::int64_t y = box.begin[1] + row % ny, z = box.begin[2] + row / ny;
    for (std::int64_t x = box.begin[0] + threadIdx.x % 32; x < box.end[0]; x += 32)
      if (box.contains(x, y, z)) body(VoxelIndex{x, y, z});
  }
}

template <class Body>
void for_voxels(DeviceContext& context, std::span<const VoxelBox> boxes, const VoxelBox* on_device, const Body& body) {
  constexpr std::size_t kMostBoxes = 65535;  // of a grid's second axis
  const cudaStream_t stream = stream_of(context);
  for (std::size_t first = 0; first < boxes.size(); first += kMostBoxes) {
    const auto part = boxes.subspan(first, std::min(kMostBoxes, boxes.size() - first));
    std::int64_t rows = 0;
    for (const VoxelBox& box : part) rows = std::max(rows, box.extent(1) * box.extent(2));
    const auto blocks =
        std::min<std::int64_t>(divide_up(rows, kThreads / 32), std::int64_t(multiprocessor_count(context)) * 16);
    voxels_kernel<<<dim3(unsigned(blocks), unsigned(part.size())), kThreads, 0, stream>>>(on_device + first, body);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  }
}

template <class T>
struct FillVoxel {
  const BoxFill* fills;
  std::int64_t components;
  GridSize size;
  T* values;

  __device__ void operator()(const VoxelIndex& voxel) const {
    std::int64_t value = size.number_of(voxel);
    for (std::int64_t c = 0; c < components; ++c) {
      values[value] = filled<T>(fills[c], value);
      value += size.voxels();
    }
  }
};

template <class T>
struct MoveVoxel {
  const VoxelBox* boxes;
  std::int64_t box_count, components;
  GridSize size;
  const T* from;
  T* to;

  __device__ void operator()(const VoxelIndex& voxel) const {
    std::int64_t source = size.number_of(shuffled_from(boxes, box_count, voxel)), target = size.number_of(voxel);
    for (std::int64_t c = 0; c < components; ++c) {
      to[target] = from[source];
      target += size.voxels();
      source += size.voxels();
    }
  }
};

}  // namespace

void fill_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const std::vector<BoxFill>& fills,
                Volume& output) {
  const DeviceTable<VoxelBox> box_table(context, boxes.data(), boxes.size());
  const DeviceTable<BoxFill> fill_table(context, fills);
  visit(output.dtype(), [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for_voxels(context, boxes, box_table.data(),
               FillVoxel<T>{fill_table.data(), std::int64_t(fills.size()), GridSize(output.geometry().size()),
                            output.data_as<T>()});
  });
}

void shuffle_boxes(DeviceContext& context, std::span<const VoxelBox> boxes, const Volume& input, Volume& output) {
  const DeviceTable<VoxelBox> box_table(context, boxes.data(), boxes.size());
  const auto move = [&]<class Word>(Word) {
    for_voxels(context, boxes, box_table.data(),
               MoveVoxel<Word>{box_table.data(), std::int64_t(boxes.size()), output.info().components,
                               GridSize(output.geometry().size()), input.data_as<Word>(), output.data_as<Word>()});
  };
  switch (size_of(output.dtype())) {
    case 1:
      return move(std::uint8_t{});
    case 2:
      return move(std::uint16_t{});
    case 4:
      return move(std::uint32_t{});
    default:
      return move(std::uint64_t{});
  }
}

}  // namespace volpipe::cuda
