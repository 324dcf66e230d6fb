// The two executors behind run_program: arguments checked and precision settled by the caller.
#pragma once

#include "device/cuda_hooks.h"
#include "stages/pointwise/program.h"

namespace volpipe {

struct ProgramRun {
  const Program& program;
  std::span<const ProgramInput> inputs;
  void* result;
  DataType result_type;
  std::int64_t count;
  Precision precision;
  ProgramGrid grid;
};

namespace cpu {
ConversionCounts run_program(DeviceContext& context, const ProgramRun& run);
}
namespace cuda {
VOLPIPE_CUDA_CODE ConversionCounts run_program(DeviceContext& context, const ProgramRun& run);
}

/// Throws Error(internal) when a program reads an input that is not there.
void check_inputs(const Program& program, std::span<const ProgramInput> inputs);
/// The same when it asks for places and `count` values are neither whole grids nor part of one.
void check_grid(const Program& program, const ProgramGrid& grid, std::int64_t count);

}  // namespace volpipe
