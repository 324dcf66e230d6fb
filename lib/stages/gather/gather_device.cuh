// What the kernels of gathers share: their parameters, the fast way from a coordinate to voxels, point maps with fields,
// and the one kernel that deals target voxels to threads. For .cu files compiled with -fmad=false.
#pragma once

#include <algorithm>
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
  std::int64_t component_stride, components;
  Interpolation interpolation;
  Boundary boundary;
  std::int32_t size[3], window_begin[3], window_end[3];
  std::int64_t target_voxels;
  unsigned tiles_x, tiles_y;
  const FieldParams* fields;  ///< on the device
  int field_count;
  bool is_row_spline;     ///< one B-spline field on a grid parallel to the target's: row_field
  FieldParams row_field;
  int row_columns;  ///< RowSpline::columns
};

/// What voxels that the source does not have are.
template <class Value>
struct Fills {
  Value outside, view, window;
};

/// Where plain strides reach all taps: from the tap `first` + rel of each axis on, rel in [0, count). Offsets are bytes;
/// 32 bits wrap around, so that strides may be negative.
template <class Offset>
struct Inner {
  Offset origin, stride[3];
  std::int32_t first[3];
  std::uint32_t count[3];  ///< all 0 when one is
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
  const Offset offset =
      inner.origin + rel[0] * inner.stride[0] + rel[1] * inner.stride[1] + rel[2] * inner.stride[2];
  return {all ? offset : inner.origin, all};
}

template <class T, class Offset>
__device__ __forceinline__ T load(const T* base, Offset bytes) {
  return __ldg(reinterpret_cast<const T*>(reinterpret_cast<const char*>(base) + bytes));
}

// ---- the general way, as a host loop does it

inline constexpr std::int64_t kOutside = -1, kViewFill = -2;

__device__ inline std::int64_t element_of(const AxisView& axis, std::int64_t tap, Boundary boundary) {
  const std::int64_t v = volpipe::gather::fold_tap(tap, axis.size, boundary);
  if (v < 0) return kOutside;
  const std::int64_t element = axis.element(v);
  return element < 0 ? kViewFill : element;
}

__device__ inline bool look_up(const Params& params, Point& y) {
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

enum class Fields { none, row_spline, any };

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

// ---- the kernel

/// A warp's lanes lie on LX x LY x LZ target voxels, the warps of a block on WY x WZ such boxes; a thread takes
/// kPerThread voxels along x.
template <int LX, int LY, int LZ, int WY, int WZ, int PerThread>
struct TileOf {
  static_assert(LX * LY * LZ == 32 && WY * WZ == kWarps);
  static constexpr int kLanesX = LX, kLanesY = LY, kLanesZ = LZ, kWarpsY = WY, kPerThread = PerThread;
  static constexpr int kX = LX * PerThread, kY = LY * WY, kZ = LZ * WZ;
};

/// A sampler finds the place of a point, loads from it what is inner, and has the general way for the rest:
///   Value; Place{inner, ...}; place(y); fast(place, component); slow(params, y, component); fills
template <class Sampler, class Tile, Fields kFields>
__global__ void __launch_bounds__(kThreads, Sampler::kBlocks)
    gather_voxels(const __grid_constant__ Params params, const __grid_constant__ Sampler sampler,
                  typename Sampler::Value* output) {
  using Value = typename Sampler::Value;
  extern __shared__ char shared[];
  const unsigned tile_x = blockIdx.x % params.tiles_x, rest = blockIdx.x / params.tiles_x;
  const int x0 = int(tile_x) * Tile::kX, y0 = int(rest % params.tiles_y) * Tile::kY,
            z0 = int(rest / params.tiles_y) * Tile::kZ;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tx = lane % Tile::kLanesX;
  const int ty = lane / Tile::kLanesX % Tile::kLanesY + warp % Tile::kWarpsY * Tile::kLanesY;
  const int tz = lane / (Tile::kLanesX * Tile::kLanesY) + warp / Tile::kWarpsY * Tile::kLanesZ;
  const int j = y0 + ty, k = z0 + tz;

  struct None {
    __device__ None(const Params&, char*, int, int, int) {}
  };
  using Rows = std::conditional_t<kFields == Fields::row_spline, RowSpline<Tile>, None>;
  const Rows rows(params, shared, x0, y0, z0);
  if (j >= params.size[1] || k >= params.size[2]) return;

  const bool row_in_window = j >= params.window_begin[1] && j < params.window_end[1] && k >= params.window_begin[2] &&
                             k < params.window_end[2];
  const Point row = volpipe::gather::row_of(params.start, double(j), double(k));
  const double i0 = double(x0 + tx);
  const auto point = [&](int n) {
    const double i = i0 + double(n * Tile::kLanesX);
    Point y = volpipe::gather::apply_to_row(params.start, row, i);
    if constexpr (kFields == Fields::row_spline) y = rows.move(y, tx + n * Tile::kLanesX, ty + tz * Tile::kY);
    if constexpr (kFields == Fields::any)
      if (params.field_count) y = through_fields(params.fields, params.field_count, {i, double(j), double(k)}, y);
    return y;
  };

  typename Sampler::Place place[Tile::kPerThread];
#pragma unroll
  for (int n = 0; n < Tile::kPerThread; ++n) place[n] = sampler.place(params, point(n));
  Value* target = output + (std::int64_t(k) * params.size[1] + j) * params.size[0] + x0 + tx;
  for (std::int64_t component = 0; component < params.components; ++component, target += params.target_voxels) {
    Value value[Tile::kPerThread];
#pragma unroll
    for (int n = 0; n < Tile::kPerThread; ++n)
      value[n] = sampler.fast(params, place[n], component * params.component_stride);
#pragma unroll
    for (int n = 0; n < Tile::kPerThread; ++n) {
      const int i = x0 + tx + n * Tile::kLanesX;
      if (i >= params.size[0]) break;
      if (!row_in_window || i < params.window_begin[0] || i >= params.window_end[0]) value[n] = sampler.fills.window;
      else if (!place[n].inner || !is_finite(value[n]))
        value[n] = sampler.slow(params, point(n), component * params.component_stride);
      target[n * Tile::kLanesX] = value[n];
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
  /// For taps first to first + taps - 1 inside the axes, `margin` voxels from their ends.
  template <class Offset>
  Inner<Offset> inner(std::size_t element_bytes, int taps, int margin = 0) const {
    Inner<Offset> inner{};
    for (int a = 0; a < 3; ++a) {
      const AxisView& axis = params_.axes[a];
      const std::int64_t begin = std::max<std::int64_t>(axis.begin, margin);
      const std::int64_t end = std::min<std::int64_t>({axis.end, axis.size - margin, kWholeLimit - 8});
      if (end - begin < taps) return {};
      inner.first[a] = std::int32_t(begin);
      inner.count[a] = std::uint32_t(end - begin - taps + 1);
      inner.stride[a] = Offset(axis.stride * std::int64_t(element_bytes));
      inner.origin += Offset((axis.offset + axis.stride * begin) * std::int64_t(element_bytes));
    }
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

/// Launches over the tiles of the target.
template <class Tile, Fields kFields, class Sampler>
void launch(DeviceContext& context, Params params, const Sampler& sampler, void* output) {
  params.tiles_x = unsigned(divide_up(params.size[0], Tile::kX));
  params.tiles_y = unsigned(divide_up(params.size[1], Tile::kY));
  const std::int64_t tiles = params.tiles_x * std::int64_t(params.tiles_y) * divide_up(params.size[2], Tile::kZ);
  std::size_t shared_bytes = 0;
  if constexpr (kFields == Fields::row_spline) {
    params.row_columns = RowSpline<Tile>::columns(params.row_field);
    shared_bytes = RowSpline<Tile>::shared_bytes(params.row_columns);
  }
  gather_voxels<Sampler, Tile, kFields><<<unsigned(tiles), kThreads, shared_bytes, stream_of(context)>>>(
      params, sampler, static_cast<typename Sampler::Value*>(output));
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

/// Launches the fastest kernel that can do the work: 32-bit offsets without fields or with one that rows share, else
/// 64-bit offsets and any fields. `make(Offset{})` gives the sampler.
template <class Tile, class RowTile, class Make>
void launch_best(DeviceContext& context, const GatherPlan& plan, std::size_t element_bytes, const Make& make,
                 void* output) {
  const Params& params = plan.params();
  const bool narrow = plan.is_narrow(element_bytes);
  if (narrow && params.field_count == 0)
    launch<Tile, Fields::none>(context, params, make(std::uint32_t{}), output);
  else if (narrow && params.is_row_spline && RowSpline<RowTile>::fits(params.row_field))
    launch<RowTile, Fields::row_spline>(context, params, make(std::uint32_t{}), output);
  else launch<Tile, Fields::any>(context, params, make(std::uint64_t{}), output);
}

void gather_nearest(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                    void* output);
void gather_linear(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                   void* output);
void gather_taps(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                 void* output);

}  // namespace volpipe::cuda::gathering
