// CUDA C++ compiled at run time by NVRTC, which is a library of the CUDA Toolkit that is loaded when it is first
// needed.
#pragma once

#include <string>
#include <vector>

#include "device/kernel_cache.h"
#include "device/kernel_program.h"
#include "volume/notices.h"

namespace volpipe {

/// Empty when NVRTC can be loaded; else which file is missing and how to get it.
std::string why_no_kernel_compiler();

/// Machine code (a cubin) for GPUs of compute capability `architecture` (90: 9.0), or one below it of the same
/// generation where NVRTC does not know it. Throws Error(usage) with explain_compile_log(), Error(device) when NVRTC
/// cannot be loaded or knows no such GPU.
std::string compile_kernels(const KernelProgram& program, int architecture, const std::vector<std::string>& options);

/// The same through a cache. The key is a hash of the program's text, architecture, options and compiler. NVRTC is not
/// loaded for what is cached as long as the file of the compiler that was used last has not changed, nor where none can
/// be loaded. A cache that cannot be written is the notice `kernel_cache`.
std::string compile_kernels(const KernelProgram& program, int architecture, const std::vector<std::string>& options,
                            const KernelCache& cache, Notices& notices);

}  // namespace volpipe
