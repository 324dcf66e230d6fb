#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/cuda_context.h"
#include "stages/separable/any_voxels.h"
#include "stages/separable/correlate_planes.h"
#include "stages/separable/correlation.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda {

namespace {

constexpr int kWarps = 2;
constexpr int kLaneColumns = 4;
constexpr int kColumns = 32 * kLaneColumns;  // target columns of a warp
constexpr int kStages = 4;                   // source rows on their way or in use
constexpr int kMostTaps = 33;
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

  /// Columns that hold the fill value are written here, once for all rows.
  __device__ RowLoader(const Planes& planes, int tile, Row* stages) : input_(planes.input) {
    const Axis& x = planes.x;
    const std::int64_t column = std::int64_t(tile) * kColumns;
    first_ = column + x.offset;
    is_float_ = input_.type == DataType::float32;
    in_quads_ =
        is_float_ && x.source_size % 4 == 0 && first_ % 4 == 0 && first_ >= 0 && first_ + kLength <= x.source_size;
    if (in_quads_) return;
    const std::int64_t places = std::int64_t(x.target_size) + kTaps - 1;
#pragma unroll
    for (int q = 0; q < kSingles; ++q) {
      const int c = lane() + 32 * q;
      if (c >= kLength) continue;
      columns_[q] = column + c < places ? x.source[column + c] : -1;
      if (columns_[q] >= 0) continue;
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) stages[stage][c] = planes.fill;
    }
  }

  /// Float voxels arrive when the pipeline stage, which this does not commit, does.
  __device__ __forceinline__ void load(std::int64_t row_begin, Row& target) const {
    if (in_quads_) {
      const float* source = static_cast<const float*>(input_.data) + row_begin + first_;
#pragma unroll
      for (int c = 4 * lane(); c < kLength; c += kColumns) __pipeline_memcpy_async(target + c, source + c, 16);
    } else if (is_float_) {
      const float* source = static_cast<const float*>(input_.data) + row_begin;
      each_single([&](int q, int c) { __pipeline_memcpy_async(target + c, source + columns_[q], 4); });
    } else {
      input_.visit([&](const auto* voxels) {
        float loaded[kSingles];
        each_single([&](int q, int) { loaded[q] = float(voxels[row_begin + columns_[q]]); });
        each_single([&](int q, int c) { target[c] = loaded[q]; });
      });
    }
  }

 private:
  static constexpr int kSingles = (kLength + 31) / 32;

  static __device__ __forceinline__ int lane() { return int(threadIdx.x % 32); }

  template <class Body>
  __device__ __forceinline__ void each_single(const Body& body) const {
#pragma unroll
    for (int q = 0; q < kSingles; ++q)
      if (const int c = lane() + 32 * q; c < kLength && columns_[q] >= 0) body(q, c);
  }

  AnyVoxels input_;
  std::int64_t first_;
  bool is_float_, in_quads_;
  std::int32_t columns_[kSingles];
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

__device__ __forceinline__ void store_columns(const float (&value)[kLaneColumns], std::int64_t left, bool aligned,
                                              float* target) {
  if (aligned && left >= kLaneColumns) {
    *reinterpret_cast<float4*>(target) = {value[0], value[1], value[2], value[3]};
  } else {
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c)
      if (c < left) target[c] = value[c];
  }
}

/// A job: one warp takes kColumns target columns of one slice down some of its rows. Nothing waits for another warp.
template <int kTaps>
__global__ void __launch_bounds__(32 * kWarps) correlate(const __grid_constant__ Planes planes, float* output) {
  using Loader = RowLoader<kTaps>;
  __shared__ alignas(16) typename Loader::Row shared[kWarps][kStages];
  const Axis &x = planes.x, &y = planes.y;
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  auto* stages = shared[warp];
  const bool aligned = x.target_size % kLaneColumns == 0;

  for (std::int64_t job = std::int64_t(blockIdx.x) * kWarps + warp; job < planes.jobs;
       job += std::int64_t(gridDim.x) * kWarps) {
    const int tile = int(job % planes.tiles_x), chunk = int(job / planes.tiles_x % planes.chunks_y);
    const std::int64_t slice = job / planes.tiles_x / planes.chunks_y;
    const std::int64_t slice_begin = slice * y.source_size * x.source_size;
    const std::int64_t begin = std::int64_t(chunk) * planes.rows_per_chunk;
    const std::int64_t target_end = min(begin + planes.rows_per_chunk, std::int64_t(y.target_size));
    const std::int64_t end = target_end + kTaps - 1;
    const std::int64_t column = std::int64_t(tile) * kColumns + kLaneColumns * lane;

    const Loader loader(planes, tile, stages);
    const auto source_row = [&](std::int64_t v) -> std::int64_t {
      const std::int64_t row = v + y.offset;
      return row >= 0 && row < y.source_size ? row : y.source[v];
    };
    const auto load = [&](std::int64_t v) {
      if (v < end)
        if (const std::int64_t row = source_row(v); row >= 0)
          loader.load(slice_begin + row * x.source_size, stages[(v - begin) % kStages]);
      __pipeline_commit();
    };
    for (int stage = 0; stage < kStages - 1; ++stage) load(begin + stage);

    PendingRows<kTaps> pending;
    float* target = output + (slice * y.target_size + begin) * x.target_size + column;
    for (std::int64_t v = begin; v < end; ++v) {
      __pipeline_wait_prior(kStages - 2);
      __syncwarp();
      load(v + kStages - 1);
      float value[kLaneColumns], ended[kLaneColumns];
      if (source_row(v) >= 0) {
        sum_along_x<kTaps>(x, stages[(v - begin) % kStages] + kLaneColumns * lane, value);
      } else {
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) value[c] = planes.fill;
      }
      pending.add(y, value, ended);
      if (v - begin < kTaps - 1) continue;
      store_columns(ended, x.target_size - column, aligned, target);
      target += x.target_size;
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
    const double cost = double(divide_up(jobs, warps_at_once)) * double(height + taps + kStages);
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

}  // namespace

bool correlate_planes(DeviceContext& context, const SliceWork& work, const void* input, float* output) {
  if (!work.x || !work.y) return false;
  const auto x = as_correlation(*work.x), y = as_correlation(*work.y);
  if (!x || !y || x->weights.size() != y->weights.size()) return false;
  const int taps = int(x->weights.size());
  if (taps < 3 || taps > kMostTaps || taps % 2 == 0) return false;

  PackedTables tables;
  const std::size_t at_x = tables.add(x->source), at_y = tables.add(y->source);
  tables.upload(context);
  const Kernel kernel = kKernels[std::size_t(taps - 3) / 2];
  int blocks = 0;
  VOLPIPE_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32 * kWarps, 0));
  Planes planes{};
  planes.x = axis_of(*work.x, *x, tables.at<std::int32_t>(at_x));
  planes.y = axis_of(*work.y, *y, tables.at<std::int32_t>(at_y));
  planes.tiles_x = std::int32_t(divide_up(planes.x.target_size, kColumns));
  planes.input = {input, work.input_type};
  planes.fill = float(work.fill);
  cut_rows(planes, taps, work.slices, std::int64_t(blocks) * kWarps * multiprocessor_count(context));
  const auto grid = unsigned(std::min<std::int64_t>(divide_up(planes.jobs, kWarps), kMostBlocks));
  kernel<<<grid, 32 * kWarps, 0, stream_of(context)>>>(planes, output);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return true;
}

}  // namespace volpipe::cuda
