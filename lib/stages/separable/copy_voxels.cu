#include <algorithm>
#include <cstring>

#include "device/cuda_context.h"
#include "stages/separable/executors.h"
#include "stages/separable/packed_tables.h"

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
constexpr int kRowsPerThread = V * sizeof(T) >= 16 ? 2 : 8;

/// The first axis is x on both sides. Each thread: V voxels along x of some rows.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    copy_rows(Planes planes, const int2* pieces, unsigned pieces_per_row, const T* input, T* output, T fill) {
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
    T* target = output + component * planes.target_voxels + third * planes.third.target_stride +
                first_row * planes.second.target_stride + piece_index * V;
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
__global__ void __launch_bounds__(kThreads)
    copy_transposed(Planes planes, unsigned tiles_x, const T* input, T* output, T fill) {
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

template <class T>
class Copy {
 public:
  Copy(DeviceContext& context, const CopyWork& work, const void* input, void* output)
      : context_(context), work_(work), input_(static_cast<const T*>(input)), output_(static_cast<T*>(output)) {
    std::memcpy(&fill_, &work.fill_bits, sizeof fill_);
    for (std::size_t axis = 0; axis < 3; ++axis) indices_[axis] = tables_.add(work.index[axis]);
  }

  void run() {
    constexpr int kVoxels = 16 / sizeof(T), kHalf = kVoxels > 2 ? kVoxels / 2 : 1;
    if (work_.source_axis[0] != 0) transpose();
    else if (work_.target_size[0] % kVoxels == 0) copy_rows_by<kVoxels>();
    else if (work_.target_size[0] % kHalf == 0) copy_rows_by<kHalf>();
    else copy_rows_by<1>();
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  }

 private:
  /// Once the tables are uploaded.
  Planes planes_of(int second) const {
    const Index3 &n = work_.source_size, &m = work_.target_size;
    const Index3 source_stride{1, n[0], n[0] * n[1]}, target_stride{1, m[0], m[0] * m[1]};
    const auto axis = [&](int a) {
      const auto i = std::size_t(a);
      return CopyAxis{tables_.at<std::int32_t>(indices_[i]), std::int32_t(m[i]),
                      source_stride[std::size_t(work_.source_axis[i])], target_stride[i]};
    };
    const int third = 3 - second;
    return {axis(0),
            axis(second),
            axis(third),
            n[0] * n[1] * n[2],
            m[0] * m[1] * m[2],
            m[std::size_t(third)] * work_.components};
  }

  static dim3 grid_of(std::int64_t blocks, const Planes& planes) {
    return {unsigned(blocks), unsigned(std::min<std::int64_t>(planes.count, kMaxGridY))};
  }

  template <int V>
  void copy_rows_by() {
    std::vector<int2> pieces;
    for (std::size_t x = 0; x < work_.index[0].size(); x += V) pieces.push_back(piece_at(work_.index[0], x, V));
    const std::size_t at_pieces = tables_.add(pieces);
    tables_.upload(context_);
    const Planes planes = planes_of(1);
    const std::int64_t threads = std::int64_t(pieces.size()) * divide_up(planes.second.size, kRowsPerThread<T, V>);
    copy_rows<T, V><<<grid_of(divide_up(threads, kThreads), planes), kThreads, 0, stream_of(context_)>>>(
        planes, tables_.at<int2>(at_pieces), unsigned(pieces.size()), input_, output_, fill_);
  }

  void transpose() {
    tables_.upload(context_);
    const Planes planes = planes_of(work_.source_axis[1] == 0 ? 1 : 2);
    const std::int64_t tiles_x = divide_up(planes.first.size, kTile);
    copy_transposed<T>
        <<<grid_of(tiles_x * divide_up(planes.second.size, kTile), planes), kThreads, 0, stream_of(context_)>>>(
            planes, unsigned(tiles_x), input_, output_, fill_);
  }

  DeviceContext& context_;
  const CopyWork& work_;
  const T* input_;
  T* output_;
  T fill_{};
  PackedTables tables_;
  std::array<std::size_t, 3> indices_{};
};

}  // namespace

void copy_voxels(DeviceContext& context, const CopyWork& work, const void* input, void* output) {
  switch (work.element_bytes) {
    case 1:
      return Copy<std::uint8_t>(context, work, input, output).run();
    case 2:
      return Copy<std::uint16_t>(context, work, input, output).run();
    case 4:
      return Copy<std::uint32_t>(context, work, input, output).run();
    default:
      return Copy<std::uint64_t>(context, work, input, output).run();
  }
}

}  // namespace volpipe::cuda
