#include <algorithm>
#include <array>
#include <bit>

#include "device/cuda_context.h"
#include "stages/custom/run_kernel.h"
#include "volume/error.h"

namespace volpipe::cuda {

namespace {

using Words = std::vector<std::uint64_t>;

/// The argument that programs call volpipe_arguments.
Words argument_words(const KernelCall& call) {
  Words words;
  const auto add = [&words](auto value) { words.push_back(std::bit_cast<std::uint64_t>(value)); };
  const Geometry& geometry = call.image.geometry();
  for (const std::int64_t n : geometry.size()) add(n);
  add(call.image.info().components);
  const Affine& world = geometry.index_to_world();
  for (int row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) add(world.linear[row][column]);
    add(world.offset[std::size_t(row)]);
  }
  add(call.image.data());
  for (const Volume* input : call.inputs) {
    add(input->data());
    add(input->info().components == 1 ? std::int64_t(0) : geometry.voxel_count());
  }
  for (const double constant : call.constants) add(constant);
  return words;
}

/// The reduction's result, in device memory.
Buffer reduce(DeviceContext& context, const LoadedKernels& kernels, const KernelCall& call, Words& words) {
  std::int64_t count = divide_up(call.image.info().value_count(), kReductionChunk);
  Buffer values = context.allocate(std::size_t(count) * sizeof(double));
  void* data = values.data();
  kernels.launch(context, kMapKernel, {{count, 1, 1}, {kKernelThreads, 1, 1}}, std::vector<void*>{&data, words.data()});
  while (count > 1) {
    const std::int64_t chunks = divide_up(count, kReductionChunk);
    Buffer results = context.allocate(std::size_t(chunks) * sizeof(double));
    void* results_data = results.data();
    kernels.launch(context, kFoldKernel, {{chunks, 1, 1}, {kKernelThreads, 1, 1}},
                   std::vector<void*>{&results_data, words.data(), &data, &count});
    values = std::move(results);
    data = values.data();
    count = chunks;
  }
  return values;
}

LaunchSize over_voxels(DeviceContext& context, const VolumeInfo& info) {
  const std::int64_t blocks = divide_up(info.geometry.voxel_count(), kKernelThreads * kVoxelsPerThread);
  const std::int64_t most = std::int64_t(multiprocessor_count(context)) * 32;
  return {{std::min(blocks, most), std::min<std::int64_t>(info.components, 0xffff), 1}, {kKernelThreads, 1, 1}};
}

ConversionCounts run_elementwise(DeviceContext& context, const LoadedKernels& kernels, const KernelCall& call,
                                 Words& words, const Buffer& result, Volume& output) {
  std::array<unsigned long long, 2> counts{};
  Buffer counted;
  if (!is_floating(output.dtype())) {
    counted = context.allocate(sizeof counts);
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(counted.data(), 0, sizeof counts, stream_of(context)));
  }
  void* out = output.data();
  const void* number = result.data();
  void* counts_data = counted.data();
  kernels.launch(context, kElementwiseKernel, over_voxels(context, call.image.info()),
                 std::vector<void*>{&out, words.data(), &number, &counts_data});
  if (counted) copy_to_host(context, counts.data(), counted.data(), sizeof counts);
  return {std::int64_t(counts[0]), std::int64_t(counts[1])};
}

void run_raw(DeviceContext& context, const LoadedKernels& kernels, const KernelCall& call, Volume& output) {
  VOLPIPE_CHECK_CUDA(cudaMemsetAsync(output.data(), 0, output.info().bytes(), stream_of(context)));
  std::vector<const void*> pointers{output.data(), call.image.data()};
  for (const Volume* input : call.inputs) pointers.push_back(input->data());
  const Index3& size = call.image.geometry().size();
  std::array<long long, 4> numbers{size[0], size[1], size[2], call.image.info().components};
  std::vector<double> constants = call.constants;
  std::vector<void*> arguments;
  for (const void*& pointer : pointers) arguments.push_back(&pointer);
  for (long long& number : numbers) arguments.push_back(&number);
  for (double& constant : constants) arguments.push_back(&constant);
  kernels.launch(context, call.entry, call.size, arguments);
  try {
    context.synchronize();  // else a fault of the user's kernel would show up in a later stage
  } catch (const Error& error) { throw Error(error.code(), "the kernel '" + call.entry + "' failed: " + error.what()); }
}

}  // namespace

ConversionCounts run_kernel(DeviceContext& context, const LoadedKernels& kernels, const KernelCall& call,
                            Volume& output) {
  if (call.kind == KernelKind::raw) {
    run_raw(context, kernels, call, output);
    return {};
  }
  Words words = argument_words(call);
  const Buffer result = call.kind == KernelKind::reduction ? reduce(context, kernels, call, words) : Buffer();
  return run_elementwise(context, kernels, call, words, result, output);
}

}  // namespace volpipe::cuda
