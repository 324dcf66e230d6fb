// From a user's code to a whole CUDA C++ program: the loops, the variables and the conversions around it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device/kernel_program.h"
#include "volume/data_type.h"

namespace volpipe {

/// elementwise: statements that every voxel runs. reduction: an expression of every voxel, brought together in one
/// number, and statements that every voxel runs with it. raw: a whole kernel.
enum class KernelKind : std::uint8_t { elementwise, reduction, raw };

struct KernelCode {
  KernelKind kind = KernelKind::elementwise;
  UserCode source{};
  UserCode reduce{}, identity{}, post{};  ///< reduction
  std::string entry{};                    ///< raw: the kernel's name
};

/// The variables that the code sees. Names and types alone are part of the program, so it is compiled once for all
/// sizes, places and values.
struct KernelVariables {
  DataType real = DataType::float32;  ///< what voxels and constants are computed in
  DataType in = DataType::float32, out = DataType::float32;
  std::vector<std::pair<std::string, DataType>> inputs{};  ///< other images
  std::vector<std::string> constants{};
};

/// Programs of elementwise and reduction code take what varies in one argument of 8-byte words: nx, ny, nz, components,
/// the index-to-world map (12 doubles, row by row), the image's address, address and voxels from one component to the
/// next (0: one component for all) of each input, each constant. Their kernels:
///   kElementwiseKernel(out, words, const double* result, unsigned long long counts[2]), grid x over voxels, y over
///     components; counts: voxels that were saturated, NaN that became 0
///   kMapKernel(double* results, words), a block a chunk
///   kFoldKernel(double* results, words, const double* values, long long count), a block a chunk
inline constexpr char kElementwiseKernel[] = "volpipe_elementwise";
inline constexpr char kMapKernel[] = "volpipe_map_chunks";
inline constexpr char kFoldKernel[] = "volpipe_fold_chunks";
inline constexpr int kKernelThreads = 256;    ///< a block
inline constexpr int kVoxelsPerThread = 4;    ///< at one time, of an elementwise kernel
inline constexpr int kReductionChunk = 4096;  ///< values: a fixed number, so that the order of a reduction is fixed
inline constexpr std::size_t kMostVariables = 64;  ///< inputs and constants

KernelProgram make_kernel_program(const KernelCode& code, const KernelVariables& variables);

/// Each operation of elementwise and reduction code rounds by itself, as on the CPU; raw code is compiled as nvcc does.
std::vector<std::string> compiler_options(KernelKind kind);

/// Names of the kernels that `source` declares as __global__ void NAME(...).
std::vector<std::string> kernels_in(const std::string& source);

/// Why a variable of the user's cannot have this name, or "".
std::string why_no_variable(const std::string& name);

}  // namespace volpipe
