// Affine maps of float32 arithmetic: the box of the source under a tile of the target is brought to shared memory, its
// view and boundary resolved, and the taps are read there. For .cu files compiled with -fmad=false.
#pragma once

#include <array>
#include <optional>

#include "device/shared_memory.h"
#include "stages/gather/gather_device.cuh"

namespace volpipe::cuda::gathering {

/// How target voxels are dealt: a warp's lanes lie on 8 x 4 voxels of a tile, a thread takes a column of kZ.
template <int N>
struct Staging {
  static constexpr int kX = 16, kY = 16, kZ = N == 2 ? 16 : 8;
};

/// The box of the source under any tile, as the host planned it. Lengths in voxels.
struct Box {
  std::int32_t size[3];       ///< the first a multiple of 4
  std::int32_t pitch, plane;  ///< in shared memory: from row to row, from plane to plane
  bool aligned;               ///< rows of the source begin at multiples of 4 voxels
  double least[3], most[3];   ///< coordinates of a tile, from those of its first voxel
  std::int64_t step[3];       ///< from target plane to target plane along each axis, in 2^-32
  /// The threads of a block take four neighbours each of rows_at_once rows; `next` is what that moves a thread by,
  /// `wrap` what is more when it leaves a plane.
  std::int32_t rows_at_once, planes_at_once, rows_rest;
  struct Move {
    std::int64_t from;     ///< in the source
    std::int32_t to;       ///< in shared memory
    float from_centre[3];  ///< along the target's axes
  } next, wrap;
  /// From the source to the target, and how far along each of its axes from the centre of the tile four neighbours can
  /// lie of which a tap is one.
  float to_target[3][3], half[3], reach[3];
};

/// An element of an axis where it lies in 32 bits.
inline constexpr std::uint32_t kNoElement = 0xfffffffeu, kFill = 0xfffffffeu, kViewFillElement = 0xffffffffu;

/// Four neighbours of the source, aligned, to shared memory as float; there after wait_for_copies and a barrier.
template <class T>
__device__ __forceinline__ void copy_four(float* to, const T* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(std::uint32_t(__cvta_generic_to_shared(to))),
                 "l"(from));
    return;
  }
#endif
  struct alignas(4 * sizeof(T)) Four {
    T voxel[4];
  };
  const Four four = *reinterpret_cast<const Four*>(from);
  *reinterpret_cast<float4*>(to) =
      make_float4(float(four.voxel[0]), float(four.voxel[1]), float(four.voxel[2]), float(four.voxel[3]));
}
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Fills the box whose first tap is `low` and waits for it.
template <class T>
__device__ __forceinline__ void stage(const Params& params, const Box& box, const T* input, const Fills<float>& fills,
                                      float* voxels, const std::int32_t (&low)[3], const Point& corner) {
  const int row4 = box.size[0] / 4, row = int(threadIdx.x) / row4, x = 4 * (int(threadIdx.x) - row * row4);
  int z = row / box.size[1], y = row - z * box.size[1];
  float from_centre[3];
  bool inner = params.axes[0].stride == 1;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const float p[3] = {float(low[0] - corner.at[0]) + float(x) + 1.5f, float(low[1] - corner.at[1]) + float(y),
                        float(low[2] - corner.at[2]) + float(z)};
    from_centre[a] =
        fmaf(box.to_target[a][0], p[0], fmaf(box.to_target[a][1], p[1], fmaf(box.to_target[a][2], p[2], -box.half[a])));
    inner &= low[a] >= params.axes[a].begin && low[a] + box.size[a] <= params.axes[a].end;
  }
  const std::int64_t stride_y = params.axes[1].stride, stride_z = params.axes[2].stride;
  const T* from = input + (params.axes[0].offset + low[0] + x) + (params.axes[1].offset + (low[1] + y) * stride_y) +
                  (params.axes[2].offset + (low[2] + z) * stride_z);  // where the box is inner
  float* to = voxels + z * box.plane + y * box.pitch + x;
  const auto move = [&](const Box::Move& by) {
    from += by.from;
    to += by.to;
#pragma unroll
    for (int a = 0; a < 3; ++a) from_centre[a] += by.from_centre[a];
  };
  const auto for_each_needed = [&](const auto& body) {
    if (row >= box.rows_at_once) return;
    while (z < box.size[2]) {
      if (fabsf(from_centre[0]) <= box.reach[0] && fabsf(from_centre[1]) <= box.reach[1] &&
          fabsf(from_centre[2]) <= box.reach[2])
        body();
      z += box.planes_at_once;
      y += box.rows_rest;
      move(box.next);
      if (y >= box.size[1]) {
        y -= box.size[1];
        ++z;
        move(box.wrap);
      }
    }
  };
  if (inner && box.aligned) {
    for_each_needed([&] { copy_four(to, from); });
    wait_for_copies();
  } else if (inner) {
    for_each_needed([&] {
      *reinterpret_cast<float4*>(to) =
          make_float4(float(__ldg(from)), float(__ldg(from + 1)), float(__ldg(from + 2)), float(__ldg(from + 3)));
    });
  } else {
    auto* const elements_x = reinterpret_cast<std::uint32_t*>(voxels + box.plane * box.size[2]);
    std::uint32_t* const elements_y = elements_x + box.size[0];
    std::uint32_t* const elements_z = elements_y + box.size[1];
    for (int e = threadIdx.x; e < box.size[0] + box.size[1] + box.size[2]; e += kThreads) {
      const int a = e < box.size[0] ? 0 : e < box.size[0] + box.size[1] ? 1 : 2;
      const int b = e - (a > 0 ? box.size[0] : 0) - (a > 1 ? box.size[1] : 0);
      const std::int32_t first = a == 0 ? low[0] : a == 1 ? low[1] : low[2];
      const std::int64_t element = element_of(params.axes[a], std::int64_t(first) + b, params.boundary);
      elements_x[e] = element == kOutside ? kFill : element == kViewFill ? kViewFillElement : std::uint32_t(element);
    }
    __syncthreads();
    for_each_needed([&] {
      const std::uint32_t ey = elements_y[y], ez = elements_z[z];
      const auto voxel = [&](int v) {
        const std::uint32_t ex = elements_x[x + v];
        if (ex == kFill || ey == kFill || ez == kFill) return fills.outside;
        if (ex == kViewFillElement || ey == kViewFillElement || ez == kViewFillElement) return fills.view;
        return float(__ldg(input + (ex + ey + ez)));
      };
      *reinterpret_cast<float4*>(to) = make_float4(voxel(0), voxel(1), voxel(2), voxel(3));
    });
  }
  __syncthreads();
}

/// tap_weights for the interpolations of N taps.
template <int N>
__device__ __forceinline__ void weights_of(Interpolation interpolation, float t, float (&w)[N]) {
  using volpipe::gather::tap_weights;
  if constexpr (N == 3) tap_weights(Interpolation::bspline2, t, w);
  else if constexpr (N == 5) tap_weights(Interpolation::bspline4, t, w);
  else if constexpr (N == 4)
    interpolation == Interpolation::cubic ? tap_weights(Interpolation::cubic, t, w)
                                          : tap_weights(Interpolation::bspline3, t, w);
  else
    interpolation == Interpolation::bspline5 ? tap_weights(Interpolation::bspline5, t, w)
                                             : tap_weights(Interpolation::lanczos3, t, w);
}

template <int N>
__device__ __forceinline__ float staged_value(const Params& params, const Box& box, const float* first,
                                              const float (&t)[3]) {
  if constexpr (N == 2) {
    const auto mix = [](float a, float b, float weight) { return std::fma(weight, b - a, a); };
    float line[4];
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      const float* pair = first + (corner & 1 ? box.pitch : 0) + (corner & 2 ? box.plane : 0);
      line[corner] = mix(pair[0], pair[1], t[0]);
    }
    return mix(mix(line[0], line[1], t[1]), mix(line[2], line[3], t[1]), t[2]);
  } else {
    float w[3][N];
#pragma unroll
    for (int a = 0; a < 3; ++a) weights_of<N>(params.interpolation, t[a], w[a]);
    float sum = 0;
#pragma unroll
    for (int dz = 0; dz < N; ++dz) {
      float plane = 0;
#pragma unroll
      for (int dy = 0; dy < N; ++dy) {
        const float* taps = first + dz * box.plane + dy * box.pitch;
        float line = 0;
#pragma unroll
        for (int dx = 0; dx < N; ++dx) line = std::fma(w[0][dx], taps[dx], line);
        plane = std::fma(w[1][dy], line, plane);
      }
      sum = std::fma(w[2][dz], plane, sum);
    }
    return sum;
  }
}

/// What gather_inner does, without fields.
template <class T, int N>
__global__ void __launch_bounds__(kThreads, N == 2 ? 4 : 3)
    gather_staged(const __grid_constant__ Params params, const __grid_constant__ Box box, const T* input,
                  const Fills<float> fills, float* output, const TileList rest) {
  using Tile = Staging<N>;
  constexpr int kZ = Tile::kZ;
  constexpr double kMiddle = N % 2 ? 0.5 : 0;  // of the cell of a tap
  extern __shared__ char shared[];
  const int x0 = int(blockIdx.x) * Tile::kX, y0 = int(blockIdx.y) * Tile::kY, z0 = int(blockIdx.z) * kZ;

  const Point corner = volpipe::gather::apply(params.start, {double(x0), double(y0), double(z0)});
  std::int32_t low[3];
  bool meets = true, within = true;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const double least = corner.at[a] + box.least[a], most = corner.at[a] + box.most[a];
    meets &= most >= 0 && least <= params.last[a];
    within &= least >= 0 && most <= params.last[a] - 1e-6;
    low[a] = int(floor(least + kMiddle)) - (N - 1) / 2;
  }
  if (box.aligned && low[0] >= params.axes[0].begin) low[0] -= (params.axes[0].offset + low[0]) & 3;

  auto* const voxels = reinterpret_cast<float*>(shared);
  if (meets) stage(params, box, input, fills, voxels, low, corner);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i = x0 + lane % 8 + warp % 2 * 8, j = y0 + lane / 8 + warp / 2 * 4;
  bool missed = false;
  float finite = 0;  // NaN after a value that is not finite
  if (i < params.size[0] && j < params.size[1]) {
    const std::int64_t target_plane = std::int64_t(params.size[0]) * params.size[1];
    float* target = output + z0 * target_plane + std::int64_t(j) * params.size[0] + i;
    const int end = min(z0 + kZ, params.size[2]);
    const bool column_in_window = i >= params.window_begin[0] && i < params.window_end[0] &&
                                  j >= params.window_begin[1] && j < params.window_end[1];
    const auto sample = [&](const std::int32_t(&tap)[3], const std::uint32_t(&fraction)[3]) {
      const float t[3] = {to_float(fraction[0]) - float(kMiddle), to_float(fraction[1]) - float(kMiddle),
                          to_float(fraction[2]) - float(kMiddle)};
      const float value = staged_value<N>(params, box, voxels + (tap[2] * box.plane + tap[1] * box.pitch + tap[0]), t);
      finite = std::fma(value, 0.f, finite);
      return value;
    };
    if (within && column_in_window && z0 >= params.window_begin[2] && end <= params.window_end[2]) {
      // Everything is found: steps of 2^-32 do.
      const Point first = volpipe::gather::apply(params.start, {double(i), double(j), double(z0)});
      std::int64_t at[3];
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        const FixedPoint point = fixed_point(first.at[a] + kMiddle);
        at[a] = std::int64_t(point.whole - (N - 1) / 2 - low[a]) << 32 | point.fraction;
      }
#pragma unroll(N == 2 ? 2 : 1)
      for (int k = z0; k < end; ++k, target += target_plane) {
        const std::int32_t tap[3] = {std::int32_t(at[0] >> 32), std::int32_t(at[1] >> 32), std::int32_t(at[2] >> 32)};
        const std::uint32_t fraction[3] = {std::uint32_t(at[0]), std::uint32_t(at[1]), std::uint32_t(at[2])};
        *target = sample(tap, fraction);
#pragma unroll
        for (int a = 0; a < 3; ++a) at[a] += box.step[a];
      }
    } else {
#pragma unroll 1
      for (int k = z0; k < end; ++k, target += target_plane) {
        const Point y = volpipe::gather::apply(params.start, {double(i), double(j), double(k)});
        if (!column_in_window || k < params.window_begin[2] || k >= params.window_end[2]) {
          *target = fills.window;
        } else if (is_outside(params, y)) {
          *target = fills.outside;
          missed |= params.boundary != Boundary::constant;
        } else {
          std::int32_t tap[3];
          std::uint32_t fraction[3];
#pragma unroll
          for (int a = 0; a < 3; ++a) {
            const FixedPoint point = fixed_point(y.at[a] + kMiddle);
            tap[a] = point.whole - (N - 1) / 2 - low[a];
            fraction[a] = point.fraction;
          }
          *target = sample(tap, fraction);
        }
      }
    }
  }
  if (__syncthreads_or(missed || finite != 0) && threadIdx.x == 0)
    rest.tiles[atomicAdd(rest.count, 1)] = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

/// Host: a box for tiles of `tile` voxels and `taps` taps an axis; none where it is too large to stage.
std::optional<Box> plan_box(DeviceContext& context, const Params& params, int taps, const std::array<int, 3>& tile,
                            std::size_t voxel_bytes, const void* input);

/// Shared memory of a box.
inline std::size_t shared_bytes(const Box& box) {
  return sizeof(float) * std::size_t(box.plane) * std::size_t(box.size[2]) +
         sizeof(std::uint32_t) * std::size_t(box.size[0] + box.size[1] + box.size[2]);
}

/// Whether it was launched.
template <class T, int N, class General>
bool launch_staged(DeviceContext& context, const GatherPlan& plan, const T* input, const Fills<float>& fills,
                   const General& general, void* output) {
  using Tile = Staging<N>;
  const Params& params = plan.params();
  if (params.field_count || !plan.is_narrow(sizeof(T)) || !fits_grid(params)) return false;
  const std::optional<Box> box = plan_box(context, params, N, {Tile::kX, Tile::kY, Tile::kZ}, sizeof(T), input);
  if (!box) return false;
  const std::size_t bytes = shared_bytes(*box);
  const auto kernel = gather_staged<T, N>;
  if (bytes > 48 * 1024) allow_most_shared_memory(context, reinterpret_cast<const void*>(kernel));
  launch_with_rest(context, params, tiling_of<Tile::kX, Tile::kY, Tile::kZ>(params), general, output,
                   [&](const dim3& grid, const TileList& rest) {
                     kernel<<<grid, kThreads, bytes, stream_of(context)>>>(params, *box, input, fills,
                                                                           static_cast<float*>(output), rest);
                   });
  return true;
}

}  // namespace volpipe::cuda::gathering
