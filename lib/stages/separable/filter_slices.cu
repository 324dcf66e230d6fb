#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "device/cuda_context.h"
#include "device/shared_memory.h"
#include "stages/separable/any_voxels.cuh"
#include "stages/separable/correlate_planes.h"
#include "stages/separable/executors.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 8;     // target rows that one thread sums at a time
constexpr int kColumns = 64;  // target columns of a block
constexpr int kChunk = 64;    // source rows taken through x at a time
constexpr int kMidStride = kColumns + 4;
constexpr int kMostGroups = 32;    // of a tile along y
constexpr int kMostShifted = 132;  // taps of the weights that travel as a kernel parameter
constexpr std::size_t kMultiprocessorShared = 228 * 1024, kLargest = 220 * 1024;
constexpr unsigned kMaxGridY = 65535;

/// kGroup consecutive target rows over a window of source rows: either the axis's shifted weights, moving on by one
/// source row a target row; or a block of `length` x kGroup weights, none 0 within [dense_begin, dense_end).
struct Group {
  std::int32_t offset;  ///< of the window within its tile
  std::int32_t length, dense_begin, dense_end;
  std::int32_t weights;  ///< first float4 of the block, two a source row; kShifted: none
};
constexpr std::int32_t kShifted = -1;

struct Tile {
  std::int32_t begin, length;  ///< source window, begin + k taken modulo the size
};

/// The tables of one axis on the device.
struct AxisTable {
  const Group* groups;
  const float4* weights;
  const float* fills;  ///< null when no row has a share of the fill
  const Tile* tiles;
  std::int32_t source_size, target_size, groups_per_tile;
  std::int32_t shifted_taps;    ///< at least kGroup, when there are any
  float shifted[kMostShifted];  ///< nonzero; read through the constant bank
};

template <bool kChecked, int C>
__device__ __forceinline__ void add_tap(float weight, const float (&voxel)[C], float (&sum)[C]) {
  if (kChecked && weight == 0) return;
#pragma unroll
  for (int c = 0; c < C; ++c) sum[c] = fmaf(weight, voxel[c], sum[c]);
}

template <bool kChecked, int C, class Load>
__device__ __forceinline__ void add_rows(const float4* weights, int begin, int end, const Load& load,
                                         float (&sum)[kGroup][C]) {
#pragma unroll 4
  for (int k = begin; k < end; ++k) {
    float voxel[C];
    load(k, voxel);
    const float4 low = __ldg(weights + 2 * k), high = __ldg(weights + 2 * k + 1);
    add_tap<kChecked>(low.x, voxel, sum[0]);
    add_tap<kChecked>(low.y, voxel, sum[1]);
    add_tap<kChecked>(low.z, voxel, sum[2]);
    add_tap<kChecked>(low.w, voxel, sum[3]);
    add_tap<kChecked>(high.x, voxel, sum[4]);
    add_tap<kChecked>(high.y, voxel, sum[5]);
    add_tap<kChecked>(high.z, voxel, sum[6]);
    add_tap<kChecked>(high.w, voxel, sum[7]);
  }
}

/// `window` holds the last kGroup shifted weights; the ends, where not every row has begun or some have ended, are
/// unrolled.
template <int C, class Load>
__device__ __forceinline__ void add_shifted(const AxisTable& axis, const Load& load, float (&sum)[kGroup][C]) {
  const int taps = axis.shifted_taps;
  float window[kGroup], voxel[C];
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    load(k, voxel);
    window[k] = axis.shifted[k];
#pragma unroll
    for (int r = 0; r <= k; ++r) add_tap<false>(window[k - r], voxel, sum[r]);
  }
  int begin = kGroup;
  for (; begin + kGroup <= taps; begin += kGroup) {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      load(begin + k, voxel);
      window[k] = axis.shifted[begin + k];
#pragma unroll
      for (int r = 0; r < kGroup; ++r) add_tap<false>(window[(k - r + kGroup) % kGroup], voxel, sum[r]);
    }
  }
  for (; begin < taps; ++begin) {
    load(begin, voxel);
#pragma unroll
    for (int k = 1; k < kGroup; ++k) window[k - 1] = window[k];
    window[kGroup - 1] = axis.shifted[begin];
#pragma unroll
    for (int r = 0; r < kGroup; ++r) add_tap<false>(window[kGroup - 1 - r], voxel, sum[r]);
  }
#pragma unroll
  for (int k = 0; k < kGroup - 1; ++k) {
    load(taps + k, voxel);
#pragma unroll
    for (int r = k + 1; r < kGroup; ++r) add_tap<false>(window[kGroup + k - r], voxel, sum[r]);
  }
}

/// sum[r][c] = row r of the group over the columns that load(k, voxel) gives for source row k of the group's window.
template <int C, class Load>
__device__ __forceinline__ void sum_group(const AxisTable& axis, int index, const Group& group, const Load& load,
                                          float (&sum)[kGroup][C]) {
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    const float fill = axis.fills ? __ldg(axis.fills + index * kGroup + r) : 0.f;
#pragma unroll
    for (int c = 0; c < C; ++c) sum[r][c] = fill;
  }
  if (group.weights == kShifted) return add_shifted(axis, load, sum);
  const float4* weights = axis.weights + group.weights;
  add_rows<true>(weights, 0, group.dense_begin, load, sum);
  add_rows<false>(weights, group.dense_begin, group.dense_end, load, sum);
  add_rows<true>(weights, group.dense_end, group.length, load, sum);
}

__device__ __forceinline__ std::int32_t wrapped(std::int32_t i, std::int32_t size) {
  while (i >= size) i -= size;
  return i;
}

/// The groups of one tile along the rows of a shared buffer of kColumns columns, to the target.
__device__ __forceinline__ void filter_rows(const AxisTable& axis, int tile, const Group* groups, const float* buffer,
                                            int stride, std::int64_t target_columns, std::int64_t column,
                                            float* target) {
  const int lane = threadIdx.x % 32;
  const bool first = column + 2 * lane < target_columns, second = column + 2 * lane + 1 < target_columns;
  const bool paired = second && target_columns % 2 == 0;
  for (int g = threadIdx.x / 32; g < axis.groups_per_tile; g += kWarps) {
    const int index = tile * axis.groups_per_tile + g;
    const int row = index * kGroup;
    if (row >= axis.target_size) break;
    const Group group = groups[g];
    const float* window = buffer + group.offset * stride + 2 * lane;
    float sum[kGroup][2];
    sum_group(
        axis, index, group,
        [&](int k, float(&voxel)[2]) {
          const float2 pair = *reinterpret_cast<const float2*>(window + k * stride);
          voxel[0] = pair.x;
          voxel[1] = pair.y;
        },
        sum);
    float* out = target + row * target_columns + column + 2 * lane;
#pragma unroll
    for (int r = 0; r < kGroup; ++r, out += target_columns) {
      if (row + r >= axis.target_size) break;
      if (paired) {
        *reinterpret_cast<float2*>(out) = {sum[r][0], sum[r][1]};
      } else {
        if (first) out[0] = sum[r][0];
        if (second) out[1] = sum[r][1];
      }
    }
  }
}

__device__ __forceinline__ void load_window_converted(const AnyVoxels& input, std::int64_t first, const AxisTable& y,
                                                      const Tile& tile, std::int64_t columns, int width,
                                                      float* buffer) {
  constexpr int kUnroll = 8, kStep = kThreads / kColumns;
  const int column = threadIdx.x % kColumns;
  for (int row = threadIdx.x / kColumns; row < tile.length; row += kUnroll * kStep) {
    float loaded[kUnroll];
    input.visit([&](const auto* voxels) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int k = row + u * kStep;
        loaded[u] = k < tile.length && column < width
                        ? float(voxels[first + wrapped(tile.begin + k, y.source_size) * columns + column])
                        : 0.f;
      }
    });
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (const int k = row + u * kStep; k < tile.length) buffer[k * kColumns + column] = loaded[u];
  }
}

__device__ __forceinline__ void load_window_async(const float* source, const AxisTable& y, const Tile& tile,
                                                  std::int64_t columns, int width, float* buffer) {
  constexpr int kQuads = kColumns / 4, kStep = kThreads / kQuads;
  const int column = threadIdx.x % kQuads * 4;
  if (column < width)
    for (int k = threadIdx.x / kQuads; k < tile.length; k += kStep)
      __pipeline_memcpy_async(buffer + k * kColumns + column,
                              source + wrapped(tile.begin + k, y.source_size) * columns + column, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

/// Rows y of [slices][rows][columns]; each block a window of rows of 64 columns.
__global__ void __launch_bounds__(kThreads)
    filter_y(const __grid_constant__ AxisTable y, unsigned tiles_y, std::int64_t columns, std::int64_t slices,
             AnyVoxels input, float* output) {
  extern __shared__ float4 shared[];
  float* buffer = reinterpret_cast<float*>(shared);
  const int tile_index = int(blockIdx.x % tiles_y);
  const std::int64_t column = std::int64_t(blockIdx.x / tiles_y) * kColumns;
  const int width = int(min(std::int64_t(kColumns), columns - column));
  const Tile tile = y.tiles[tile_index];
  for (std::int64_t slice = blockIdx.y; slice < slices; slice += gridDim.y) {
    const std::int64_t first = slice * y.source_size * columns + column;
    if (input.type == DataType::float32 && columns % 4 == 0)
      load_window_async(static_cast<const float*>(input.data) + first, y, tile, columns, width, buffer);
    else load_window_converted(input, first, y, tile, columns, width, buffer);
    __syncthreads();
    filter_rows(y, tile_index, y.groups + tile_index * y.groups_per_tile, buffer, kColumns, columns, column,
                output + slice * y.target_size * columns);
    __syncthreads();
  }
}

/// Source rows [first, first + kChunk) of the tile's window, its columns, to chunk[row * stride + column].
__device__ __forceinline__ void load_chunk(const AnyVoxels& input, std::int64_t slice_begin, const AxisTable& x,
                                           const AxisTable& y, const Tile& tile_x, const Tile& tile_y, int first,
                                           float* chunk, int stride) {
  constexpr int kRows = kChunk / kWarps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int used = (min(kChunk, tile_y.length - first) - warp + kWarps - 1) / kWarps;
  std::int64_t rows[kRows];
#pragma unroll
  for (int q = 0; q < kRows; ++q) {
    std::int32_t row = tile_y.begin + first + warp + q * kWarps;
    if (row >= y.source_size) row = q < used ? wrapped(row, y.source_size) : 0;
    rows[q] = slice_begin + std::int64_t(row) * x.source_size;
  }
  for (int c = lane; c < tile_x.length; c += 32) {
    const std::int32_t column = wrapped(tile_x.begin + c, x.source_size);
    float* target = chunk + warp * stride + c;
    if (input.type == DataType::float32) {
      const float* source = static_cast<const float*>(input.data) + column;
#pragma unroll
      for (int q = 0; q < kRows; ++q)
        if (q < used) __pipeline_memcpy_async(target + q * kWarps * stride, source + rows[q], 4);
    } else {
      float loaded[kRows];
      input.visit([&](const auto* voxels) {
#pragma unroll
        for (int q = 0; q < kRows; ++q)
          if (q < used) loaded[q] = float(voxels[rows[q] + column]);
      });
#pragma unroll
      for (int q = 0; q < kRows; ++q)
        if (q < used) target[q * kWarps * stride] = loaded[q];
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

/// Lanes run along the rows, so that a warp shares its weights; C rows a lane.
template <int C>
__device__ __forceinline__ void filter_chunk(const AxisTable& x, int tile, const Group& group, const float* chunk,
                                             int stride, int rows, float* mid) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int index = tile * x.groups_per_tile + warp;
  if (index * kGroup >= x.target_size) return;
  const float* window = chunk + lane * stride + group.offset;
  float sum[kGroup][C];
  sum_group(
      x, index, group,
      [&](int k, float(&voxel)[C]) {
#pragma unroll
        for (int c = 0; c < C; ++c) voxel[c] = window[k + 32 * c * stride];
      },
      sum);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    if (lane + 32 * c >= rows) continue;
    float4* target = reinterpret_cast<float4*>(mid + (lane + 32 * c) * kMidStride + warp * kGroup);
    target[0] = {sum[0][c], sum[1][c], sum[2][c], sum[3][c]};
    target[1] = {sum[4][c], sum[5][c], sum[6][c], sum[7][c]};
  }
}

/// x then y of one slice: a window of rows goes through x chunk by chunk into shared memory, then through y.
__global__ void __launch_bounds__(kThreads, 4)
    filter_xy(const __grid_constant__ AxisTable x, const __grid_constant__ AxisTable y, unsigned tiles_x,
              int chunk_stride, int mid_rows, std::int64_t slices, AnyVoxels input, float* output) {
  extern __shared__ float4 shared[];
  __shared__ Group groups_x[kWarps], groups_y[kMostGroups];
  float* mid = reinterpret_cast<float*>(shared);
  float* chunk = mid + mid_rows * kMidStride;
  const int tile_x = int(blockIdx.x % tiles_x), tile_y = int(blockIdx.x / tiles_x), warp = threadIdx.x / 32;
  const Tile window_x = x.tiles[tile_x], window_y = y.tiles[tile_y];
  if (const int g = threadIdx.x, index = tile_x * kWarps + g; g < kWarps && index * kGroup < x.target_size)
    groups_x[g] = x.groups[index];
  if (const int g = threadIdx.x, index = tile_y * y.groups_per_tile + g;
      g < y.groups_per_tile && index * kGroup < y.target_size)
    groups_y[g] = y.groups[index];

  for (std::int64_t slice = blockIdx.y; slice < slices; slice += gridDim.y) {
    const std::int64_t slice_begin = slice * y.source_size * x.source_size;
    for (int row = 0; row < window_y.length; row += kChunk) {
      load_chunk(input, slice_begin, x, y, window_x, window_y, row, chunk, chunk_stride);
      __syncthreads();
      const int rows = window_y.length - row;
      float* target = mid + row * kMidStride;
      if (rows > 32) filter_chunk<2>(x, tile_x, groups_x[warp], chunk, chunk_stride, rows, target);
      else filter_chunk<1>(x, tile_x, groups_x[warp], chunk, chunk_stride, rows, target);
      __syncthreads();
    }
    filter_rows(y, tile_y, groups_y, mid, kMidStride, x.target_size, std::int64_t(tile_x) * kColumns,
                output + slice * y.target_size * x.target_size);
    __syncthreads();
  }
}

/// Any rows, any precision: one thread a target voxel, along the middle axis of [outer][n][inner].
template <class A>
struct AnyAxis {
  const std::int32_t* start;
  const A* weights;
  const A* fills;
  std::int32_t taps, source_size, target_size;
  std::int64_t inner;
};

template <class A>
struct FilterAnyAxis {
  AnyAxis<A> axis;
  AnyVoxels input;
  A* output;

  __device__ void operator()(std::int64_t voxel) const {
    const std::int64_t i = voxel % axis.inner, line = voxel / axis.inner;
    const std::int64_t j = line % axis.target_size, outer = line / axis.target_size;
    const std::int64_t source = outer * axis.source_size * axis.inner + i;
    const A* weights = axis.weights + j * axis.taps;
    A sum = axis.fills[j];
    input.visit([&](const auto* voxels) {
      std::int32_t index = axis.start[j];
      for (int t = 0; t < axis.taps; ++t, ++index) {
        if (index >= axis.source_size) index -= axis.source_size;
        if (weights[t] != 0) sum = fma(weights[t], A(voxels[source + index * axis.inner]), sum);
      }
    });
    output[voxel] = sum;
  }
};

template <class A>
std::vector<A> fills_of(const AxisMatrix& matrix, double fill) {
  std::vector<A> fills;
  for (const double share : matrix.fill_weights()) fills.push_back(share == 0 ? A(0) : A(share) * A(fill));
  return fills;
}

template <class A>
void filter_any_axis(DeviceContext& context, const AxisMatrix& matrix, double fill, std::int64_t outer,
                     std::int64_t inner, const AnyVoxels& input, A* output) {
  const DeviceTable<std::int32_t> start(context,
                                        std::vector<std::int32_t>(matrix.start().begin(), matrix.start().end()));
  const DeviceTable<A> weights(context, std::vector<A>(matrix.weights().begin(), matrix.weights().end()));
  const DeviceTable<A> fills(context, fills_of<A>(matrix, fill));
  const AnyAxis<A> axis{start.data(),
                        weights.data(),
                        fills.data(),
                        matrix.taps(),
                        std::int32_t(matrix.input_size()),
                        std::int32_t(matrix.output_size()),
                        inner};
  for_each(context, outer * matrix.output_size() * inner, FilterAnyAxis<A>{axis, input, output});
}

template <class A>
void filter_any(DeviceContext& context, const SliceWork& work, const AnyVoxels& input, A* output) {
  if (!work.x && !work.y)
    return filter_any_axis(context, AxisMatrix::identity(1), 0, work.slices * work.rows * work.columns, 1, input,
                           output);
  if (!work.y) return filter_any_axis(context, *work.x, work.fill, work.slices * work.rows, 1, input, output);
  if (!work.x) return filter_any_axis(context, *work.y, work.fill, work.slices, work.columns, input, output);
  Buffer between = context.allocate(std::size_t(work.slices * work.rows * work.output_columns()) * sizeof(A));
  A* rows = static_cast<A*>(between.data());
  filter_any_axis(context, *work.x, work.fill, work.slices * work.rows, 1, input, rows);
  filter_any_axis(context, *work.y, work.fill, work.slices, work.output_columns(), {rows, work.output_type}, output);
}

std::int64_t nearest_turn(std::int64_t start, std::int64_t reference, std::int64_t period) {
  while (reference - start > period / 2) start += period;
  while (start - reference > period / 2) start -= period;
  return start;
}

/// The host side of an AxisTable.
class TableBuilder {
 public:
  TableBuilder(const AxisMatrix& matrix, double fill) : matrix_(matrix) {
    const std::int64_t count = divide_up(matrix.output_size(), kGroup);
    for (std::int64_t g = 0; g < count; ++g) add_group(g * kGroup);
    if (matrix.uses_fill()) {
      fills_ = fills_of<float>(matrix, fill);
      fills_.resize(std::size_t(count) * kGroup);
    }
  }

  /// Cuts the rows into tiles of `groups_per_tile`, and gives the longest source window of one.
  std::int64_t cut(int groups_per_tile) {
    groups_per_tile_ = groups_per_tile;
    tiles_.clear();
    longest_ = 1;
    for (std::size_t g = 0; g < groups_.size(); g += std::size_t(groups_per_tile)) {
      const std::size_t end = std::min(groups_.size(), g + std::size_t(groups_per_tile));
      longest_ = std::max(longest_, add_tile(g, end));
    }
    return longest_;
  }
  std::int64_t longest_window() const { return longest_; }

  std::size_t tile_count() const { return tiles_.size(); }
  std::int64_t target_size() const { return matrix_.output_size(); }

  void pack(PackedTables& tables) {
    at_groups_ = tables.add(groups_);
    at_weights_ = tables.add(weights_);
    at_fills_ = tables.add(fills_);
    at_tiles_ = tables.add(tiles_);
  }

  /// Once they are uploaded.
  AxisTable table(const PackedTables& tables) const {
    AxisTable table{};
    table.groups = tables.at<Group>(at_groups_);
    table.weights = tables.at<float4>(at_weights_);
    table.fills = fills_.empty() ? nullptr : tables.at<float>(at_fills_);
    table.tiles = tables.at<Tile>(at_tiles_);
    table.source_size = std::int32_t(matrix_.input_size());
    table.target_size = std::int32_t(matrix_.output_size());
    table.groups_per_tile = groups_per_tile_;
    table.shifted_taps = std::int32_t(shifted_.size());
    std::copy(shifted_.begin(), shifted_.end(), table.shifted);
    return table;
  }

 private:
  struct Row {
    std::int64_t begin, end;
    const double* weights;
  };

  std::optional<Row> trimmed(std::int64_t j) const {
    const double* weights = matrix_.weights().data() + j * matrix_.taps();
    int first = 0, last = matrix_.taps();
    while (last > 0 && float(weights[last - 1]) == 0) --last;
    while (first < last && float(weights[first]) == 0) ++first;
    if (first == last) return std::nullopt;
    const std::int64_t start = matrix_.start()[std::size_t(j)];
    return Row{start + first, start + last, weights + first};
  }

  void add_group(std::int64_t first_row) {
    std::optional<Row> rows[kGroup];
    std::int64_t begin = 0, end = 0;
    for (int r = 0; r < kGroup && first_row + r < matrix_.output_size(); ++r) {
      rows[r] = trimmed(first_row + r);
      if (!rows[r]) continue;
      if (begin == end) {
        begin = rows[r]->begin;
        end = rows[r]->end;
      } else if (matrix_.periodic()) {
        const std::int64_t length = rows[r]->end - rows[r]->begin;
        rows[r]->begin = nearest_turn(rows[r]->begin, begin, matrix_.input_size());
        rows[r]->end = rows[r]->begin + length;
      }
      begin = std::min(begin, rows[r]->begin);
      end = std::max(end, rows[r]->end);
    }
    begins_.push_back(begin);
    if (shifts(rows)) return groups_.push_back(shifted_group());
    std::vector<float> block(std::size_t(end - begin) * kGroup, 0.f);
    for (int r = 0; r < kGroup; ++r)
      if (rows[r])
        for (std::int64_t k = rows[r]->begin; k < rows[r]->end; ++k)
          block[std::size_t(k - begin) * kGroup + std::size_t(r)] = float(rows[r]->weights[k - rows[r]->begin]);
    groups_.push_back(block_group(block));
  }

  /// Whether the rows are one row moving on; the first such row sets the axis's shifted weights.
  bool shifts(const std::optional<Row> (&rows)[kGroup]) {
    if (!rows[0]) return false;
    const std::int64_t taps = rows[0]->end - rows[0]->begin;
    if (taps < kGroup || taps > kMostShifted) return false;
    const std::vector<float> first(rows[0]->weights, rows[0]->weights + taps);
    if (std::count(first.begin(), first.end(), 0.f) > 0) return false;
    for (int r = 1; r < kGroup; ++r) {
      if (!rows[r] || rows[r]->begin != rows[0]->begin + r || rows[r]->end != rows[0]->end + r) return false;
      if (std::vector<float>(rows[r]->weights, rows[r]->weights + taps) != first) return false;
    }
    if (shifted_.empty()) shifted_ = first;
    return shifted_ == first;
  }

  Group shifted_group() const {
    Group group{};
    group.length = std::int32_t(shifted_.size()) + kGroup - 1;
    group.weights = kShifted;
    return group;
  }

  Group block_group(const std::vector<float>& block) {
    const auto dense = [&](std::int32_t k) {
      return std::none_of(block.begin() + k * kGroup, block.begin() + (k + 1) * kGroup,
                          [](float weight) { return weight == 0; });
    };
    Group group{};
    group.length = std::int32_t(block.size() / kGroup);
    while (group.dense_begin < group.length && !dense(group.dense_begin)) ++group.dense_begin;
    group.dense_end = group.dense_begin;
    while (group.dense_end < group.length && dense(group.dense_end)) ++group.dense_end;
    group.weights = stored(block);
    return group;
  }

  /// First float4 of the weights, which equal groups share.
  std::int32_t stored(const std::vector<float>& weights) {
    const auto [known, inserted] = stored_.try_emplace(weights, std::int32_t(weights_.size()));
    if (inserted) {
      weights_.resize(weights_.size() + (weights.size() + 3) / 4);
      if (!weights.empty())
        std::memcpy(weights_.data() + known->second, weights.data(), weights.size() * sizeof(float));
    }
    return known->second;
  }

  std::int64_t add_tile(std::size_t first, std::size_t last) {
    std::vector<std::int64_t> begins;
    std::int64_t begin = 0, end = 0;
    for (std::size_t g = first; g < last; ++g) {
      std::int64_t at = begins_[g];
      if (begin != end && matrix_.periodic()) at = nearest_turn(at, begin, matrix_.input_size());
      begins.push_back(at);
      if (groups_[g].length == 0) continue;
      const std::int64_t stop = at + groups_[g].length;
      begin = begin == end ? at : std::min(begin, at);
      end = std::max(end, stop);
    }
    for (std::size_t g = first; g < last; ++g)
      groups_[g].offset = groups_[g].length > 0 ? std::int32_t(begins[g - first] - begin) : 0;
    const std::int64_t size = matrix_.input_size();
    tiles_.push_back({std::int32_t((begin % size + size) % size), std::int32_t(end - begin)});
    return end - begin;
  }

  const AxisMatrix& matrix_;
  std::vector<Group> groups_;
  std::vector<std::int64_t> begins_;
  std::vector<float4> weights_;
  std::map<std::vector<float>, std::int32_t> stored_;
  std::vector<float> shifted_;
  std::vector<float> fills_;
  std::vector<Tile> tiles_;
  int groups_per_tile_ = 1;
  std::int64_t longest_ = 1;
  std::size_t at_groups_ = 0, at_weights_ = 0, at_fills_ = 0, at_tiles_ = 0;
};

/// What the same work costs with fewer blocks to a multiprocessor, measured on an H200.
double occupancy_cost(std::size_t shared_bytes) {
  const std::size_t blocks = std::min<std::size_t>(kMultiprocessorShared / (shared_bytes + 2048), 4);
  return blocks == 4 ? 1.0 : blocks == 3 ? 1.1 : blocks == 2 ? 1.32 : 2.0;
}

/// Cuts an axis into equal tiles of the height that costs least in all, by work(longest window, rows) of a tile and the
/// shared_bytes(longest window) it needs; false when not even the lowest fits.
template <class Bytes, class Work>
bool cut_to_fit(TableBuilder& axis, int most_groups, const Bytes& shared_bytes, const Work& work) {
  const std::int64_t groups = divide_up(axis.target_size(), kGroup);
  double least = 0;
  int best = 0, last = 0;
  for (int most = int(std::min<std::int64_t>(groups, most_groups)); most >= 1; --most) {
    const int tall = int(divide_up(groups, divide_up(groups, most)));
    if (tall == last) continue;
    last = tall;
    const std::int64_t window = axis.cut(tall);
    const std::size_t bytes = shared_bytes(window);
    if (bytes > kLargest) continue;
    const double cost =
        double(axis.tile_count()) * double(work(window, std::int64_t(tall) * kGroup)) * occupancy_cost(bytes);
    if (best == 0 || cost < least) {
      best = tall;
      least = cost;
    }
  }
  if (best > 0) axis.cut(best);
  return best > 0;
}

std::int64_t odd(std::int64_t width) { return width | 1; }

bool filter_columns_in_tiles(DeviceContext& context, const SliceWork& work, const AxisMatrix& y, const AnyVoxels& input,
                             float* output) {
  TableBuilder builder(y, work.fill);
  const auto bytes_of = [](std::int64_t window) { return std::size_t(window) * kColumns * sizeof(float); };
  if (!cut_to_fit(builder, 64, bytes_of, [](std::int64_t window, std::int64_t rows) { return window + rows; }))
    return false;
  const std::size_t shared = bytes_of(builder.longest_window());
  PackedTables tables;
  builder.pack(tables);
  tables.upload(context);

  const unsigned tiles = unsigned(builder.tile_count());
  const dim3 grid(unsigned(divide_up(work.columns, kColumns) * tiles),
                  unsigned(std::min<std::int64_t>(work.slices, kMaxGridY)));
  allow_most_shared_memory(context, reinterpret_cast<const void*>(filter_y));
  filter_y<<<grid, kThreads, shared, stream_of(context)>>>(builder.table(tables), tiles, work.columns, work.slices,
                                                           input, output);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return true;
}

bool filter_planes_in_tiles(DeviceContext& context, const SliceWork& work, const AxisMatrix& y, const AnyVoxels& input,
                            float* output) {
  TableBuilder x_builder(*work.x, work.fill), y_builder(y, work.fill);
  const std::int64_t stride = odd(x_builder.cut(kColumns / kGroup));
  const std::size_t chunk_bytes = std::size_t(kChunk * stride) * sizeof(float);
  const auto bytes_of = [&](std::int64_t window) {
    return std::size_t(window * kMidStride) * sizeof(float) + chunk_bytes;
  };
  const auto work_of = [](std::int64_t window, std::int64_t rows) { return divide_up(window, 32) * 32 + rows; };
  if (!cut_to_fit(y_builder, kMostGroups, bytes_of, work_of)) return false;
  const std::int64_t mid_rows = y_builder.longest_window();
  const std::size_t shared = bytes_of(mid_rows);
  PackedTables tables;
  x_builder.pack(tables);
  y_builder.pack(tables);
  tables.upload(context);

  const unsigned tiles_x = unsigned(x_builder.tile_count());
  const dim3 grid(tiles_x * unsigned(y_builder.tile_count()), unsigned(std::min<std::int64_t>(work.slices, kMaxGridY)));
  allow_most_shared_memory(context, reinterpret_cast<const void*>(filter_xy));
  filter_xy<<<grid, kThreads, shared, stream_of(context)>>>(x_builder.table(tables), y_builder.table(tables), tiles_x,
                                                            int(stride), int(mid_rows), work.slices, input, output);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return true;
}

bool filter_in_tiles(DeviceContext& context, const SliceWork& work, const AnyVoxels& input, float* output) {
  const AxisMatrix unchanged = work.y ? AxisMatrix() : AxisMatrix::identity(work.rows);
  const AxisMatrix& y = work.y ? *work.y : unchanged;
  return work.x ? filter_planes_in_tiles(context, work, y, input, output)
                : filter_columns_in_tiles(context, work, y, input, output);
}

}  // namespace

void filter_slices(DeviceContext& context, const SliceWork& work, const void* input, void* output) {
  const AnyVoxels voxels{input, work.input_type};
  if (work.output_type == DataType::float64) return filter_any(context, work, voxels, static_cast<double*>(output));
  float* target = static_cast<float*>(output);
  if (correlate_planes(context, work, input, target) || filter_in_tiles(context, work, voxels, target)) return;
  filter_any(context, work, voxels, target);
}

}  // namespace volpipe::cuda
