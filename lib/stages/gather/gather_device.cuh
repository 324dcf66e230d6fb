// What the kernels of gathers share: their parameters, the fast way from a coordinate to voxels, point maps with
// fields, and the one kernel that deals target voxels to threads. For .cu files compiled with -fmad=false.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "device/cuda_context.h"
#include "stages/gather/executors.h"
#include "stages/gather/gather_arithmetic.h"
#include "stages/gather/point_map.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda::gathering {

using volpipe::gather::AxisView;
using volpipe::gather::Map;
using volpipe::gather::Point;

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// ---- parameters

struct FieldParams {
  FieldWork::Use use;
  bool bspline, from_target;
  DataType type;
  const void* vectors;
  std::int64_t size[3];
  Map to_grid;
  double linear[3][3];
  Point offset;

  template <class V>
  __device__ __forceinline__ volpipe::gather::FieldView<V> view() const {
    return {static_cast<const V*>(vectors), {size[0], size[1], size[2]}, size[0] * size[1] * size[2]};
  }
};

/// All but the input, the output and what depends on the type of the voxels.
struct Params {
  Map start;
  AxisView axes[3];
  double last[3];            ///< as far as coordinates are inside
  std::uint32_t between[3];  ///< voxels of an axis but for the first and the last
  Interpolation interpolation;
  Boundary boundary;
  std::int32_t size[3], window_begin[3], window_end[3];
  const FieldParams* fields;  ///< on the device
  int field_count;
  bool is_row_spline;  ///< one B-spline field on a grid parallel to the target's: row_field
  FieldParams row_field;
  int row_columns;  ///< RowSpline::columns
};

/// What voxels that the source does not have are.
template <class Value>
struct Fills {
  Value outside, view, window;
};

/// Where plain strides reach all taps: from the tap `first` + rel of each axis on, rel in [0, count). Offsets are
/// bytes; 32 bits wrap around, so that strides may be negative. Where taps were asked for side by side, the first axis
/// steps from voxel to voxel, and `origin` is that of the tap that lies in front.
template <class Offset>
struct Inner {
  Offset origin, stride[3];
  std::int32_t first[3];
  std::uint32_t count[3];  ///< all 0 when one is
  bool backward;           ///< the taps along the first axis
};

// ---- from coordinates to voxels

/// c rounded down to a multiple of 2^-32, when |c| < kWholeLimit; else `whole` lies outside [0, kWholeLimit).
struct FixedPoint {
  std::int32_t whole;
  std::uint32_t fraction;
};
inline constexpr std::int32_t kWholeLimit = 1 << 19;
inline constexpr double kFixedPoint = 3 << 19;  // has the exponent that puts 1 at the lowest bit of the high word
inline constexpr std::uint32_t kFixedPointHigh = 0x41380000u;

__device__ __forceinline__ FixedPoint fixed_point(double c) {
  const double sum = __dadd_rd(c, kFixedPoint);
  return {std::int32_t(std::uint32_t(__double2hiint(sum)) - kFixedPointHigh), std::uint32_t(__double2loint(sum))};
}

/// The fraction cut to 23 bits.
__device__ __forceinline__ float to_float(std::uint32_t fraction) {
  return __uint_as_float(__funnelshift_r(fraction, 127u, 9)) - 1.f;
}

/// floor(c) of what fixed_point(c) is.
__device__ __forceinline__ double floor_of(FixedPoint point) {
  return __hiloint2double(std::int32_t(std::uint32_t(point.whole) + kFixedPointHigh), 0) - kFixedPoint;
}

/// volpipe::gather::split where the result is inner.
__device__ __forceinline__ double split(double c, std::int32_t& lower) {
  const FixedPoint point = fixed_point(c);
  const double t = c - floor_of(point);
  const bool next = t > 1 - volpipe::gather::kSnap;
  lower = point.whole + next;
  return next || t < volpipe::gather::kSnap ? 0 : t;
}

template <class Offset>
struct Found {
  Offset offset;
  bool inner;
};

template <class Offset>
__device__ __forceinline__ Found<Offset> find(const Inner<Offset>& inner, const std::int32_t (&first)[3]) {
  std::uint32_t rel[3];
  bool all = true;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    rel[a] = std::uint32_t(first[a] - inner.first[a]);
    all &= rel[a] < inner.count[a];
  }
  const Offset offset = inner.origin + rel[0] * inner.stride[0] + rel[1] * inner.stride[1] + rel[2] * inner.stride[2];
  return {offset, all};
}

template <class T, class Offset>
__device__ __forceinline__ const T* at(const T* base, Offset bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(base) + bytes);
}

// ---- the general way, as a host loop does it

inline constexpr std::int64_t kOutside = -1, kViewFill = -2;

__device__ inline std::int64_t element_of(const AxisView& axis, std::int64_t tap, Boundary boundary) {
  const std::int64_t v = volpipe::fold_tap(tap, axis.size, boundary);
  if (v < 0) return kOutside;
  const std::int64_t element = axis.element(v);
  return element < 0 ? kViewFill : element;
}

/// What look_up finds for the constant boundary.
__device__ __forceinline__ bool is_outside(const Params& params, const Point& y) {
  bool inside = true;
#pragma unroll
  for (int a = 0; a < 3; ++a) inside &= y.at[a] >= -volpipe::gather::kSnap && y.at[a] <= params.last[a];
  return !inside;
}

static __device__ __noinline__ bool look_up(const Params& params, Point& y) {
  for (int a = 0; a < 3; ++a)
    if (!volpipe::gather::look_up(y.at[a], params.axes[a].size, params.boundary)) return false;
  return true;
}

/// The voxel at three elements, of which some may be none.
template <class A, class Input>
__device__ inline A voxel_or_fill(const Input& input, const Fills<A>& fills, std::int64_t x, std::int64_t y,
                                  std::int64_t z) {
  if (x == kOutside || y == kOutside || z == kOutside) return fills.outside;
  if (x == kViewFill || y == kViewFill || z == kViewFill) return fills.view;
  return A(input[x + y + z]);
}

template <class A>
__device__ __forceinline__ bool is_finite(A value) {
  if constexpr (std::is_same_v<A, float>) return fabsf(value) <= 3.402823466e+38f;
  else if constexpr (std::is_same_v<A, double>) return fabs(value) <= 1.7976931348623157e308;
  else return true;
}

// ---- point maps with fields

enum class Fields { none, row_spline };

template <class V>
__device__ inline Point through_field(const FieldParams& field, const Point& target, const Point& y) {
  const auto view = field.template view<V>();
  const auto vector_at = [&](const Point& p, V(&v)[3]) {
    const Point grid = volpipe::gather::apply(field.to_grid, field.from_target ? target : p);
    if (field.bspline) volpipe::gather::spline_vector(view, grid, v);
    else volpipe::gather::linear_vector(view, grid, v);
  };
  V v[3];
  if (field.use != FieldWork::Use::undo) {
    vector_at(y, v);
    return volpipe::gather::moved(field.use == FieldWork::Use::add ? y : field.offset, field.linear, v);
  }
  Point q = y;
  for (int iteration = 0; iteration < FieldStep::kUndoIterations; ++iteration) {
    vector_at(q, v);
    for (V& component : v) component = -component;
    const Point next = volpipe::gather::moved(y, field.linear, v);
    const bool settled = next.at[0] == q.at[0] && next.at[1] == q.at[1] && next.at[2] == q.at[2];
    q = next;
    if (settled) break;
  }
  return q;
}

static __device__ __noinline__ Point through_fields(const FieldParams* fields, int count, Point target, Point y) {
  for (int f = 0; f < count; ++f)
    y = fields[f].type == DataType::float64 ? through_field<double>(fields[f], target, y)
                                            : through_field<float>(fields[f], target, y);
  return y;
}

/// A cubic B-spline field on a grid parallel to the target's: what the rows of a tile share is computed once, in shared
/// memory: the weights along x, and for each row the coefficients taken through y and z.
template <class Tile>
class RowSpline {
 public:
  static constexpr int kRows = Tile::kY * Tile::kZ, kMostColumns = 40;

  /// Host: most columns of coefficients that a tile's rows need.
  static int columns(const FieldParams& field) {
    const double cells = std::fabs(field.to_grid.m[0][0]) * (Tile::kX - 1);
    return cells < kMostColumns ? int(cells) + 6 : kMostColumns + 6;
  }
  static bool fits(const FieldParams& field) { return columns(field) <= kMostColumns; }
  static std::size_t shared_bytes(int columns) {
    return sizeof(float4) * Tile::kX + sizeof(int) * Tile::kX + sizeof(RowTaps) * kRows +
           sizeof(float) * 3 * std::size_t(columns) * kRows;
  }

  __device__ RowSpline(const Params& params, char* shared, int x0, int y0, int z0)
      : field_(params.row_field),
        weights_x_(reinterpret_cast<float4*>(shared)),
        first_x_(reinterpret_cast<int*>(weights_x_ + Tile::kX)),
        rows_(reinterpret_cast<RowTaps*>(first_x_ + Tile::kX)),
        columns_(reinterpret_cast<float*>(rows_ + kRows)),
        column_count_(params.row_columns) {
    const auto view = field_.template view<float>();
    const Point x_row = volpipe::gather::row_of(field_.to_grid, 0, 0);
    const auto grid_x = [&](int x) { return std::fma(field_.to_grid.m[0][0], double(x0 + x), x_row.at[0]); };
    const double low = fmin(grid_x(0), grid_x(Tile::kX - 1));
    const int low_column = int(fmin(fmax(floor(low) - 1, 0.0), double(view.size[0] - 4)));
    for (int x = threadIdx.x; x < Tile::kX; x += kThreads) {
      std::int64_t first;
      float w[4];
      const bool valid = volpipe::gather::spline_taps(grid_x(x), view.size[0], first, w);
      first_x_[x] = valid ? int(first) - low_column : -1;
      if (valid) weights_x_[x] = make_float4(w[0], w[1], w[2], w[3]);
    }
    for (int r = threadIdx.x; r < kRows; r += kThreads) {
      const Point row = volpipe::gather::row_of(field_.to_grid, double(y0 + r % Tile::kY), double(z0 + r / Tile::kY));
      RowTaps taps;
      std::int64_t first_y = -1, first_z = -1;
      const bool valid = volpipe::gather::spline_taps(row.at[1], view.size[1], first_y, taps.y) &&
                         volpipe::gather::spline_taps(row.at[2], view.size[2], first_z, taps.z);
      taps.first_y = valid ? int(first_y) : -1;
      taps.first_z = int(first_z);
      rows_[r] = taps;
    }
    __syncthreads();
    for (int task = threadIdx.x; task < kRows * 3 * column_count_; task += kThreads) {
      const int column = task % column_count_, rest = task / column_count_;
      const RowTaps& taps = rows_[rest / 3];
      if (taps.first_y < 0 || low_column + column >= view.size[0]) continue;
      columns_[task] = volpipe::gather::spline_column(view, rest % 3, low_column + column, taps.first_y, taps.first_z,
                                                      taps.y, taps.z);
    }
    __syncthreads();
  }

  /// Voxel x of the tile's row.
  __device__ __forceinline__ Point move(const Point& y, int x, int row) const {
    const int first = first_x_[x];
    float v[3] = {0, 0, 0};
    if (first >= 0 && rows_[row].first_y >= 0) {
      const float4 w = weights_x_[x];
#pragma unroll
      for (int component = 0; component < 3; ++component) {
        const float* column = columns_ + (row * 3 + component) * column_count_ + first;
        v[component] = std::fma(w.w, column[3], std::fma(w.z, column[2], std::fma(w.y, column[1], w.x * column[0])));
      }
    }
    return volpipe::gather::moved(y, field_.linear, v);
  }

 private:
  struct RowTaps {
    float y[4], z[4];
    int first_y, first_z;  ///< first_y is -1 where the vectors are 0
  };
  const FieldParams& field_;
  float4* weights_x_;
  int* first_x_;
  RowTaps* rows_;
  float* columns_;
  int column_count_;
};

// ---- the kernels

/// A warp's lanes lie on LX x LY x LZ target voxels, the warps of a block on WY x WZ such boxes; a thread takes
/// PerThread voxels along x, Together of them at a time. Blocks: of a multiprocessor.
template <int LX, int LY, int LZ, int WY, int WZ, int PerThread, int Together, int Blocks>
struct TileOf {
  static_assert(LX * LY * LZ == 32 && WY * WZ == kWarps && PerThread % Together == 0);
  static constexpr int kLanesX = LX, kLanesY = LY, kLanesZ = LZ, kWarpsY = WY;
  static constexpr int kPerThread = PerThread, kTogether = Together, kBlocks = Blocks;
  static constexpr int kX = LX * PerThread, kY = LY * WY, kZ = LZ * WZ;
};

/// How a target is cut into boxes of powers of two.
struct Tiling {
  int log_x, log_y, log_z;
  std::uint32_t count_x, count_y, count;
};

/// Tiles that have voxels for the general way.
struct TileList {
  std::uint32_t* count;
  std::uint32_t* tiles;
};

/// A sampler finds the place of a point, loads from it what is inner, and has the general way for the rest:
///   Value; Place{inner, ...}; place(y); fast(params, place); slow(params, y); fills

/// Writes the voxels that are inner or known to be outside; tiles with others go to the list.
template <class Sampler, class Tile, Fields kFields>
__global__ void __launch_bounds__(kThreads, Tile::kBlocks)
    gather_inner(const __grid_constant__ Params params, const __grid_constant__ Sampler sampler,
                 typename Sampler::Value* output, const TileList rest) {
  using Value = typename Sampler::Value;
  extern __shared__ char shared[];
  const int x0 = int(blockIdx.x) * Tile::kX, y0 = int(blockIdx.y) * Tile::kY, z0 = int(blockIdx.z) * Tile::kZ;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tx = lane % Tile::kLanesX;
  const int ty = lane / Tile::kLanesX % Tile::kLanesY + warp % Tile::kWarpsY * Tile::kLanesY;
  const int tz = lane / (Tile::kLanesX * Tile::kLanesY) + warp / Tile::kWarpsY * Tile::kLanesZ;
  const int i = x0 + tx, j = y0 + ty, k = z0 + tz;
  struct None {
    __device__ None(const Params&, char*, int, int, int) {}
  };
  using Rows = std::conditional_t<kFields == Fields::row_spline, RowSpline<Tile>, None>;
  const Rows rows(params, shared, x0, y0, z0);

  bool missed = false;
  if (j < params.size[1] && k < params.size[2]) {
    const Point row = volpipe::gather::row_of(params.start, double(j), double(k));
    const bool row_in_window = j >= params.window_begin[1] && j < params.window_end[1] && k >= params.window_begin[2] &&
                               k < params.window_end[2];
    const int window_begin = params.window_begin[0], window_end = row_in_window ? params.window_end[0] : 0;
    Value* const target = output + (std::int64_t(k) * params.size[1] + j) * params.size[0] + i;
    const auto point = [&](int n) {
      Point y = volpipe::gather::apply_to_row(params.start, row, double(i + n * Tile::kLanesX));
      if constexpr (kFields == Fields::row_spline) y = rows.move(y, tx + n * Tile::kLanesX, ty + tz * Tile::kY);
      return y;
    };
    constexpr int K = Tile::kTogether;
#pragma unroll 1
    for (int step = 0; step < Tile::kPerThread; step += K) {
      typename Sampler::Place place[K];
      Value value[K];
      bool outside[K];
#pragma unroll
      for (int n = 0; n < K; ++n) {
        const Point y = point(step + n);
        place[n] = sampler.place(params, y);
        outside[n] = !place[n].inner && params.boundary == Boundary::constant && is_outside(params, y);
      }
#pragma unroll
      for (int n = 0; n < K; ++n)
        if (place[n].inner) value[n] = sampler.fast(params, place[n]);
#pragma unroll
      for (int n = 0; n < K; ++n) {
        const int x = i + (step + n) * Tile::kLanesX;
        if (x >= params.size[0]) break;
        const bool in_window = x >= window_begin && x < window_end;
        if (!place[n].inner) value[n] = sampler.fills.outside;
        if (!in_window) value[n] = sampler.fills.window;
        target[(step + n) * Tile::kLanesX] = value[n];
        missed |= in_window && !(place[n].inner ? is_finite(value[n]) : outside[n]);
      }
    }
  }
  if (__syncthreads_or(missed) && threadIdx.x == 0)
    rest.tiles[atomicAdd(rest.count, 1)] = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

/// All voxels of all tiles; with kListed what gather_inner left.
template <class Sampler, bool kListed>
__global__ void __launch_bounds__(kThreads)
    gather_rest(const __grid_constant__ Params params, const __grid_constant__ Sampler sampler,
                typename Sampler::Value* output, const Tiling tiling, const TileList list) {
  using Value = typename Sampler::Value;
  const std::uint32_t count = kListed ? *list.count : tiling.count;
  const int voxels = 1 << (tiling.log_x + tiling.log_y + tiling.log_z);
  for (std::uint32_t t = blockIdx.x; t < count; t += gridDim.x) {
    const std::uint32_t tile = kListed ? list.tiles[t] : t;
    const int x0 = int(tile % tiling.count_x) << tiling.log_x,
              y0 = int(tile / tiling.count_x % tiling.count_y) << tiling.log_y,
              z0 = int(tile / tiling.count_x / tiling.count_y) << tiling.log_z;
    for (int v = threadIdx.x; v < voxels; v += kThreads) {
      const int i = x0 + (v & ((1 << tiling.log_x) - 1)), j = y0 + (v >> tiling.log_x & ((1 << tiling.log_y) - 1)),
                k = z0 + (v >> (tiling.log_x + tiling.log_y));
      if (i >= params.size[0] || j >= params.size[1] || k >= params.size[2]) continue;
      const Point target{double(i), double(j), double(k)};
      Point y = volpipe::gather::apply(params.start, target);
      if (params.field_count) y = through_fields(params.fields, params.field_count, target, y);
      Value* const at = output + (std::int64_t(k) * params.size[1] + j) * params.size[0] + i;
      const bool in_window = i >= params.window_begin[0] && i < params.window_end[0] && j >= params.window_begin[1] &&
                             j < params.window_end[1] && k >= params.window_begin[2] && k < params.window_end[2];
      const typename Sampler::Place place = sampler.place(params, y);
      Value value = sampler.fills.outside;
      if (!in_window) {
        value = sampler.fills.window;
      } else if (place.inner) {
        value = kListed ? *at : sampler.fast(params, place);
        if (!is_finite(value)) value = sampler.slow(params, y);
      } else if (params.boundary != Boundary::constant || !is_outside(params, y)) {
        Point folded = y;
        if (look_up(params, folded)) {
          const typename Sampler::Place there = sampler.place(params, folded);
          if (there.inner) value = sampler.fast(params, there);
          if (!there.inner || !is_finite(value)) value = sampler.slow(params, y);
        }
      }
      *at = value;
    }
  }
}

// ---- host

/// The parameters of a work, with its tables on the device as long as this object.
class GatherPlan {
 public:
  GatherPlan(DeviceContext& context, const GatherWork& work);

  const Params& params() const { return params_; }
  /// Whether 32 bits reach every voxel of a component.
  bool is_narrow(std::size_t element_bytes) const;
  /// For taps first to first + taps - 1; none with `side_by_side` where the first axis does not step from voxel to
  /// voxel.
  template <class Offset>
  Inner<Offset> inner(std::size_t element_bytes, int taps, bool side_by_side) const {
    Inner<Offset> inner{};
    const auto bytes = std::int64_t(element_bytes);
    if (side_by_side && std::abs(params_.axes[0].stride) != 1) return {};
    for (int a = 0; a < 3; ++a) {
      const AxisView& axis = params_.axes[a];
      const std::int64_t end = std::min<std::int64_t>(axis.end, kWholeLimit - 8);
      if (end - axis.begin < taps) return {};
      inner.first[a] = std::int32_t(axis.begin);
      inner.count[a] = std::uint32_t(end - axis.begin - taps + 1);
      inner.stride[a] = Offset(axis.stride * bytes);
      inner.origin += Offset((axis.offset + axis.stride * axis.begin) * bytes);
    }
    inner.backward = side_by_side && params_.axes[0].stride < 0;
    if (inner.backward) inner.origin -= Offset((taps - 1) * bytes);
    return inner;
  }

 private:
  Params params_{};
  PackedTables tables_;
};

/// The voxel of type T that stands for a fill value: rounded, within range, 0 for NaN.
template <class T>
T voxel_of(double value) {
  if constexpr (std::is_integral_v<T>)
    return std::isnan(value) ? T(0)
                             : T(std::clamp(std::round(value), double(std::numeric_limits<T>::min()),
                                            double(std::numeric_limits<T>::max())));
  else return T(value);
}

template <class A>
Fills<A> fills_of(const GatherWork& work) {
  return {voxel_of<A>(work.fill), voxel_of<A>(work.view_fill), voxel_of<A>(work.window_fill)};
}

template <int kX, int kY, int kZ>
Tiling tiling_of(const Params& params) {
  static_assert(std::has_single_bit(unsigned(kX)) && std::has_single_bit(unsigned(kY)) &&
                std::has_single_bit(unsigned(kZ)));
  const auto count_x = std::uint32_t(divide_up(params.size[0], kX)),
             count_y = std::uint32_t(divide_up(params.size[1], kY));
  return {std::countr_zero(unsigned(kX)),
          std::countr_zero(unsigned(kY)),
          std::countr_zero(unsigned(kZ)),
          count_x,
          count_y,
          count_x * count_y * std::uint32_t(divide_up(params.size[2], kZ))};
}

/// Any fields, offsets of 64 bits.
template <class Sampler>
void launch_general(DeviceContext& context, const Params& params, const Sampler& sampler, void* output) {
  const Tiling tiling = tiling_of<32, 4, 8>(params);
  gather_rest<Sampler, false><<<std::min(tiling.count, 0x7fffffffu), kThreads, 0, stream_of(context)>>>(
      params, sampler, static_cast<typename Sampler::Value*>(output), tiling, TileList{});
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

/// `launch(grid, rest)` for the tiles, then the general way for what it lists.
template <class General, class Launch>
void launch_with_rest(DeviceContext& context, const Params& params, const Tiling& tiling, const General& general,
                      void* output, const Launch& launch) {
  const cudaStream_t stream = stream_of(context);
  Buffer memory = context.allocate((std::size_t(tiling.count) + 1) * sizeof(std::uint32_t));
  auto* const count = static_cast<std::uint32_t*>(memory.data());
  const TileList rest{count, count + 1};
  VOLPIPE_CHECK_CUDA(cudaMemsetAsync(count, 0, sizeof *count, stream));
  launch(dim3(tiling.count_x, tiling.count_y, tiling.count / tiling.count_x / tiling.count_y), rest);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  const auto blocks = std::min<std::uint32_t>(tiling.count, std::uint32_t(multiprocessor_count(context)) * 8);
  gather_rest<General, true>
      <<<blocks, kThreads, 0, stream>>>(params, general, static_cast<typename General::Value*>(output), tiling, rest);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

template <class Tile, Fields kFields, class Sampler, class General>
void launch_inner(DeviceContext& context, Params params, const Sampler& sampler, const General& general, void* output) {
  std::size_t shared_bytes = 0;
  if constexpr (kFields == Fields::row_spline) {
    params.row_columns = RowSpline<Tile>::columns(params.row_field);
    shared_bytes = RowSpline<Tile>::shared_bytes(params.row_columns);
  }
  launch_with_rest(context, params, tiling_of<Tile::kX, Tile::kY, Tile::kZ>(params), general, output,
                   [&](const dim3& grid, const TileList& rest) {
                     gather_inner<Sampler, Tile, kFields><<<grid, kThreads, shared_bytes, stream_of(context)>>>(
                         params, sampler, static_cast<typename Sampler::Value*>(output), rest);
                   });
}

/// Whether a grid of tiles reaches the whole target.
inline bool fits_grid(const Params& params) { return params.size[1] < 65536 && params.size[2] < 65536; }

/// Launches the fastest kernels that can do the work. `make(Offset{})` gives the sampler.
template <class Tile, class RowTile, class Make>
void launch_best(DeviceContext& context, const GatherPlan& plan, std::size_t element_bytes, const Make& make,
                 void* output) {
  const Params& params = plan.params();
  const auto general = make(std::uint64_t{});
  const bool rows = params.is_row_spline && RowSpline<RowTile>::fits(params.row_field);
  if (!fits_grid(params) || !plan.is_narrow(element_bytes) || (params.field_count != 0 && !rows))
    return launch_general(context, params, general, output);
  const auto sampler = make(std::uint32_t{});
  if (rows) launch_inner<RowTile, Fields::row_spline>(context, params, sampler, general, output);
  else launch_inner<Tile, Fields::none>(context, params, sampler, general, output);
}

void gather_nearest(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                    void* output);
void gather_linear(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                   void* output);
void gather_taps(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                 void* output);

}  // namespace volpipe::cuda::gathering
