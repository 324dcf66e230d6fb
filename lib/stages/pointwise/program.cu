#include <algorithm>

#include "stages/pointwise/cuda_evaluator.h"
#include "stages/pointwise/program_backends.h"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 128;

template <class T>
using ProgramTile = Tile<kThreads, sizeof(T) == 4 ? 4 : 2>;

template <class R, class T, class Place>
__device__ __forceinline__ void store_voxels(const T (&values)[Place::kVoxels], R* result, std::int64_t count,
                                             const Place& place) {
  using Intermediate =
      std::conditional_t<std::is_floating_point_v<R>, R,
                         std::conditional_t<std::is_same_v<R, std::uint32_t>, std::uint32_t, std::int32_t>>;
  if (place.whole) {
#pragma unroll
    for (int g = 0; g < Place::kVoxels / 4; ++g) {
      Quad<R> quad;
#pragma unroll
      for (int k = 0; k < 4; ++k) quad.voxel[k] = R(Intermediate(values[4 * g + k]));
      *reinterpret_cast<Quad<R>*>(result + place.position(4 * g)) = quad;
    }
  } else {
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v)
      if (place.position(v) < count) result[place.position(v)] = R(Intermediate(values[v]));
  }
}

__device__ void add_count(unsigned long long* total, int mine) {
  const unsigned sum = warp_sum(unsigned(mine));
  if (sum != 0 && threadIdx.x % 32 == 0) atomicAdd(total, (unsigned long long)sum);
}

/// Blocks to a multiprocessor that the registers are shared out among.
constexpr int resident_blocks(Machine machine) {
  switch (machine) {
    case Machine::light:
      return 8;
    case Machine::light_registers:
      return 5;
    case Machine::accumulator:
      return 4;
    default:
      return 3;
  }
}

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    program_kernel(const __grid_constant__ KernelProgram<T> kernel, void* result, DataType result_type,
                   unsigned long long* counts) {
  const ProgramTile<T> tile(blockIdx.x, kernel.count, kernel.quads);
  ThreadEvaluator<T, ProgramTile<T>, kMachine> evaluator;
  evaluator.run(kernel, tile);
  visit(result_type, [&](auto tag) {
    using R = typename decltype(tag)::type;
    store_voxels(evaluator.acc, static_cast<R*>(result), kernel.count, tile);
  });
  if (counts) {
    add_count(&counts[0], evaluator.saturated);
    add_count(&counts[1], evaluator.nan);
  }
}

}  // namespace

namespace {

template <class T, Machine kMachine>
ConversionCounts launch(DeviceContext& context, const ProgramRun& run) {
  auto kernel = make_kernel_program<T>(run.program, run.inputs, run.result_type, run.count);
  kernel.quads = kernel.quads && is_quad_aligned(run.result, run.result_type);
  const cudaStream_t stream = stream_of(context);
  Buffer counts;
  if (converts_to_integer(kernel.program)) {
    counts = context.allocate(sizeof(ConversionCounts));
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(counts.data(), 0, sizeof(ConversionCounts), stream));
  }
  const std::int64_t blocks = divide_up(run.count, ProgramTile<T>::kSize);
  program_kernel<T, kMachine><<<unsigned(blocks), kThreads, 0, stream>>>(
      kernel, run.result, run.result_type, static_cast<unsigned long long*>(counts.data()));
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  ConversionCounts result;
  if (counts) copy_to_host(context, &result, counts.data(), sizeof result);
  return result;
}

template <class T>
ConversionCounts launch(DeviceContext& context, const ProgramRun& run) {
  switch (machine_for(run.program)) {
    case Machine::load_only:
    case Machine::light:
      return launch<T, Machine::light>(context, run);
    case Machine::light_registers:
      return launch<T, Machine::light_registers>(context, run);
    case Machine::accumulator:
      return launch<T, Machine::accumulator>(context, run);
    case Machine::full:
      break;
  }
  return launch<T, Machine::full>(context, run);
}

}  // namespace

ConversionCounts run_program(DeviceContext& context, const ProgramRun& run) {
  return run.precision == Precision::single ? launch<float>(context, run) : launch<double>(context, run);
}

}  // namespace volpipe::cuda
