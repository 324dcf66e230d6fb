// The kernels of a custom stage on one image.
#pragma once

#include <string>
#include <vector>

#include "device/loaded_kernels.h"
#include "stages/custom/kernel_code.h"
#include "stages/pointwise/program.h"
#include "volume/volume.h"

namespace volpipe {

struct KernelCall {
  KernelKind kind;
  std::string entry;  ///< raw
  LaunchSize size;    ///< raw
  const Volume& image;
  std::vector<const Volume*> inputs;  ///< of the image's grid, with one component or as many
  std::vector<double> constants;
};

/// Device memory that a reduction of an image takes besides input and output.
std::size_t reduction_scratch_bytes(std::int64_t values);

}  // namespace volpipe

namespace volpipe::cuda {

/// Runs the kernels of a program that make_kernel_program() made, in the context's order. A raw kernel finds `output`
/// filled with zeros and is waited for, so that its fault is Error(device) with its name. The counts are those of
/// conversions to integers by elementwise and reduction code, which are waited for, too.
VOLPIPE_CUDA_CODE ConversionCounts run_kernel(DeviceContext& context, const LoadedKernels& kernels,
                                              const KernelCall& call, Volume& output);

}  // namespace volpipe::cuda
