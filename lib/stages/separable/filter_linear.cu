#include <algorithm>

#include "device/cuda_context.h"
#include "stages/separable/executors.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda {

namespace {

constexpr int kBlockX = 32, kBlockY = 8;
constexpr int kBlocks = 5;           // of a multiprocessor
constexpr int kAhead = 2;            // source planes on their way
constexpr std::int64_t kDepth = 24;  // most target planes of one thread
constexpr std::int64_t kBlocksPerMultiprocessor = 16;

/// A target row: fill + weight0 * in[index] + weight1 * in[index + 1].
struct alignas(16) Pair {
  std::int32_t index;
  float weight0, weight1, fill;
};

/// A source plane to sample, and how many target planes can be written once it is.
struct Step {
  std::int32_t plane, writes;
};
/// A target plane from the last two planes sampled.
struct alignas(16) Write {
  float previous, current, fill, unused;
};
/// The steps of the target planes from `target` on.
struct Chunk {
  std::int32_t begin, end, target;
};

struct LinearAxes {
  const Pair* x;
  const Pair* y;
  const Chunk* chunks;
  const Step* steps;
  const Write* writes;
  std::int32_t size_x, size_y, size_z;
  unsigned blocks_x, blocks_y, chunk_count;
  std::int64_t source_row, source_plane, source_voxels;
};

/// One position in the plane: where its four voxels are, and what they sum to.
template <class T>
struct PlaneSampler {
  const T* row0;
  const T* row1;
  Pair y;

  __device__ __forceinline__ void load(const Pair& x, std::int64_t plane, T (&raw)[4]) const {
    const T *at0 = row0 + plane, *at1 = row1 + plane;
    raw[0] = y.weight0 != 0 && x.weight0 != 0 ? at0[0] : T(0);
    raw[1] = y.weight0 != 0 && x.weight1 != 0 ? at0[1] : T(0);
    raw[2] = y.weight1 != 0 && x.weight0 != 0 ? at1[0] : T(0);
    raw[3] = y.weight1 != 0 && x.weight1 != 0 ? at1[1] : T(0);
  }
  __device__ __forceinline__ float sum(const Pair& x, const T (&raw)[4]) const {
    const float first = fmaf(x.weight1, float(raw[1]), fmaf(x.weight0, float(raw[0]), x.fill));
    const float second = fmaf(x.weight1, float(raw[3]), fmaf(x.weight0, float(raw[2]), x.fill));
    float sum = y.fill;
    if (y.weight0 != 0) sum = fmaf(y.weight0, first, sum);
    if (y.weight1 != 0) sum = fmaf(y.weight1, second, sum);
    return sum;
  }
};

/// Each thread: a column of target voxels along z; every source plane it needs is sampled once, kAhead of them on their
/// way.
template <class T>
__global__ void __launch_bounds__(kBlockX* kBlockY, kBlocks)
    sample_columns(LinearAxes axes, const T* input, float* output) {
  const int x = int(blockIdx.x % axes.blocks_x) * kBlockX + int(threadIdx.x);
  const unsigned rest = blockIdx.x / axes.blocks_x;
  const int y = int(rest % axes.blocks_y) * kBlockY + int(threadIdx.y);
  const Chunk chunk = axes.chunks[rest / axes.blocks_y % axes.chunk_count];
  const std::int64_t component = rest / axes.blocks_y / axes.chunk_count;
  if (x >= axes.size_x || y >= axes.size_y) return;

  const Pair pair_x = axes.x[x], pair_y = axes.y[y];
  const T* row = input + component * axes.source_voxels + pair_y.index * axes.source_row + pair_x.index;
  const PlaneSampler<T> sampler{row, row + axes.source_row, pair_y};
  const auto load = [&](int step, T(&raw)[4]) {
    sampler.load(pair_x, axes.steps[step].plane * axes.source_plane, raw);
  };
  T raw[kAhead][4];
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (chunk.begin + a < chunk.end) load(chunk.begin + a, raw[a]);

  const std::int64_t target_plane = std::int64_t(axes.size_x) * axes.size_y;
  float* target = output + (component * axes.size_z + chunk.target) * target_plane + std::int64_t(y) * axes.size_x + x;
  const Write* next = axes.writes + chunk.target;
  float previous = 0;
  for (int step = chunk.begin; step < chunk.end; step += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (step + a >= chunk.end) break;
      const float current = sampler.sum(pair_x, raw[a]);
      if (step + a + kAhead < chunk.end) load(step + a + kAhead, raw[a]);
      for (int writes = axes.steps[step + a].writes; writes > 0; --writes, ++next, target += target_plane) {
        const Write write = *next;
        float sum = write.fill;
        if (write.previous != 0) sum = fmaf(write.previous, previous, sum);
        if (write.current != 0) sum = fmaf(write.current, current, sum);
        *target = sum;
      }
      previous = current;
    }
  }
}

float fill_share(const AxisMatrix& matrix, std::int64_t j, double fill) {
  const double share = matrix.fill_weights()[std::size_t(j)];
  return share == 0 ? 0.f : float(share) * float(fill);
}

std::vector<Pair> pairs_of(const AxisMatrix& matrix, double fill) {
  std::vector<Pair> pairs;
  const int taps = matrix.taps();
  for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
    const double* weights = matrix.weights().data() + j * taps;
    pairs.push_back({std::int32_t(matrix.start()[std::size_t(j)]), float(weights[0]),
                     taps == 2 ? float(weights[1]) : 0.f, fill_share(matrix, j, fill)});
  }
  return pairs;
}

/// The order in which the planes along z are sampled and written.
class Schedule {
 public:
  Schedule(const AxisMatrix& matrix, double fill, std::int64_t depth)
      : pairs_(pairs_of(matrix, fill)), size_(std::int32_t(matrix.input_size())) {
    for (std::int64_t z = 0; z < matrix.output_size(); z += depth) {
      const auto begin = std::int32_t(steps.size());
      previous_ = current_ = -1;
      for (std::int64_t k = z; k < std::min(z + depth, matrix.output_size()); ++k) add(std::size_t(k));
      chunks.push_back({begin, std::int32_t(steps.size()), std::int32_t(z)});
    }
  }

  std::vector<Chunk> chunks;
  std::vector<Step> steps;
  std::vector<Write> writes;

 private:
  std::int32_t second_plane(const Pair& pair) const { return pair.index + 1 < size_ ? pair.index + 1 : 0; }

  bool needs(std::size_t k, std::int32_t plane) const {
    if (k >= pairs_.size()) return false;
    const Pair& pair = pairs_[k];
    return (pair.weight0 != 0 && pair.index == plane) || (pair.weight1 != 0 && second_plane(pair) == plane);
  }

  void sample(std::int32_t plane) {
    steps.push_back({plane, 0});
    previous_ = current_;
    current_ = plane;
  }

  void add(std::size_t k) {
    const Pair& pair = pairs_[k];
    const std::int32_t first = pair.index, second = second_plane(pair);
    const auto held = [&](std::int32_t plane) { return plane == previous_ || plane == current_; };
    if (pair.weight0 != 0 && pair.weight1 != 0) {
      if (!held(first) || !held(second)) sample_both(k, first, second);
    } else if (const std::int32_t only = pair.weight1 != 0 ? second : first;
               current_ < 0 || (needs(k, only) && !held(only))) {
      sample(only);
    }
    Write write{0, 0, pair.fill, 0};
    if (pair.weight0 != 0) (first == current_ ? write.current : write.previous) = pair.weight0;
    if (pair.weight1 != 0) (second == current_ ? write.current : write.previous) = pair.weight1;
    writes.push_back(write);
    ++steps.back().writes;
  }

  /// Ends with the plane that the next target plane needs too.
  void sample_both(std::size_t k, std::int32_t first, std::int32_t second) {
    const bool backward = current_ == second || (current_ != first && needs(k + 1, first) && !needs(k + 1, second));
    if (backward) std::swap(first, second);
    if (current_ != first) sample(first);
    sample(second);
  }

  std::vector<Pair> pairs_;
  std::int32_t size_;
  std::int32_t previous_ = -1, current_ = -1;
};

}  // namespace

void filter_linear(DeviceContext& context, const LinearWork& work, const void* input, void* output) {
  const AxisMatrix &x = *work.matrices[0], &y = *work.matrices[1], &z = *work.matrices[2];
  const std::int64_t blocks_in_plane =
      divide_up(x.output_size(), kBlockX) * divide_up(y.output_size(), kBlockY) * work.components;
  const std::int64_t wanted = divide_up(kBlocksPerMultiprocessor * multiprocessor_count(context), blocks_in_plane);
  const Schedule schedule(z, work.fill, std::clamp<std::int64_t>(z.output_size() / wanted, 1, kDepth));

  PackedTables tables;
  const std::size_t at_x = tables.add(pairs_of(x, work.fill)), at_y = tables.add(pairs_of(y, work.fill)),
                    at_chunks = tables.add(schedule.chunks), at_steps = tables.add(schedule.steps),
                    at_writes = tables.add(schedule.writes);
  tables.upload(context);
  LinearAxes axes{};
  axes.x = tables.at<Pair>(at_x);
  axes.y = tables.at<Pair>(at_y);
  axes.chunks = tables.at<Chunk>(at_chunks);
  axes.steps = tables.at<Step>(at_steps);
  axes.writes = tables.at<Write>(at_writes);
  axes.size_x = std::int32_t(x.output_size());
  axes.size_y = std::int32_t(y.output_size());
  axes.size_z = std::int32_t(z.output_size());
  axes.blocks_x = unsigned(divide_up(axes.size_x, kBlockX));
  axes.blocks_y = unsigned(divide_up(axes.size_y, kBlockY));
  axes.chunk_count = unsigned(schedule.chunks.size());
  axes.source_row = work.size[0];
  axes.source_plane = work.size[0] * work.size[1];
  axes.source_voxels = axes.source_plane * work.size[2];
  const std::int64_t blocks = blocks_in_plane * axes.chunk_count;
  visit(work.input_type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    sample_columns<T><<<unsigned(blocks), dim3(kBlockX, kBlockY), 0, stream_of(context)>>>(
        axes, static_cast<const T*>(input), static_cast<float*>(output));
  });
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace volpipe::cuda
