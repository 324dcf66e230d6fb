#include <type_traits>

#include "device/cuda_context.h"
#include "stages/separable/executors.h"

namespace volpipe::cuda {

namespace {

constexpr int kBlockX = 32, kBlockY = 8;
constexpr int kDepth = 8;  // target planes of one thread

/// One row of an axis: out = fill + weight0 * in[index0] + weight1 * in[index1].
struct alignas(8) Pair {
  std::int32_t index0, index1;
  float weight0, weight1;
  float fill, unused;
};

struct LinearAxes {
  const Pair* x;
  const Pair* y;
  const Pair* z;
  std::int32_t size_x, size_y, size_z;
  unsigned blocks_x, blocks_y, blocks_z;
  std::int64_t source_row, source_plane, source_voxels;
};

template <class T>
struct PlaneSampler {
  const T* row0;
  const T* row1;
  Pair x, y;

  __device__ float operator()(std::int64_t plane) const {
    float v[4];
    v[0] = y.weight0 != 0 && x.weight0 != 0 ? float(row0[plane + x.index0]) : 0.f;
    v[1] = y.weight0 != 0 && x.weight1 != 0 ? float(row0[plane + x.index1]) : 0.f;
    v[2] = y.weight1 != 0 && x.weight0 != 0 ? float(row1[plane + x.index0]) : 0.f;
    v[3] = y.weight1 != 0 && x.weight1 != 0 ? float(row1[plane + x.index1]) : 0.f;
    const float a = fmaf(x.weight1, v[1], fmaf(x.weight0, v[0], x.fill));
    const float b = fmaf(x.weight1, v[3], fmaf(x.weight0, v[2], x.fill));
    float sum = y.fill;
    if (y.weight0 != 0) sum = fmaf(y.weight0, a, sum);
    if (y.weight1 != 0) sum = fmaf(y.weight1, b, sum);
    return sum;
  }
};

/// Each thread: one column of kDepth target voxels along z; a source plane's sample serves both its neighbours.
template <class T>
__global__ void __launch_bounds__(kBlockX* kBlockY) sample_columns(LinearAxes axes, const T* input, float* output) {
  const unsigned block = blockIdx.x;
  const int x = int(block % axes.blocks_x) * kBlockX + int(threadIdx.x);
  const unsigned rest = block / axes.blocks_x;
  const int y = int(rest % axes.blocks_y) * kBlockY + int(threadIdx.y);
  const int z0 = int(rest / axes.blocks_y % axes.blocks_z) * kDepth;
  const std::int64_t component = rest / axes.blocks_y / axes.blocks_z;
  if (x >= axes.size_x || y >= axes.size_y) return;

  const T* source = input + component * axes.source_voxels;
  PlaneSampler<T> sample{nullptr, nullptr, axes.x[x], axes.y[y]};
  sample.row0 = source + sample.y.index0 * axes.source_row;
  sample.row1 = source + sample.y.index1 * axes.source_row;
  const std::int64_t target_plane = std::int64_t(axes.size_x) * axes.size_y;
  float* target = output + (component * axes.size_z + z0) * target_plane + std::int64_t(y) * axes.size_x + x;

  int held0 = -1, held1 = -1;
  float value0 = 0, value1 = 0;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    if (z0 + k >= axes.size_z) break;
    const Pair z = axes.z[z0 + k];
    float low = 0, high = 0;
    if (z.weight0 != 0) low = z.index0 == held1 ? value1 : z.index0 == held0 ? value0 : sample(z.index0 * axes.source_plane);
    if (z.weight1 != 0) high = z.index1 == held1 ? value1 : sample(z.index1 * axes.source_plane);
    float sum = z.fill;
    if (z.weight0 != 0) sum = fmaf(z.weight0, low, sum);
    if (z.weight1 != 0) sum = fmaf(z.weight1, high, sum);
    target[k * target_plane] = sum;
    held0 = z.weight0 != 0 ? z.index0 : -1;
    held1 = z.weight1 != 0 ? z.index1 : -1;
    value0 = low;
    value1 = high;
  }
}

std::vector<Pair> pairs_of(const AxisMatrix& matrix, double fill) {
  std::vector<Pair> pairs;
  const int taps = matrix.taps();
  for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
    const std::int64_t start = matrix.start()[std::size_t(j)];
    const double* weights = matrix.weights().data() + j * taps;
    const double share = matrix.fill_weights()[std::size_t(j)];
    pairs.push_back({std::int32_t(start), std::int32_t((start + taps - 1) % matrix.input_size()), float(weights[0]),
                     taps == 2 ? float(weights[1]) : 0.f, share == 0 ? 0.f : float(share) * float(fill), 0.f});
  }
  return pairs;
}

}  // namespace

void filter_linear(DeviceContext& context, const LinearWork& work, const void* input, void* output) {
  std::vector<Pair> all;
  for (const AxisMatrix* matrix : work.matrices) {
    const std::vector<Pair> pairs = pairs_of(*matrix, work.fill);
    all.insert(all.end(), pairs.begin(), pairs.end());
  }
  const DeviceTable<Pair> table(context, all);
  LinearAxes axes{};
  axes.size_x = std::int32_t(work.matrices[0]->output_size());
  axes.size_y = std::int32_t(work.matrices[1]->output_size());
  axes.size_z = std::int32_t(work.matrices[2]->output_size());
  axes.x = table.data();
  axes.y = axes.x + axes.size_x;
  axes.z = axes.y + axes.size_y;
  axes.blocks_x = unsigned(divide_up(axes.size_x, kBlockX));
  axes.blocks_y = unsigned(divide_up(axes.size_y, kBlockY));
  axes.blocks_z = unsigned(divide_up(axes.size_z, kDepth));
  axes.source_row = work.size[0];
  axes.source_plane = work.size[0] * work.size[1];
  axes.source_voxels = axes.source_plane * work.size[2];
  const std::int64_t blocks = std::int64_t(axes.blocks_x) * axes.blocks_y * axes.blocks_z * work.components;
  visit(work.input_type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    sample_columns<T><<<unsigned(blocks), dim3(kBlockX, kBlockY), 0, stream_of(context)>>>(axes, static_cast<const T*>(input), static_cast<float*>(output));
  });
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace volpipe::cuda
