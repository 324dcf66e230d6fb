#include <algorithm>
#include <cstring>

#include "device/cuda_context.h"
#include "stages/separable/executors.h"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;
constexpr unsigned kMaxGridY = 65535;

/// How 16 bytes of a target row are found: one aligned piece of the source, the same reversed, or voxel by voxel.
enum class Piece : int { voxels, forward, backward };

/// One target axis: the source index of each of its voxels, and what a step means on either side.
struct CopyAxis {
  const std::int32_t* index;
  std::int32_t size;
  std::int64_t source_stride, target_stride;
};

/// A map seen as planes (first, second) stacked along the third axis and the components.
struct Planes {
  CopyAxis first, second, third;
  std::int64_t source_voxels, target_voxels;
  std::int64_t count;
};

template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
  T voxel[V];

  static __device__ __forceinline__ Pack load(const T* from) {
    Pack pack;
    if constexpr (sizeof(Pack) == 16) {
      const uint4 raw = *reinterpret_cast<const uint4*>(from);
      memcpy(&pack, &raw, sizeof raw);
    } else if constexpr (sizeof(Pack) == 8) {
      const uint2 raw = *reinterpret_cast<const uint2*>(from);
      memcpy(&pack, &raw, sizeof raw);
    } else {
      pack = *reinterpret_cast<const Pack*>(from);
    }
    return pack;
  }
  __device__ __forceinline__ void store(T* to) const {
    if constexpr (sizeof(Pack) == 16) {
      uint4 raw;
      memcpy(&raw, this, sizeof raw);
      *reinterpret_cast<uint4*>(to) = raw;
    } else if constexpr (sizeof(Pack) == 8) {
      uint2 raw;
      memcpy(&raw, this, sizeof raw);
      *reinterpret_cast<uint2*>(to) = raw;
    } else {
      *reinterpret_cast<Pack*>(to) = *this;
    }
  }
};

template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_piece(const T* row, int2 piece, const std::int32_t* index, T fill) {
  Pack<T, V> result;
  const auto kind = static_cast<Piece>(piece.y);
  const T* begin = kind == Piece::backward ? row + piece.x - (V - 1) : row + piece.x;
  const bool aligned = reinterpret_cast<std::uintptr_t>(begin) % sizeof(result) == 0;
  if (kind == Piece::forward && aligned) {
    result = Pack<T, V>::load(begin);
  } else if (kind == Piece::backward && aligned) {
    const Pack<T, V> reversed = Pack<T, V>::load(begin);
#pragma unroll
    for (int v = 0; v < V; ++v) result.voxel[v] = reversed.voxel[V - 1 - v];
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const std::int32_t i = index[v];
      result.voxel[v] = i < 0 ? fill : row[i];
    }
  }
  return result;
}

/// Loads that a thread has on their way at once.
template <class T, int V>
constexpr int kRowsPerThread = V * sizeof(T) >= 16 ? 4 : 8;

/// The first axis is x on both sides. Each thread: V voxels along x of some rows.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) copy_rows(Planes planes, const int2* pieces, unsigned pieces_per_row, const T* input, T* output, T fill) {
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  const unsigned piece_index = thread % pieces_per_row;
  constexpr int kRows = kRowsPerThread<T, V>;
  const int first_row = int(thread / pieces_per_row) * kRows;
  if (first_row >= planes.second.size) return;
  const int2 piece = pieces[piece_index];
  const std::int32_t* index = planes.first.index + piece_index * V;
  for (std::int64_t plane = blockIdx.y; plane < planes.count; plane += gridDim.y) {
    const std::int64_t component = plane / planes.third.size, third = plane % planes.third.size;
    const std::int32_t z = planes.third.index[third];
    const T* source = input + component * planes.source_voxels + z * planes.third.source_stride;
    T* target = output + component * planes.target_voxels + third * planes.third.target_stride + first_row * planes.second.target_stride + piece_index * V;
    Pack<T, V> loaded[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int32_t y = first_row + r < planes.second.size ? planes.second.index[first_row + r] : -1;
      if (y >= 0 && z >= 0) {
        loaded[r] = load_piece<T, V>(source + y * planes.second.source_stride, piece, index, fill);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) loaded[r].voxel[v] = fill;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (first_row + r < planes.second.size) loaded[r].store(target + r * planes.second.target_stride);
  }
}

/// The first axis is the target's x, the second the one that runs along the source's x.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_transposed(Planes planes, unsigned tiles_x, const T* input, T* output, T fill) {
  __shared__ T tile[kTile][kTile + 1];
  constexpr int kStep = kThreads / kTile;
  const int x0 = int(blockIdx.x % tiles_x) * kTile, a0 = int(blockIdx.x / tiles_x) * kTile;
  const int column = threadIdx.x % kTile, first = threadIdx.x / kTile;
  const std::int32_t source_a = a0 + column < planes.second.size ? planes.second.index[a0 + column] : -1;
  for (std::int64_t plane = blockIdx.y; plane < planes.count; plane += gridDim.y) {
    const std::int64_t component = plane / planes.third.size, third = plane % planes.third.size;
    const std::int32_t o = planes.third.index[third];
    const T* source = input + component * planes.source_voxels + o * planes.third.source_stride + source_a;
    const bool filled = source_a < 0 || o < 0;
    T loaded[kTile / kStep];
#pragma unroll
    for (int q = 0; q < kTile / kStep; ++q) {
      const int x = x0 + first + q * kStep;
      const std::int32_t i = x < planes.first.size && !filled ? planes.first.index[x] : -1;
      loaded[q] = i < 0 ? fill : source[i * planes.first.source_stride];
    }
#pragma unroll
    for (int q = 0; q < kTile / kStep; ++q) tile[first + q * kStep][column] = loaded[q];
    __syncthreads();
    T* target = output + component * planes.target_voxels + third * planes.third.target_stride + x0 + column;
    if (x0 + column < planes.first.size) {
#pragma unroll
      for (int a = first; a < kTile; a += kStep)
        if (a0 + a < planes.second.size) target[(a0 + a) * planes.second.target_stride] = tile[column][a];
    }
    __syncthreads();
  }
}

int2 piece_at(const std::vector<std::int32_t>& index, std::size_t begin, int count) {
  const auto steps_by = [&](std::int32_t step) {
    for (int v = 1; v < count; ++v)
      if (index[begin + std::size_t(v)] != index[begin] + v * step) return false;
    return true;
  };
  if (index[begin] >= 0 && steps_by(1)) return {index[begin], int(Piece::forward)};
  if (index[begin] >= count - 1 && steps_by(-1)) return {index[begin], int(Piece::backward)};
  return {0, int(Piece::voxels)};
}

unsigned plane_blocks(const Planes& planes) { return unsigned(std::min<std::int64_t>(planes.count, kMaxGridY)); }

template <class T, int V>
void launch_rows(DeviceContext& context, const CopyWork& work, const Planes& planes, const T* input, T* output, T fill) {
  std::vector<int2> pieces;
  for (std::size_t x = 0; x < work.index[0].size(); x += V) pieces.push_back(piece_at(work.index[0], x, V));
  const DeviceTable<int2> table(context, pieces);
  const std::int64_t threads = std::int64_t(pieces.size()) * divide_up(planes.second.size, kRowsPerThread<T, V>);
  const dim3 grid(unsigned(divide_up(threads, kThreads)), plane_blocks(planes));
  copy_rows<T, V><<<grid, kThreads, 0, stream_of(context)>>>(planes, table.data(), unsigned(pieces.size()), input, output, fill);
}

template <class T>
void copy(DeviceContext& context, const CopyWork& work, const void* input, void* output) {
  T fill;
  std::memcpy(&fill, &work.fill_bits, sizeof fill);
  std::vector<std::int32_t> all;
  for (const auto& index : work.index) all.insert(all.end(), index.begin(), index.end());
  const DeviceTable<std::int32_t> table(context, all);

  const Index3 &n = work.source_size, &m = work.target_size;
  const Index3 source_stride{1, n[0], n[0] * n[1]}, target_stride{1, m[0], m[0] * m[1]};
  CopyAxis axes[3];
  const std::int32_t* next = table.data();
  for (std::size_t axis = 0; axis < 3; ++axis) {
    axes[axis] = {next, std::int32_t(m[axis]), source_stride[std::size_t(work.source_axis[axis])], target_stride[axis]};
    next += m[axis];
  }
  const bool along_x = work.source_axis[0] == 0;
  const int second = along_x || work.source_axis[1] == 0 ? 1 : 2;
  const Planes planes{axes[0], axes[second], axes[3 - second], n[0] * n[1] * n[2], m[0] * m[1] * m[2], m[std::size_t(3 - second)] * work.components};

  const T* source = static_cast<const T*>(input);
  T* target = static_cast<T*>(output);
  constexpr int kVoxels = 16 / sizeof(T);
  if (along_x && m[0] % kVoxels == 0) {
    launch_rows<T, kVoxels>(context, work, planes, source, target, fill);
  } else if (along_x && kVoxels > 2 && m[0] % (kVoxels / 2) == 0) {
    launch_rows<T, (kVoxels > 2 ? kVoxels / 2 : 1)>(context, work, planes, source, target, fill);
  } else if (along_x) {
    launch_rows<T, 1>(context, work, planes, source, target, fill);
  } else {
    const std::int64_t tiles_x = divide_up(planes.first.size, kTile);
    const dim3 grid(unsigned(tiles_x * divide_up(planes.second.size, kTile)), plane_blocks(planes));
    copy_transposed<T><<<grid, kThreads, 0, stream_of(context)>>>(planes, unsigned(tiles_x), source, target, fill);
  }
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace

void copy_voxels(DeviceContext& context, const CopyWork& work, const void* input, void* output) {
  switch (work.element_bytes) {
    case 1: return copy<std::uint8_t>(context, work, input, output);
    case 2: return copy<std::uint16_t>(context, work, input, output);
    case 4: return copy<std::uint32_t>(context, work, input, output);
    default: return copy<std::uint64_t>(context, work, input, output);
  }
}

}  // namespace volpipe::cuda
