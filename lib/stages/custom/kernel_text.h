// The CUDA C++ around a user's code, compiled with it at run time. Every name of its own begins with volpipe_;
// functions are left open where the variables in scope and the code follow.
#pragma once

#include <string_view>

namespace volpipe {

/// What headers would give; the compiler gets none.
inline constexpr char kPrelude[] = R"(typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_PI 3.14159265358979323846
)";

/// Where voxel `voxel` of a component lies; divisions of 32 bits are several times faster.
inline constexpr char kPlaceText[] = R"(struct volpipe_place { long long i, j, k; };
static __device__ __forceinline__ volpipe_place volpipe_place_of(const volpipe_arguments& a, const long long voxel) {
  if (a.nx * a.ny * a.nz <= 0xffffffffll) {
    const unsigned nx = unsigned(a.nx), ny = unsigned(a.ny), row = unsigned(voxel) / nx;
    return {unsigned(voxel) % nx, row % ny, row / ny};
  }
  const long long row = voxel / a.nx;
  return {voxel % a.nx, row % a.ny, row / a.ny};
}
static __device__ __forceinline__ real volpipe_world(const volpipe_arguments& a, const int axis, const volpipe_place& at) {
  const double* row = a.world + 4 * axis;
  return real(row[0] * at.i + row[1] * at.j + row[2] * at.k + row[3]);
}
)";

/// As to_integer of stages/pointwise/program_ops.h: half away from zero, saturated, NaN gives 0.
inline constexpr char kConversionText[] = R"(struct volpipe_counts { unsigned saturated, nan; };
static __device__ __forceinline__ volpipe_out volpipe_convert(const real value, volpipe_counts& counts) {
  if (!volpipe_rounds) return volpipe_out(value);
  if (value != value) { ++counts.nan; return volpipe_out(0); }
  const real whole = trunc(value);
  const real rounded = fabs(value - whole) >= real(0.5) ? whole + copysign(real(1), value) : whole;
  if (rounded < real(volpipe_low)) { ++counts.saturated; return volpipe_out(volpipe_low); }
  if (rounded > real(volpipe_high)) { ++counts.saturated; return volpipe_out(volpipe_high); }
  return volpipe_out(rounded);
}
)";

inline constexpr char kPlaceInScope[] =
    R"(  const long long nx = volpipe_a.nx, ny = volpipe_a.ny, nz = volpipe_a.nz, components = volpipe_a.components;
  const volpipe_place volpipe_at = volpipe_place_of(volpipe_a, volpipe_v);
  const long long i = volpipe_at.i, j = volpipe_at.j, k = volpipe_at.k;
  const real x = volpipe_world(volpipe_a, 0, volpipe_at), y = volpipe_world(volpipe_a, 1, volpipe_at), z = volpipe_world(volpipe_a, 2, volpipe_at);
  const real in = real(volpipe_a.in[component * (nx * ny * nz) + volpipe_v]);
)";

inline constexpr char kVoxelFunction[] =
    R"(static __device__ __forceinline__ void volpipe_voxel(const volpipe_arguments& volpipe_a, const long long component, const long long volpipe_v, const double volpipe_result, real& out) {
)";

/// Loads of several voxels are under way at one time: their results are stored after all of them.
inline constexpr char kElementwiseText[] =
    R"(extern "C" __global__ void __launch_bounds__(volpipe_threads) volpipe_elementwise(volpipe_out* out, const volpipe_arguments a, const double* result, unsigned long long* counts) {
  const long long voxels = a.nx * a.ny * a.nz, block = volpipe_threads * volpipe_voxels;
  const double number = result ? *result : 0.0;
  volpipe_counts counted = {0, 0};
  for (long long component = blockIdx.y; component < a.components; component += gridDim.y) {
    volpipe_out* to = out + component * voxels;
    for (long long begin = blockIdx.x * block; begin < voxels; begin += gridDim.x * block) {
      const long long first = begin + threadIdx.x;
      real values[volpipe_voxels];
      if (begin + block <= voxels) {
        #pragma unroll
        for (int n = 0; n < volpipe_voxels; ++n) volpipe_voxel(a, component, first + n * volpipe_threads, number, values[n]);
        #pragma unroll
        for (int n = 0; n < volpipe_voxels; ++n) to[first + n * volpipe_threads] = volpipe_convert(values[n], counted);
      } else {
        for (long long voxel = first; voxel < voxels; voxel += volpipe_threads) {
          volpipe_voxel(a, component, voxel, number, values[0]);
          to[voxel] = volpipe_convert(values[0], counted);
        }
      }
    }
  }
  if (counted.saturated) atomicAdd(counts, (unsigned long long)counted.saturated);
  if (counted.nan) atomicAdd(counts + 1, (unsigned long long)counted.nan);
}
)";

inline constexpr char kMapFunction[] =
    R"(static __device__ __forceinline__ double volpipe_map(const volpipe_arguments& volpipe_a, const long long component, const long long volpipe_v) {
)";
inline constexpr char kReduceFunction[] =
    R"(static __device__ __forceinline__ double volpipe_reduce(const volpipe_arguments& volpipe_a, const double a, const double b) {
)";
inline constexpr char kIdentityFunction[] =
    R"(static __device__ __forceinline__ double volpipe_identity(const volpipe_arguments& volpipe_a) {
)";

inline constexpr char kReductionText[] = R"(template <class Value>
static __device__ __forceinline__ void volpipe_reduce_chunk(const volpipe_arguments& a, const long long count, double* results, const Value& value_of) {
  __shared__ double part[volpipe_threads];
  const long long begin = (long long)blockIdx.x * volpipe_chunk;
  const long long end = begin + volpipe_chunk < count ? begin + volpipe_chunk : count;
  double value = volpipe_identity(a);
  for (long long n = begin + threadIdx.x; n < end; n += volpipe_threads) value = volpipe_reduce(a, value, value_of(n));
  part[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = volpipe_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] = volpipe_reduce(a, part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) results[blockIdx.x] = part[0];
}
extern "C" __global__ void __launch_bounds__(volpipe_threads) volpipe_map_chunks(double* results, const volpipe_arguments a) {
  const long long voxels = a.nx * a.ny * a.nz;
  volpipe_reduce_chunk(a, voxels * a.components, results, [&](const long long n) {
    const long long component = a.components == 1 ? 0 : n / voxels;
    return volpipe_map(a, component, n - component * voxels);
  });
}
extern "C" __global__ void __launch_bounds__(volpipe_threads) volpipe_fold_chunks(double* results, const volpipe_arguments a, const double* values, const long long count) {
  volpipe_reduce_chunk(a, count, results, [&](const long long n) { return values[n]; });
}
)";

inline constexpr char kSameType[] = R"(template <class A, class B> constexpr bool volpipe_same = false;
template <class A> constexpr bool volpipe_same<A, A> = true;
)";

/// The variables that every code has, words of CUDA C++ and of the prelude: between blanks.
inline constexpr std::string_view kTakenWords =
    " in out i j k x y z nx ny nz component components result a b real "
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const "
    " constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern "
    " false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or "
    " or_eq private protected public register reinterpret_cast return short signed sizeof static static_assert "
    " static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using "
    " virtual void volatile wchar_t while xor xor_eq "
    " int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t INFINITY NAN M_PI "
    " threadIdx blockIdx blockDim gridDim warpSize ";

}  // namespace volpipe
