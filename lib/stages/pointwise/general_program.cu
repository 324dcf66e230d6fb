#include <algorithm>

#include "stages/pointwise/cuda_general.cuh"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 128, kResidentBlocks = 5;
constexpr std::size_t kMostParameterBytes = 4096;

template <class T>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    general_kernel(const __grid_constant__ GeneralProgram<T> general, void* result, DataType result_type,
                   ConversionCounts* counts) {
  static_assert(sizeof general + 3 * sizeof(void*) <= kMostParameterBytes);
  using Evaluator = GeneralEvaluator<T, kThreads>;
  const typename Evaluator::Voxels voxels(blockIdx.x, general.kernel.count, general.kernel.quads);
  typename Evaluator::Registers registers;
  Evaluator evaluator(general, voxels, registers);
  evaluator.run();
  visit(result_type, [&](auto tag) {
    using R = typename decltype(tag)::type;
    store_voxels(evaluator.acc, static_cast<R*>(result), general.kernel.count, voxels);
  });
  evaluator.counts.add_to(counts);
}

bool looks_at_the_grid(const Instruction& i) { return i.op >= Op::coordinate && i.op <= Op::field; }

template <class T>
ConversionCounts launch(DeviceContext& context, const ProgramRun& run) {
  const DeviceTables tables(context, run.program, run.grid);
  const auto instructions = run.program.instructions();
  GeneralProgram<T> general{make_kernel_program<T>(run.program, run.inputs, run.result_type, run.count),
                            tables.tables(), std::any_of(instructions.begin(), instructions.end(), looks_at_the_grid)};
  general.kernel.quads = general.kernel.quads && is_quad_aligned(run.result, run.result_type);
  DeviceCounts counts(context, general.kernel.program);
  const std::int64_t blocks = divide_up(run.count, GeneralEvaluator<T, kThreads>::Voxels::kSize);
  general_kernel<T>
      <<<unsigned(blocks), kThreads, 0, stream_of(context)>>>(general, run.result, run.result_type, counts.data());
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  return counts.fetch(context);
}

}  // namespace

ConversionCounts run_general(DeviceContext& context, const ProgramRun& run) {
  return run.precision == Precision::single ? launch<float>(context, run) : launch<double>(context, run);
}

}  // namespace volpipe::cuda
