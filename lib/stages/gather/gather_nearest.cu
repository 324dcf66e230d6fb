// Interpolations that move voxels bit for bit: nearest and label_linear.
#include <cstring>

#include "stages/gather/gather_device.cuh"

namespace volpipe::cuda::gathering {

namespace {

template <class T>
__device__ __noinline__ T nearest_voxel(const Params& params, const T* input, const Fills<T>& fills, Point y) {
  if (!look_up(params, y)) return fills.outside;
  std::int64_t element[3];
  for (int a = 0; a < 3; ++a)
    element[a] = element_of(params.axes[a], volpipe::gather::nearest_index(y.at[a]), params.boundary);
  return voxel_or_fill(input, fills, element[0], element[1], element[2]);
}

template <class T, class Offset>
struct Nearest {
  using Value = T;
  using Place = Found<Offset>;
  Inner<Offset> inner;
  const T* input;
  Fills<T> fills;

  __device__ __forceinline__ Place place(const Params& params, const Point& y) const {
    std::int32_t first[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) first[a] = fixed_point(y.at[a] + (0.5 + volpipe::gather::kSnap)).whole;
    Place place = find(inner, first);
    bool edge = false;  // half a voxel beyond the ends is rounded to them
#pragma unroll
    for (int a = 0; a < 3; ++a) edge |= std::uint32_t(first[a] - 1) >= params.between[a];
    if (edge && place.inner) place.inner = !is_outside(params, y);
    return place;
  }
  __device__ __forceinline__ T fast(const Params&, const Place& place) const {
    return __ldg(at(input, place.offset));
  }
  __device__ __forceinline__ T slow(const Params& params, const Point& y) const {
    return nearest_voxel(params, input, fills, y);
  }
};

template <class T>
__device__ __noinline__ T heaviest_of(const float (&t)[3], const T (&labels)[8]) {
  return volpipe::gather::heaviest_label<T>(t, [&](int dx, int dy, int dz) { return labels[dx + 2 * dy + 4 * dz]; });
}

template <class T>
__device__ __noinline__ T label_voxel(const Params& params, const T* input, const Fills<T>& fills, Point y) {
  if (!look_up(params, y)) return fills.outside;
  std::int64_t element[3][2];
  float t[3];
  for (int a = 0; a < 3; ++a) {
    std::int64_t lower;
    t[a] = float(volpipe::gather::split(y.at[a], lower));
    for (int d = 0; d < 2; ++d) element[a][d] = element_of(params.axes[a], lower + d, params.boundary);
  }
  T labels[8];
#pragma unroll
  for (int corner = 0; corner < 8; ++corner)
    labels[corner] =
        voxel_or_fill(input, fills, element[0][corner & 1], element[1][corner >> 1 & 1], element[2][corner >> 2]);
  return heaviest_of(t, labels);
}

template <class T, class Offset>
struct Label {
  using Value = T;
  struct Place {
    Offset offset;
    bool inner;
    float t[3];
  };
  Inner<Offset> inner;
  const T* input;
  Fills<T> fills;

  __device__ __forceinline__ Place place(const Params&, const Point& y) const {
    Place place;
    std::int32_t first[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) place.t[a] = float(split(y.at[a], first[a]));
    const Found<Offset> found = find(inner, first);
    place.offset = found.offset;
    place.inner = found.inner;
    return place;
  }
  __device__ __forceinline__ T fast(const Params&, const Place& place) const {
    T labels[8];
    bool same = true;
#pragma unroll
    for (int corner = 0; corner < 8; ++corner) {
      Offset offset = place.offset;
      if (corner & 1) offset += inner.stride[0];
      if (corner & 2) offset += inner.stride[1];
      if (corner & 4) offset += inner.stride[2];
      labels[corner] = __ldg(at(input, offset));
      same &= labels[corner] == labels[0];
    }
    return same ? labels[0] : heaviest_of(place.t, labels);
  }
  __device__ __forceinline__ T slow(const Params& params, const Point& y) const {
    return label_voxel(params, input, fills, y);
  }
};

/// The fills as the bits of voxels of the work's type.
template <class T>
Fills<T> fill_bits_of(const GatherWork& work) {
  return visit(work.output_type, [&]<class Tag>(Tag) {
    const auto fills = fills_of<typename Tag::type>(work);
    Fills<T> bits{};
    if constexpr (sizeof(T) == sizeof(typename Tag::type)) std::memcpy(&bits, &fills, sizeof bits);
    return bits;
  });
}

template <class T>
void gather_as(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
               void* output) {
  const auto* voxels = static_cast<const T*>(input);
  const Fills<T> fills = fill_bits_of<T>(work);
  using Tile = TileOf<16, 2, 1, 4, 2, 4, 4, 6>;
  using RowTile = TileOf<16, 2, 1, 4, 2, 8, 2, 5>;
  if (work.interpolation == Interpolation::label_linear) {
    const Label<T, std::uint64_t> sampler{plan.inner<std::uint64_t>(sizeof(T), 2, false), voxels, fills};
    return launch_general(context, plan.params(), sampler, output);
  }
  launch_best<Tile, RowTile>(
      context, plan, sizeof(T),
      [&]<class Offset>(Offset) {
        return Nearest<T, Offset>{plan.inner<Offset>(sizeof(T), 1, false), voxels, fills};
      },
      output);
}

}  // namespace

void gather_nearest(DeviceContext& context, const GatherWork& work, const GatherPlan& plan, const void* input,
                    void* output) {
  switch (size_of(work.input_type)) {
    case 1:
      return gather_as<std::uint8_t>(context, work, plan, input, output);
    case 2:
      return gather_as<std::uint16_t>(context, work, plan, input, output);
    case 4:
      return gather_as<std::uint32_t>(context, work, plan, input, output);
    default:
      return gather_as<std::uint64_t>(context, work, plan, input, output);
  }
}

}  // namespace volpipe::cuda::gathering
