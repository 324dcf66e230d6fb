// Trilinear interpolation.
#include "stages/gather/gather_staged.cuh"
#include "stages/separable/any_voxels.cuh"

namespace volpipe::cuda::gathering {

namespace {

/// Voxels of a type known when compiling.
template <class T>
struct Voxels {
  const T* data;
  /// body(pointer to the first voxel)
  template <class Body>
  __device__ __forceinline__ auto visit(const Body& body) const {
    return body(data);
  }
};

/// Voxels of any type.
template <class A>
struct VoxelsOfAnyType {
  AnyVoxels voxels;
  template <class Body>
  __device__ __forceinline__ A visit(const Body& body) const {
    A value = 0;
    voxels.visit([&](const auto* data) { value = body(data); });
    return value;
  }
};

/// value(dx, dy, dz) at the eight corners; see volpipe::gather::lerp.
template <class A, class Value>
__device__ __forceinline__ A trilinear(const A (&t)[3], const Value& value) {
  A plane[2];
#pragma unroll
  for (int dz = 0; dz < 2; ++dz)
    plane[dz] = volpipe::gather::lerp(volpipe::gather::lerp(value(0, 0, dz), value(1, 0, dz), t[0]),
                                      volpipe::gather::lerp(value(0, 1, dz), value(1, 1, dz), t[0]), t[1]);
  return volpipe::gather::lerp(plane[0], plane[1], t[2]);
}

template <class T, class A>
__device__ __noinline__ A linear_voxel(const Params& params, const T* input, const Fills<A>& fills, Point y) {
  if (!look_up(params, y)) return fills.outside;
  std::int64_t element[3][2];
  A t[3];
  for (int a = 0; a < 3; ++a) {
    std::int64_t lower;
    t[a] = A(volpipe::gather::split(y.at[a], lower));
    for (int d = 0; d < 2; ++d) element[a][d] = element_of(params.axes[a], lower + (t[a] == 0 ? 0 : d), params.boundary);
  }
  return trilinear(t, [&](int dx, int dy, int dz) {
    return voxel_or_fill(input, fills, element[0][dx], element[1][dy], element[2][dz]);
  });
}

template <class Input, class A, class Offset>
struct Linear {
  using Value = A;
  struct Place {
    Offset offset;
    bool inner;
    A t[3];
  };
  Inner<Offset> inner;
  Input input;
  Fills<A> fills;

  __device__ __forceinline__ Place place(const Params& params, const Point& y) const {
    Place place;
    std::int32_t first[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if constexpr (std::is_same_v<A, float>) {
        const FixedPoint point = fixed_point(y.at[a]);
        first[a] = point.whole;
        place.t[a] = to_float(point.fraction);
      } else {
        place.t[a] = split(y.at[a], first[a]);
      }
    }
    Found<Offset> found = find(inner, first);
    if (!found.inner) {  // what lies at the last voxel has no next one
#pragma unroll
      for (int a = 0; a < 3; ++a)
        if (y.at[a] <= params.last[a] && y.at[a] >= params.last[a] - 1.5 * volpipe::gather::kSnap) {
          first[a] = std::int32_t(params.axes[a].size) - 2;
          place.t[a] = 1;
        }
      found = find(inner, first);
    }
    place.offset = found.offset;
    place.inner = found.inner;
    return place;
  }

  /// What is not finite here may be finite the general way, which does not look at voxels of weight 0.
  __device__ __forceinline__ A fast(const Params&, const Place& place) const {
    return input.visit([&](const auto* data) {
      const auto mix = [](A a, A b, A t) { return std::fma(t, b - a, a); };
      const A t = inner.backward ? 1 - place.t[0] : place.t[0];
      A line[4];
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        Offset offset = place.offset;
        if (corner & 1) offset += inner.stride[1];
        if (corner & 2) offset += inner.stride[2];
        const auto* pair = at(data, offset);
        line[corner] = mix(A(__ldg(pair)), A(__ldg(pair + 1)), t);
      }
      return mix(mix(line[0], line[1], place.t[1]), mix(line[2], line[3], place.t[1]), place.t[2]);
    });
  }
  __device__ __forceinline__ A slow(const Params& params, const Point& y) const {
    return input.visit([&](const auto* data) { return linear_voxel(params, data, fills, y); });
  }
};

using Tile = TileOf<32, 1, 1, 4, 2, 1, 1, 8>;
using RowTile = TileOf<16, 2, 1, 4, 2, 8, 1, 5>;

template <class T>
void gather_typed(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                  void* output) {
  const auto* voxels = static_cast<const T*>(input);
  const Fills<float> fills = fills_of<float>(work);
  const auto make = [&]<class Offset>(Offset) {
    return Linear<Voxels<T>, float, Offset>{plan.inner<Offset>(sizeof(T), 2, true), {voxels}, fills};
  };
  if (!launch_staged<T, 2>(context, plan, voxels, fills, make(std::uint64_t{}), output))
    launch_best<Tile, RowTile>(context, plan, sizeof(T), make, output);
}

template <class A>
void gather_any(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                void* output) {
  const Linear<VoxelsOfAnyType<A>, A, std::uint64_t> sampler{
      plan.inner<std::uint64_t>(size_of(work.input_type), 2, true), {{input, work.input_type}}, fills_of<A>(work)};
  launch_general(context, plan.params(), sampler, output);
}

}  // namespace

void gather_linear(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                   void* output) {
  if (work.output_type == DataType::float64) return gather_any<double>(context, work, plan, input, output);
  switch (work.input_type) {
    case DataType::uint8:
      return gather_typed<std::uint8_t>(context, work, plan, input, output);
    case DataType::int16:
      return gather_typed<std::int16_t>(context, work, plan, input, output);
    case DataType::uint16:
      return gather_typed<std::uint16_t>(context, work, plan, input, output);
    case DataType::float32:
      return gather_typed<float>(context, work, plan, input, output);
    default:
      return gather_any<float>(context, work, plan, input, output);
  }
}

}  // namespace volpipe::cuda::gathering
