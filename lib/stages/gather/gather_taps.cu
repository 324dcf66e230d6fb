// Interpolations of three to six taps an axis: cubic, lanczos3, and B-splines on their coefficients.
#include "stages/gather/gather_staged.cuh"

namespace volpipe::cuda::gathering {

namespace {

/// Taps of weight 0 are not looked at.
template <class T, class A, int N>
__device__ __noinline__ A taps_voxel(const Params& params, const T* input, const Fills<A>& fills, Point y) {
  if (!look_up(params, y)) return fills.outside;
  std::int64_t element[3][N];
  A w[3][N];
  for (int a = 0; a < 3; ++a) {
    std::int64_t first;
    volpipe::gather::tap_weights(params.interpolation, y.at[a], first, w[a]);
    for (int tap = 0; tap < N; ++tap) element[a][tap] = element_of(params.axes[a], first + tap, params.boundary);
  }
  A sum = 0;
  for (int dz = 0; dz < N; ++dz) {
    if (w[2][dz] == 0) continue;
    A plane = 0;
    for (int dy = 0; dy < N; ++dy) {
      if (w[1][dy] == 0) continue;
      A line = 0;
      for (int dx = 0; dx < N; ++dx)
        if (w[0][dx] != 0)
          line = std::fma(w[0][dx], voxel_or_fill(input, fills, element[0][dx], element[1][dy], element[2][dz]), line);
      plane = std::fma(w[1][dy], line, plane);
    }
    sum = std::fma(w[2][dz], plane, sum);
  }
  return sum;
}

template <class A, int N>
__device__ __forceinline__ void reverse(A (&w)[N]) {
#pragma unroll
  for (int tap = 0; tap < N / 2; ++tap) {
    const A first = w[tap];
    w[tap] = w[N - 1 - tap];
    w[N - 1 - tap] = first;
  }
}

template <class T, class A, int N, class Offset>
struct Taps {
  using Value = A;
  struct Place {
    Offset offset;
    bool inner;
    A t[3];
  };
  Inner<Offset> inner;
  const T* input;
  Fills<A> fills;

  __device__ __forceinline__ Place place(const Params&, const Point& y) const {
    constexpr bool kOdd = N % 2 != 0;
    Place place;
    std::int32_t first[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if constexpr (std::is_same_v<A, double> && !kOdd) {
        place.t[a] = split(y.at[a], first[a]);
      } else {
        const FixedPoint point = fixed_point(kOdd ? y.at[a] + 0.5 : y.at[a]);
        first[a] = point.whole;
        if constexpr (std::is_same_v<A, double>) place.t[a] = y.at[a] - floor_of(point);
        else place.t[a] = to_float(point.fraction) - (kOdd ? 0.5f : 0.f);
      }
      first[a] -= (N - 1) / 2;
    }
    const Found<Offset> found = find(inner, first);
    place.offset = found.offset;
    place.inner = found.inner;
    return place;
  }

  /// What is not finite here may be finite the general way.
  __device__ __forceinline__ A fast(const Params& params, const Place& place) const {
    A w[3][N];
#pragma unroll
    for (int a = 0; a < 3; ++a) volpipe::gather::tap_weights(params.interpolation, place.t[a], w[a]);
    if (inner.backward) reverse(w[0]);
    A sum = 0;
#pragma unroll
    for (int dz = 0; dz < N; ++dz) {
      A plane = 0;
#pragma unroll
      for (int dy = 0; dy < N; ++dy) {
        A line = 0;
        const T* taps = at(input, place.offset + dz * inner.stride[2] + dy * inner.stride[1]);
#pragma unroll
        for (int dx = 0; dx < N; ++dx) line = std::fma(w[0][dx], A(__ldg(taps + dx)), line);
        plane = std::fma(w[1][dy], line, plane);
      }
      sum = std::fma(w[2][dz], plane, sum);
    }
    return sum;
  }
  __device__ __forceinline__ A slow(const Params& params, const Point& y) const {
    return taps_voxel<T, A, N>(params, input, fills, y);
  }
};

using Tile = TileOf<16, 2, 1, 4, 2, 1, 1, 4>;
using RowTile = TileOf<16, 2, 1, 4, 2, 8, 1, 3>;

template <class T, class A, int N>
void gather_with(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                 void* output) {
  const auto* voxels = static_cast<const T*>(input);
  const Fills<A> fills = fills_of<A>(work);
  const auto make = [&]<class Offset>(Offset) {
    return Taps<T, A, N, Offset>{plan.inner<Offset>(sizeof(T), N, true), voxels, fills};
  };
  const auto general = make(std::uint64_t{});
  if constexpr (std::is_same_v<T, float> && std::is_same_v<A, float>) {
    if (launch_staged<T, N>(context, plan, voxels, fills, general, output)) return;
    if constexpr (N == 4) return launch_best<Tile, RowTile>(context, plan, sizeof(T), make, output);
  }
  launch_general(context, plan.params(), general, output);
}

template <class T, class A>
void gather_typed(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                  void* output) {
  switch (volpipe::gather::tap_count(work.interpolation)) {
    case 3:
      return gather_with<T, A, 3>(context, work, plan, input, output);
    case 4:
      return gather_with<T, A, 4>(context, work, plan, input, output);
    case 5:
      return gather_with<T, A, 5>(context, work, plan, input, output);
    default:
      return gather_with<T, A, 6>(context, work, plan, input, output);
  }
}

}  // namespace

void gather_taps(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                 void* output) {
  const bool from_double = work.input_type == DataType::float64, in_double = work.output_type == DataType::float64;
  if (from_double && in_double) gather_typed<double, double>(context, work, plan, input, output);
  else if (from_double) gather_typed<double, float>(context, work, plan, input, output);
  else if (in_double) gather_typed<float, double>(context, work, plan, input, output);
  else gather_typed<float, float>(context, work, plan, input, output);
}

}  // namespace volpipe::cuda::gathering
