#include <algorithm>

#include "device/cuda_context.h"
#include "stages/separable/executors.h"
#include "stages/separable/packed_tables.h"

namespace volpipe::cuda {

namespace {

constexpr int kBlockX = 32, kBlockY = 8;
constexpr int kAhead = 3;             // source planes on their way
constexpr std::int64_t kDepth = 24;   // most target planes of one thread
constexpr std::int64_t kBlocksPerMultiprocessor = 16;

/// A target row along x or y: fill + weight0 * in[index0] + weight1 * in[index1].
struct alignas(8) Pair {
  std::int32_t index0, index1;
  float weight0, weight1;
  float fill, unused;
};

/// A source plane to sample, and how many target planes can be written once it is.
struct Step { std::int32_t plane, writes; };
/// A target plane from the last two planes sampled.
struct alignas(16) Write { float previous, current, fill, unused; };
/// The steps of the target planes from `target` on.
struct Chunk { std::int32_t begin, end, target; };

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

/// One position in the plane: its four voxels and what they sum to.
template <class T>
struct PlaneSampler {
  const T* voxel[4];
  Pair x, y;

  __device__ PlaneSampler(const LinearAxes& axes, const T* source, int column, int row) : x(axes.x[column]), y(axes.y[row]) {
    const T* row0 = source + y.index0 * axes.source_row;
    const T* row1 = source + y.index1 * axes.source_row;
    voxel[0] = row0 + x.index0;
    voxel[1] = row0 + x.index1;
    voxel[2] = row1 + x.index0;
    voxel[3] = row1 + x.index1;
  }
  __device__ __forceinline__ void load(std::int64_t plane, T (&raw)[4]) const {
    raw[0] = y.weight0 != 0 && x.weight0 != 0 ? voxel[0][plane] : T(0);
    raw[1] = y.weight0 != 0 && x.weight1 != 0 ? voxel[1][plane] : T(0);
    raw[2] = y.weight1 != 0 && x.weight0 != 0 ? voxel[2][plane] : T(0);
    raw[3] = y.weight1 != 0 && x.weight1 != 0 ? voxel[3][plane] : T(0);
  }
  __device__ __forceinline__ float sum(const T (&raw)[4]) const {
    const float first = fmaf(x.weight1, float(raw[1]), fmaf(x.weight0, float(raw[0]), x.fill));
    const float second = fmaf(x.weight1, float(raw[3]), fmaf(x.weight0, float(raw[2]), x.fill));
    float sum = y.fill;
    if (y.weight0 != 0) sum = fmaf(y.weight0, first, sum);
    if (y.weight1 != 0) sum = fmaf(y.weight1, second, sum);
    return sum;
  }
};

/// Each thread: a column of target voxels along z; every source plane it needs is sampled once, kAhead of them at a time.
template <class T>
__global__ void __launch_bounds__(kBlockX* kBlockY) sample_columns(LinearAxes axes, const T* input, float* output) {
  const int x = int(blockIdx.x % axes.blocks_x) * kBlockX + int(threadIdx.x);
  const unsigned rest = blockIdx.x / axes.blocks_x;
  const int y = int(rest % axes.blocks_y) * kBlockY + int(threadIdx.y);
  const Chunk chunk = axes.chunks[rest / axes.blocks_y % axes.chunk_count];
  const std::int64_t component = rest / axes.blocks_y / axes.chunk_count;
  if (x >= axes.size_x || y >= axes.size_y) return;

  const PlaneSampler<T> sampler(axes, input + component * axes.source_voxels, x, y);
  const std::int64_t target_plane = std::int64_t(axes.size_x) * axes.size_y;
  float* target = output + (component * axes.size_z + chunk.target) * target_plane + std::int64_t(y) * axes.size_x + x;
  const Write* write = axes.writes + chunk.target;
  T raw[kAhead][4];
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (chunk.begin + a < chunk.end) sampler.load(axes.steps[chunk.begin + a].plane * axes.source_plane, raw[a]);

  float previous = 0;
  for (int step = chunk.begin; step < chunk.end; step += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (step + a >= chunk.end) break;
      const float current = sampler.sum(raw[a]);
      if (step + a + kAhead < chunk.end) sampler.load(axes.steps[step + a + kAhead].plane * axes.source_plane, raw[a]);
      for (int writes = axes.steps[step + a].writes; writes > 0; --writes, ++write, target += target_plane) {
        float sum = write->fill;
        if (write->previous != 0) sum = fmaf(write->previous, previous, sum);
        if (write->current != 0) sum = fmaf(write->current, current, sum);
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
    const std::int64_t start = matrix.start()[std::size_t(j)];
    const double* weights = matrix.weights().data() + j * taps;
    pairs.push_back({std::int32_t(start), std::int32_t((start + taps - 1) % matrix.input_size()), float(weights[0]),
                     taps == 2 ? float(weights[1]) : 0.f, fill_share(matrix, j, fill), 0.f});
  }
  return pairs;
}

/// The order in which the planes along z are sampled and written.
class Schedule {
 public:
  Schedule(const AxisMatrix& matrix, double fill, std::int64_t depth) : pairs_(pairs_of(matrix, fill)) {
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
  bool needs(std::size_t k, std::int32_t plane) const {
    const Pair& pair = pairs_[k];
    return (pair.weight0 != 0 && pair.index0 == plane) || (pair.weight1 != 0 && pair.index1 == plane);
  }

  void sample(std::int32_t plane) {
    steps.push_back({plane, 0});
    previous_ = current_;
    current_ = plane;
  }

  void add(std::size_t k) {
    const Pair& pair = pairs_[k];
    const bool first = pair.weight0 != 0, second = pair.weight1 != 0;
    const auto held = [&](std::int32_t plane) { return plane == previous_ || plane == current_; };
    if (first && second && !(held(pair.index0) && held(pair.index1))) {
      const bool backward = current_ == pair.index1 || (current_ != pair.index0 && k + 1 < pairs_.size() && needs(k + 1, pair.index0) && !needs(k + 1, pair.index1));
      const std::int32_t then = backward ? pair.index0 : pair.index1, now = backward ? pair.index1 : pair.index0;
      if (current_ != now) sample(now);
      sample(then);
    } else if (first != second && !held(first ? pair.index0 : pair.index1)) {
      sample(first ? pair.index0 : pair.index1);
    } else if (current_ < 0) {
      sample(pair.index0);
    }
    Write write{0, 0, pair.fill, 0};
    for (const auto& [plane, weight] : {std::pair{pair.index0, pair.weight0}, std::pair{pair.index1, pair.weight1}})
      if (weight != 0) (plane == current_ ? write.current : write.previous) = weight;
    writes.push_back(write);
    ++steps.back().writes;
  }

  std::vector<Pair> pairs_;
  std::int32_t previous_ = -1, current_ = -1;
};

}  // namespace

void filter_linear(DeviceContext& context, const LinearWork& work, const void* input, void* output) {
  const AxisMatrix &x = *work.matrices[0], &y = *work.matrices[1], &z = *work.matrices[2];
  const std::int64_t blocks_in_plane = divide_up(x.output_size(), kBlockX) * divide_up(y.output_size(), kBlockY) * work.components;
  const std::int64_t wanted = divide_up(kBlocksPerMultiprocessor * multiprocessor_count(context), blocks_in_plane);
  const Schedule schedule(z, work.fill, std::clamp<std::int64_t>(z.output_size() / wanted, 1, kDepth));

  PackedTables tables;
  const std::size_t at_x = tables.add(pairs_of(x, work.fill)), at_y = tables.add(pairs_of(y, work.fill)), at_chunks = tables.add(schedule.chunks),
                    at_steps = tables.add(schedule.steps), at_writes = tables.add(schedule.writes);
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
    sample_columns<T><<<unsigned(blocks), dim3(kBlockX, kBlockY), 0, stream_of(context)>>>(axes, static_cast<const T*>(input), static_cast<float*>(output));
  });
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace volpipe::cuda
