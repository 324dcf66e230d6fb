#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/cuda_context.h"
#include "stages/separable/any_voxels.cuh"
#include "stages/separable/correlate_planes.h"
#include "stages/separable/correlation.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda {

namespace {

constexpr int kLaneColumns = 4;
constexpr int kColumns = 32 * kLaneColumns;  // target columns of a warp
constexpr int kStep = 2;                     // source rows taken at a time
constexpr int kSlots = 3;                    // such steps on their way or in use
constexpr int kRows = kStep * kSlots, kAhead = kRows - kStep;
constexpr int kMostTaps = 33;
constexpr int kMostOutside = 32;                // places beyond either end of an axis
constexpr std::int64_t kLongestAxis = 1 << 30;  // so that rows and columns are counted in 32 bits
constexpr unsigned kMostBlocks = 1u << 30;

/// One axis on the device; see Correlation.
struct Axis {
  float weights[kMostTaps];  // read through the constant bank
  const std::int32_t* source;
  std::int32_t source_size, target_size, offset;
};

struct Planes {
  Axis x, y;
  std::int32_t tiles_x, chunks_y, rows_per_chunk;
  std::int64_t jobs;
  AnyVoxels input;
  float fill;
};

/// Brings the columns that a warp's target columns need, row by row, into its shared memory.
template <int kTaps>
class RowLoader {
 public:
  static constexpr int kLength = (kColumns + kTaps + 2) / 4 * 4;
  using Row = float[kLength];

  /// Places that stand for the fill value are written here, once for all rows.
  __device__ RowLoader(const Planes& planes, int tile, Row* rows) : input_(planes.input) {
    const Axis& x = planes.x;
    const int column = tile * kColumns, lane = int(threadIdx.x), begin = column + x.offset;
    const int needed = min(kLength, x.target_size + kTaps - 1 - column);
    is_float_ = input_.type == DataType::float32;
    in_quads_ = is_float_ && x.source_size % 4 == 0 && begin % 4 == 0;
    lane_place_ = in_quads_ ? 4 * lane : lane;
    lane_column_ = begin + lane_place_;
    inside_ = 0;
#pragma unroll
    for (int q = 0; q < kSingles; ++q) {
      const int place = lane_place_ + q * (in_quads_ ? kColumns : 32);
      if (place < needed && begin + place >= 0 && begin + place < x.source_size) inside_ |= 1u << q;
    }
    const int outside[2] = {begin + lane < 0 ? lane : needed, x.source_size - begin + lane};
#pragma unroll
    for (int end = 0; end < 2; ++end) {
      const int place = outside[end];
      outside_place_[end] = place;
      outside_column_[end] = -1;
      if (place < 0 || place >= needed) continue;
      outside_column_[end] = x.source[column + place];
      if (outside_column_[end] >= 0) continue;
#pragma unroll
      for (int row = 0; row < kRows; ++row) rows[row][place] = planes.fill;
    }
    any_outside_ = __any_sync(~0u, outside_column_[0] >= 0 || outside_column_[1] >= 0);
  }

  /// Float voxels arrive when the pipeline stage, which this does not commit, does.
  __device__ __forceinline__ void load(std::int64_t row_begin, float* target) const {
    if (is_float_) load_async(static_cast<const float*>(input_.data) + row_begin, target);
    else input_.visit([&](const auto* voxels) { load_converted(voxels + row_begin, target); });
  }

 private:
  static constexpr int kSingles = (kLength + 31) / 32, kQuads = (kLength + kColumns - 1) / kColumns;

  __device__ __forceinline__ void load_async(const float* row, float* target) const {
    const float* source = row + lane_column_;
    float* place = target + lane_place_;
    if (in_quads_) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q)
        if (inside_ >> q & 1) __pipeline_memcpy_async(place + q * kColumns, source + q * kColumns, 16);
    } else {
#pragma unroll
      for (int q = 0; q < kSingles; ++q)
        if (inside_ >> q & 1) __pipeline_memcpy_async(place + q * 32, source + q * 32, 4);
    }
    if (!any_outside_) return;
#pragma unroll
    for (int end = 0; end < 2; ++end)
      if (outside_column_[end] >= 0)
        __pipeline_memcpy_async(target + outside_place_[end], row + outside_column_[end], 4);
  }

  template <class T>
  __device__ __forceinline__ void load_converted(const T* row, float* target) const {
    float loaded[kSingles];
#pragma unroll
    for (int q = 0; q < kSingles; ++q)
      if (inside_ >> q & 1) loaded[q] = float(row[lane_column_ + q * 32]);
#pragma unroll
    for (int q = 0; q < kSingles; ++q)
      if (inside_ >> q & 1) target[lane_place_ + q * 32] = loaded[q];
#pragma unroll
    for (int end = 0; end < 2; ++end)
      if (outside_column_[end] >= 0) target[outside_place_[end]] = float(row[outside_column_[end]]);
  }

  AnyVoxels input_;
  bool is_float_, in_quads_, any_outside_;
  int lane_place_, lane_column_;
  unsigned inside_;  ///< bit q: the lane's q-th quad or voxel lies on the axis
  int outside_place_[2], outside_column_[2];
};

/// Sums along x: the kLaneColumns target columns of a lane.
template <int kTaps>
__device__ __forceinline__ void sum_along_x(const Axis& x, const float* row, float (&sum)[kLaneColumns]) {
  constexpr int kQuads = (kTaps + 6) / 4;
  float voxel[4 * kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q)
    *reinterpret_cast<float4*>(voxel + 4 * q) = *reinterpret_cast<const float4*>(row + 4 * q);
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    sum[c] = x.weights[0] * voxel[c];
#pragma unroll
    for (int t = 1; t < kTaps; ++t) sum[c] = fmaf(x.weights[t], voxel[c + t], sum[c]);
  }
}

/// The sums along y that have begun, the oldest first: each new row ends one and begins one.
template <int kTaps>
struct PendingRows {
  float sum[kTaps - 1][kLaneColumns] = {};

  __device__ __forceinline__ void add(const Axis& y, const float (&voxel)[kLaneColumns], float (&ended)[kLaneColumns]) {
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      ended[c] = fmaf(y.weights[kTaps - 1], voxel[c], sum[0][c]);
#pragma unroll
      for (int i = 1; i < kTaps - 1; ++i) sum[i - 1][c] = fmaf(y.weights[kTaps - 1 - i], voxel[c], sum[i][c]);
      sum[kTaps - 2][c] = y.weights[0] * voxel[c];
    }
  }
};

__device__ __forceinline__ void store_columns(const float (&value)[kLaneColumns], int left, bool whole, float* target) {
  if (whole) {
    *reinterpret_cast<float4*>(target) = {value[0], value[1], value[2], value[3]};
  } else {
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c)
      if (c < left) target[c] = value[c];
  }
}

/// A job: one warp, a block of its own, takes kColumns target columns of one slice down some of its rows. The compiler
/// finds the best number of registers, but for 3 taps, where it would spill.
template <int kTaps>
__global__ void __launch_bounds__(32, kTaps == 3 ? 16 : 0)
    correlate(const __grid_constant__ Planes planes, float* output) {
  using Loader = RowLoader<kTaps>;
  __shared__ alignas(16) typename Loader::Row rows[kRows];
  const Axis &x = planes.x, &y = planes.y;
  const int lane = int(threadIdx.x);

  for (std::int64_t job = blockIdx.x; job < planes.jobs; job += gridDim.x) {
    const int tile = int(job % planes.tiles_x);
    const int begin = int(job / planes.tiles_x % planes.chunks_y) * planes.rows_per_chunk;
    const std::int64_t slice = job / planes.tiles_x / planes.chunks_y;
    const int count = min(planes.rows_per_chunk, y.target_size - begin) + kTaps - 1;
    const int column = tile * kColumns + kLaneColumns * lane, left = x.target_size - column;
    const bool whole = left >= kLaneColumns && x.target_size % kLaneColumns == 0;

    const Loader loader(planes, tile, rows);
    const std::int64_t slice_begin = slice * y.source_size * x.source_size;
    const auto source_row = [&](int k) {
      const int row = begin + y.offset + k;
      return unsigned(row) < unsigned(y.source_size) ? row : y.source[begin + k];
    };
    const auto load = [&](int first, int slot) {
#pragma unroll 1
      for (int k = first; k < min(first + kStep, count); ++k, ++slot)
        if (const int row = source_row(k); row >= 0)
          loader.load(slice_begin + std::int64_t(row) * x.source_size, rows[slot]);
      __pipeline_commit();
    };

    PendingRows<kTaps> pending;
    float* target = output + (slice * y.target_size + begin - (kTaps - 1)) * x.target_size + column;
    for (int first = -kAhead, slot = 0; first < count; first += kStep) {
      __pipeline_wait_prior(kSlots - 2);
      __syncwarp();
      load(first + kAhead, slot);
      slot = slot + kStep == kRows ? 0 : slot + kStep;
      if (first < 0) continue;
#pragma unroll
      for (int s = 0; s < kStep; ++s, target += x.target_size) {
        float value[kLaneColumns], ended[kLaneColumns];
        if (source_row(min(first + s, count - 1)) >= 0) {
          sum_along_x<kTaps>(x, rows[slot + s] + kLaneColumns * lane, value);
        } else {
#pragma unroll
          for (int c = 0; c < kLaneColumns; ++c) value[c] = planes.fill;
        }
        pending.add(y, value, ended);
        if (first + s >= kTaps - 1 && first + s < count) store_columns(ended, left, whole, target);
      }
    }
    __pipeline_wait_prior(0);
    __syncwarp();
  }
}

using Kernel = void (*)(Planes, float*);

/// Kernels of 3, 5, ... kMostTaps taps.
template <std::size_t... I>
constexpr std::array<Kernel, sizeof...(I)> kernels_of(std::index_sequence<I...>) {
  return {correlate<int(2 * I + 3)>...};
}
constexpr auto kKernels = kernels_of(std::make_index_sequence<(kMostTaps - 1) / 2>());

/// Cuts the rows so that the warps that run at once end together, few rows going through x twice.
void cut_rows(Planes& planes, int taps, std::int64_t slices, std::int64_t warps_at_once) {
  double least = 0;
  const std::int64_t rows = planes.y.target_size;
  for (std::int64_t chunks = 1; chunks <= divide_up(rows, 16); ++chunks) {
    const std::int64_t height = divide_up(rows, chunks), jobs = planes.tiles_x * divide_up(rows, height) * slices;
    const double cost = double(divide_up(jobs, warps_at_once)) * double(height + taps + kRows);
    if (chunks > 1 && cost >= least) continue;
    least = cost;
    planes.rows_per_chunk = std::int32_t(height);
    planes.chunks_y = std::int32_t(divide_up(rows, height));
    planes.jobs = jobs;
  }
}

Axis axis_of(const AxisMatrix& matrix, const Correlation& correlation, const std::int32_t* source) {
  Axis axis{};
  std::copy(correlation.weights.begin(), correlation.weights.end(), axis.weights);
  axis.source = source;
  axis.source_size = std::int32_t(matrix.input_size());
  axis.target_size = std::int32_t(matrix.output_size());
  axis.offset = std::int32_t(correlation.offset);
  return axis;
}

bool suits(const AxisMatrix& matrix, const Correlation& correlation) {
  const std::int64_t taps = std::int64_t(correlation.weights.size()), size = matrix.input_size();
  const std::int64_t end = matrix.output_size() + taps - 1 + correlation.offset;
  return taps >= 3 && taps <= kMostTaps && taps % 2 == 1 && std::max(size, matrix.output_size()) <= kLongestAxis &&
         -correlation.offset <= kMostOutside && end - size <= kMostOutside;
}

}  // namespace

bool correlate_planes(DeviceContext& context, const SliceWork& work, const void* input, float* output) {
  if (!work.x || !work.y) return false;
  const auto x = as_correlation(*work.x), y = as_correlation(*work.y);
  if (!x || !y || x->weights.size() != y->weights.size() || !suits(*work.x, *x) || !suits(*work.y, *y)) return false;
  const int taps = int(x->weights.size());

  PackedTables tables;
  const std::size_t at_x = tables.add(x->source), at_y = tables.add(y->source);
  tables.upload(context);
  const Kernel kernel = kKernels[std::size_t(taps - 3) / 2];
  int blocks = 0;
  VOLPIPE_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 0));
  Planes planes{};
  planes.x = axis_of(*work.x, *x, tables.at<std::int32_t>(at_x));
  planes.y = axis_of(*work.y, *y, tables.at<std::int32_t>(at_y));
  planes.tiles_x = std::int32_t(divide_up(planes.x.target_size, kColumns));
  planes.input = {input, work.input_type};
  planes.fill = float(work.fill);
  cut_rows(planes, taps, work.slices, std::int64_t(blocks) * multiprocessor_count(context));
  const auto grid = unsigned(std::min<std::int64_t>(planes.jobs, kMostBlocks));
  kernel<<<grid, 32, 0, stream_of(context)>>>(planes, output);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return true;
}

}  // namespace volpipe::cuda
