#include "stages/pointwise/cuda_evaluator.h"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 128;

template <class T>
using ProgramTile = Tile<kThreads, sizeof(T) == 4 ? 4 : 2>;

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
                   ConversionCounts* counts) {
  const ProgramTile<T> tile(blockIdx.x, kernel.count, kernel.quads);
  ThreadEvaluator<T, ProgramTile<T>, kMachine> evaluator;
  evaluator.run(kernel, tile);
  visit(result_type, [&](auto tag) {
    using R = typename decltype(tag)::type;
    store_voxels(evaluator.acc, static_cast<R*>(result), kernel.count, tile);
  });
  evaluator.counts.add_to(counts);
}

template <class T, Machine kMachine>
ConversionCounts launch(DeviceContext& context, const ProgramRun& run) {
  auto kernel = make_kernel_program<T>(run.program, run.inputs, run.result_type, run.count);
  kernel.quads = kernel.quads && is_quad_aligned(run.result, run.result_type);
  DeviceCounts counts(context, kernel.program);
  const std::int64_t blocks = divide_up(run.count, ProgramTile<T>::kSize);
  program_kernel<T, kMachine>
      <<<unsigned(blocks), kThreads, 0, stream_of(context)>>>(kernel, run.result, run.result_type, counts.data());
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return counts.fetch(context);
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
      return launch<T, Machine::full>(context, run);
    case Machine::general:
      break;
  }
  return run_general(context, run);
}

}  // namespace

ConversionCounts run_program(DeviceContext& context, const ProgramRun& run) {
  return run.precision == Precision::single ? launch<float>(context, run) : launch<double>(context, run);
}

}  // namespace volpipe::cuda
