#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "stages/pointwise/cuda_evaluator.h"
#include "stages/pointwise/program_backends.h"
#include "stages/pointwise/statistics_backends.h"

namespace volpipe::cuda {

namespace {

using Count = unsigned long long;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAllLanes = ~0u;
static_assert(kLanes == 4 * kThreads, "a thread sums four lanes");

template <class T, Machine kMachine>
using StatisticsTile = Tile<kThreads, sizeof(T) == 8 || kMachine == Machine::full ? 2 : 4>;

/// Blocks to a multiprocessor that the registers are shared out among: few enough for none to be spilled.
constexpr int resident_blocks(Machine machine) {
  return machine == Machine::load_only ? 6 : machine == Machine::light ? 5 : 3;
}

template <class T>
struct KernelValues {
  KernelProgram<T> kernel;
  Selection::Kind selection;
  T threshold;
  ProgramInput mask;
};

template <class T>
KernelValues<T> make_kernel_values(const SampledValues& values) {
  KernelValues<T> result{make_kernel_program<T>(*values.program, values.inputs, DataType::float64, values.count),
                         values.selection.kind, T(values.selection.threshold), values.selection.mask};
  if (values.selection.kind == Selection::Kind::mask)
    result.kernel.quads = result.kernel.quads && is_quad_aligned(result.mask.data, result.mask.dtype);
  return result;
}

/// What a program of the general machine gives, written out: kernels of its own for every statistic would be many.
class WrittenValues {
 public:
  WrittenValues(DeviceContext& context, const SampledValues& values) : values_(values) {
    if (!values.program->is_general()) return;
    const DataType type = values.precision == Precision::single ? DataType::float32 : DataType::float64;
    memory_ = context.allocate(std::size_t(values.count) * size_of(type));
    run_program(context,
                {*values.program, values.inputs, memory_.data(), type, values.count, values.precision, values.grid});
    input_ = {memory_.data(), type};
    values_.inputs = {&input_, 1};
    values_.program = &identity_;
  }
  WrittenValues(const WrittenValues&) = delete;
  WrittenValues& operator=(const WrittenValues&) = delete;

  const SampledValues& values() const { return values_; }

 private:
  SampledValues values_;
  Buffer memory_;
  ProgramInput input_{};
  Program identity_;
};

/// visitor(KernelValues<T>, MachineTag) with the type and a machine that runs the program.
template <class T, class Visitor>
decltype(auto) visit_machine(const SampledValues& values, Visitor&& visitor) {
  const auto kernel_values = make_kernel_values<T>(values);
  switch (machine_for(*values.program)) {
    case Machine::load_only:
      return visitor(kernel_values, MachineTag<Machine::load_only>{});
    case Machine::light:
      return visitor(kernel_values, MachineTag<Machine::light>{});
    default:
      return visitor(kernel_values, MachineTag<Machine::full>{});
  }
}

template <class Visitor>
decltype(auto) visit_values(DeviceContext& context, const SampledValues& values, Visitor&& visitor) {
  const WrittenValues written(context, values);
  return values.precision == Precision::single ? visit_machine<float>(written.values(), visitor)
                                               : visit_machine<double>(written.values(), visitor);
}

template <class T, class Place, Machine kMachine>
class SelectedVoxels {
 public:
  static constexpr int kVoxels = Place::kVoxels;

  static constexpr unsigned kAll = (1u << kVoxels) - 1;

  /// Bit v of the result: voxel v is before the end, selected and finite.
  __device__ __forceinline__ unsigned run(const KernelValues<T>& values, const Place& place) {
    evaluator_.run(values.kernel, place);
    if (place.whole && values.selection == Selection::Kind::all && all_finite()) return kAll;
    const unsigned selected = before_end(values, place) & select(values, place), numbers = finite();
    non_finite += __popc(selected & ~numbers);
    return selected & numbers;
  }
  __device__ __forceinline__ T value(int v) const { return evaluator_.acc[v]; }

  int non_finite = 0;

 private:
  /// 0 times a number is 0, times anything else NaN.
  __device__ __forceinline__ bool all_finite() const {
    T zero = T(0);
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) zero = std::fma(evaluator_.acc[v], T(0), zero);
    return zero == T(0);
  }
  __device__ __forceinline__ unsigned finite() const {
    unsigned numbers = 0;
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) numbers |= unsigned(detail::finite(evaluator_.acc[v])) << v;
    return numbers;
  }
  __device__ __forceinline__ unsigned before_end(const KernelValues<T>& values, const Place& place) const {
    unsigned before = kAll;
    if (!place.whole) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) before &= ~(unsigned(place.position(v) >= values.kernel.count) << v);
    }
    return before;
  }
  __device__ __forceinline__ unsigned select(const KernelValues<T>& values, const Place& place) const {
    unsigned selected = 0;
    T criterion[kVoxels];
    if (values.selection == Selection::Kind::all) return kAll;
    if (values.selection == Selection::Kind::mask) {
      load_voxels(values.mask, values.kernel.count, place, criterion);
    } else {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) criterion[v] = evaluator_.acc[v];
    }
    if (values.selection == Selection::Kind::above) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) selected |= unsigned(criterion[v] > values.threshold) << v;
    } else {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) selected |= unsigned(criterion[v] != T(0)) << v;
    }
    return selected;
  }

  ThreadEvaluator<T, Place, kMachine> evaluator_;
};

__device__ double add_across_warp(double value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

template <class T>
__device__ T least_across_warp(T value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other < value ? other : value;
  }
  return value;
}

/// The pivot of a chunk: the value of the block's first voxel kept, where there is one.
template <class T, class Place, class Voxels>
__device__ bool find_pivot(const Place& place, const Voxels& voxels, unsigned keep, double& pivot) {
  __shared__ unsigned firsts[kWarps];
  __shared__ double shared_pivot;
  constexpr unsigned kNone = ~0u;
  T mine = T(0);
  unsigned position = kNone;
#pragma unroll
  for (int v = Place::kVoxels - 1; v >= 0; --v)
    if (keep >> v & 1) {
      position = unsigned(place.position(v) - place.first) + 4 * threadIdx.x;
      mine = voxels.value(v);
    }
  const unsigned warp_first = warp_least(position);
  if (threadIdx.x % 32 == 0) firsts[threadIdx.x / 32] = warp_first;
  __syncthreads();
  unsigned first = kNone;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) first = min(first, firsts[w]);
  if (first != kNone && position == first) shared_pivot = double(mine);
  __syncthreads();
  if (first == kNone) return false;
  pivot = shared_pivot;
  return true;
}

/// Moments of the chunks, then of groups of kThreads of them, and so on to the one of all; the blocks done in each
/// group.
struct MomentsTree {
  Moments* level;
  unsigned* blocks_done;
  std::int64_t count;  ///< chunks
};

/// How many Moments and how many groups such a tree has.
struct MomentsTreeSize {
  std::int64_t moments, groups = 0;

  explicit MomentsTreeSize(std::int64_t chunks) : moments(chunks) {
    for (std::int64_t count = chunks; count > 1; moments += count) groups += count = divide_up(count, kThreads);
  }
};

/// The CPU's merging of neighbours in pairs, then pairs of pairs: a group's last block to finish merges the group, and
/// stands for it in the next level.
__device__ void merge_chunks(MomentsTree tree) {
  using Word = unsigned long long;
  __shared__ alignas(Moments) Word memory[kThreads * sizeof(Moments) / sizeof(Word)];
  __shared__ bool last;
  auto* group = reinterpret_cast<Moments*>(memory);
  for (std::int64_t index = blockIdx.x; tree.count > 1;) {
    index /= kThreads;
    const auto size = int(min(std::int64_t(kThreads), tree.count - index * kThreads));
    if (threadIdx.x == 0) {
      __threadfence();
      last = atomicAdd(tree.blocks_done + index, 1u) == unsigned(size - 1);
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    const auto* words = reinterpret_cast<const Word*>(tree.level + index * kThreads);
    for (int i = threadIdx.x; i < size * int(sizeof(Moments) / sizeof(Word)); i += kThreads)
      memory[i] = __ldcg(words + i);
    for (int step = 1; step < size; step *= 2) {
      __syncthreads();
      const int i = 2 * step * int(threadIdx.x);
      if (i + step < size) group[i] = merged(group[i], group[i + step]);
    }
    __syncthreads();
    const std::int64_t groups = (tree.count + kThreads - 1) / kThreads;
    tree = {tree.level + tree.count, tree.blocks_done + groups, groups};
    if (threadIdx.x == 0) tree.level[index] = group[0];
  }
}

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    moments_kernel(const __grid_constant__ KernelValues<T> values, MomentsTree tree) {
  using Place = StatisticsTile<T, kMachine>;
  constexpr std::int64_t kTiles = kChunkVoxels / Place::kSize;
  SelectedVoxels<T, Place, kMachine> voxels;
  double sum[4] = {}, squares[4] = {}, pivot = 0;
  T lowest = std::numeric_limits<T>::infinity(), highest = -lowest;
  int kept = 0;
  bool has_pivot = false;

  for (std::int64_t tile = blockIdx.x * kTiles; tile < (blockIdx.x + 1) * kTiles; ++tile) {
    if (tile * Place::kSize >= values.kernel.count) break;
    const Place place(tile, values.kernel.count, values.kernel.quads);
    const unsigned keep = voxels.run(values, place);
    if (!has_pivot) has_pivot = find_pivot<T>(place, voxels, keep, pivot);
    kept += __popc(keep);
    const auto add = [&](int lane, T value) {
      const double difference = double(value) - pivot;
      sum[lane] += difference;
      squares[lane] = std::fma(difference, difference, squares[lane]);
      lowest = std::fmin(lowest, value);
      highest = std::fmax(highest, value);
    };
    if (keep == voxels.kAll) {
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v) add(v % 4, voxels.value(v));
    } else if (has_pivot) {  // in the place of a voxel left out, the pivot changes nothing
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v) add(v % 4, keep >> v & 1 ? voxels.value(v) : T(pivot));
    }
  }

  __shared__ ChunkSums warps[kWarps];
  ChunkSums mine;
  mine.sum = add_across_warp((sum[0] + sum[1]) + (sum[2] + sum[3]));
  mine.squares = add_across_warp((squares[0] + squares[1]) + (squares[2] + squares[3]));
  mine.min = double(least_across_warp(lowest));
  mine.max = -double(least_across_warp(-highest));
  mine.count = warp_sum(unsigned(kept));
  mine.non_finite = warp_sum(unsigned(voxels.non_finite));
  mine.pivot = pivot;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  static_assert(kWarps == 4);
  mine.sum = (warps[0].sum + warps[1].sum) + (warps[2].sum + warps[3].sum);
  mine.squares = (warps[0].squares + warps[1].squares) + (warps[2].squares + warps[3].squares);
  for (int w = 1; w < kWarps; ++w) {
    mine.min = warps[w].min < mine.min ? warps[w].min : mine.min;
    mine.max = warps[w].max > mine.max ? warps[w].max : mine.max;
    mine.count += warps[w].count;
    mine.non_finite += warps[w].non_finite;
  }
  if (threadIdx.x == 0) tree.level[blockIdx.x] = moments_of(mine);
  merge_chunks(tree);
}

/// What a range is made of, as keys that only grow: begins as zeros.
struct RangeKeys {
  Count count, non_finite, not_least, greatest;

  __device__ void add(const RangeKeys& other) {
    atomicAdd(&count, other.count);
    atomicAdd(&non_finite, other.non_finite);
    atomicMax(&not_least, other.not_least);
    atomicMax(&greatest, other.greatest);
  }
};

constexpr KeyFormat kDoubleKeys{true, 64, 0};

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    range_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<double> encode, RangeKeys* total) {
  using Place = StatisticsTile<T, kMachine>;
  SelectedVoxels<T, Place, kMachine> voxels;
  T lowest = std::numeric_limits<T>::infinity(), highest = -lowest;
  unsigned kept = 0;
  const std::int64_t tiles = (values.kernel.count + Place::kSize - 1) / Place::kSize;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const unsigned keep = voxels.run(values, Place(tile, values.kernel.count, values.kernel.quads));
    kept += __popc(keep);
    const auto add = [&](T value) {
      lowest = std::fmin(lowest, value);
      highest = std::fmax(highest, value);
    };
    if (keep == voxels.kAll) {
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v) add(voxels.value(v));
    } else {
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v)
        if (keep >> v & 1) add(voxels.value(v));
    }
  }

  __shared__ RangeKeys block;
  if (threadIdx.x == 0) block = {};
  __syncthreads();
  lowest = least_across_warp(lowest);
  highest = -least_across_warp(-highest);
  const RangeKeys mine{warp_sum(kept), warp_sum(unsigned(voxels.non_finite)), ~Count(encode(double(lowest))),
                       Count(encode(double(highest)))};
  if (threadIdx.x % 32 == 0) block.add(mine);
  __syncthreads();
  if (threadIdx.x == 0) total->add(block);
}

/// As many blocks as the device holds at a time.
template <class Kernel>
std::int64_t resident_blocks(DeviceContext& context, Kernel kernel) {
  int per_multiprocessor = 0;
  VOLPIPE_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, kThreads, 0));
  return std::int64_t(std::max(per_multiprocessor, 1)) * multiprocessor_count(context);
}

/// body(value, keep) for every voxel, the block's tiles dealt out in turn; `keep` is std::true_type or bool, one type
/// for a whole warp at a time.
template <class T, Machine kMachine, class Body>
__device__ __forceinline__ void for_each_voxel(const KernelValues<T>& values, Body&& body) {
  using Place = StatisticsTile<T, kMachine>;
  SelectedVoxels<T, Place, kMachine> voxels;
  const std::int64_t tiles = (values.kernel.count + Place::kSize - 1) / Place::kSize;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const unsigned keep = voxels.run(values, Place(tile, values.kernel.count, values.kernel.quads));
    if (__all_sync(kAllLanes, keep == voxels.kAll)) {
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v) body(voxels.value(v), std::true_type{});
    } else {
#pragma unroll
      for (int v = 0; v < Place::kVoxels; ++v) body(voxels.value(v), bool(keep >> v & 1));
    }
  }
}

constexpr int kSharedBins = 8192;

/// Bins in shared memory, as many copies as fit so that warps rarely meet, added to the total at the end.
class SharedBins {
 public:
  __device__ SharedBins(unsigned* shared, int bins) : shared_(shared), bins_(bins) {
    const int copies = max(1, min(kSharedBins / bins, kWarps));
    for (int i = threadIdx.x; i < bins * copies; i += kThreads) shared_[i] = 0;
    __syncthreads();
    copies_ = copies;
    mine_ = shared_ + (threadIdx.x / 32) % copies * bins;
  }
  __device__ __forceinline__ void add(int bin) { atomicAdd(mine_ + bin, 1u); }
  __device__ void flush(Count* total) {
    __syncthreads();
    for (int bin = threadIdx.x; bin < bins_; bin += kThreads) {
      Count sum = 0;
      for (int copy = 0; copy < copies_; ++copy) sum += shared_[copy * bins_ + bin];
      if (sum) atomicAdd(total + bin, sum);
    }
  }

 private:
  unsigned* shared_;
  unsigned* mine_;
  int bins_, copies_;
};

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    histogram_kernel(const __grid_constant__ KernelValues<T> values, double low, double high, HistogramBins bin_of,
                     Count* total) {
  __shared__ unsigned shared[kSharedBins];
  if (bin_of.last < kSharedBins) {
    SharedBins counts(shared, bin_of.last + 1);
    for_each_voxel<T, kMachine>(values, [&](T value, auto keep) {
      if (keep && double(value) >= low && double(value) <= high) counts.add(bin_of(value));
    });
    counts.flush(total);
  } else {
    for_each_voxel<T, kMachine>(values, [&](T value, auto keep) {
      if (keep && double(value) >= low && double(value) <= high) atomicAdd(total + bin_of(value), Count(1));
    });
  }
}

constexpr int kMaxPercents = 8;  ///< that one selection looks for
constexpr int kMaxRanks = 2 * kMaxPercents;
constexpr std::int64_t kNoRank = -1;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
static_assert(kMaxRanks * kDigits <= kSharedBins);

/// Ranks on their way to keys, a digit a pass, on the device. Begins as zeros.
template <class Key>
struct RankSearch {
  std::int64_t total;            ///< keys there are
  std::int64_t rank[kMaxRanks];  ///< among the keys with the prefix; kNoRank: not looked for
  Key prefix[kMaxRanks];         ///< the digits found; in the end the key
  int slot[kMaxRanks];           ///< the prefix's place among the distinct ones
  int slots;
  Key slot_prefix[kMaxRanks];
};

/// What a pass counts; zeros between passes.
struct DigitCounts {
  unsigned blocks_done;
  Count of[kMaxRanks][kDigits];
};

/// One pass's counting by a block's threads, and the narrowing by the last block to finish.
template <class Key>
class DigitPass {
 public:
  __device__ DigitPass(unsigned* shared, RankSearch<Key>* search, DigitCounts* counts, int shift)
      : search_(*search),
        counts_(*counts),
        shift_(shift),
        slots_(max(search->slots, 1)),
        bins_(shared, slots_ * kDigits) {
    __shared__ Key prefixes[kMaxRanks];
    if (threadIdx.x < kMaxRanks) prefixes[threadIdx.x] = search_.slot_prefix[threadIdx.x];
    __syncthreads();
    prefixes_ = prefixes;
  }

  __device__ __forceinline__ void add(Key key) {
    const Key shifted = key >> shift_, prefix = shifted >> kDigitBits;
    for (int slot = 0; slot < slots_; ++slot)
      if (prefix == prefixes_[slot]) bins_.add(slot * kDigits + int(shifted % kDigits));
  }

  /// ranks_of(n, i): the i-th of `ranks` ranks among n keys, asked in the first pass.
  template <class RanksOf>
  __device__ void finish(const RanksOf& ranks_of, int ranks, bool first) {
    bins_.flush(&counts_.of[0][0]);
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&counts_.blocks_done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (first) start(ranks_of, ranks);
    for (int i = threadIdx.x / 32; i < ranks; i += kWarps)
      if (search_.rank[i] != kNoRank) find_digit(i);
    __syncthreads();
    if (threadIdx.x == 0) collect_prefixes(ranks);
    for (int i = threadIdx.x; i < slots_ * kDigits; i += kThreads) counts_.of[0][i] = 0;
  }

 private:
  static constexpr int kLaneDigits = kDigits / 32;

  /// This lane's digits' counts for a slot: of all its digits before, `mine` their sum.
  __device__ Count counts_before(int slot, Count (&counts)[kLaneDigits], Count& mine) const {
    mine = 0;
#pragma unroll
    for (int d = 0; d < kLaneDigits; ++d)
      mine += counts[d] = __ldcg(&counts_.of[slot][threadIdx.x % 32 * kLaneDigits + d]);
    Count sum = mine;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const Count other = __shfl_up_sync(kAllLanes, sum, distance);
      if (threadIdx.x % 32 >= distance) sum += other;
    }
    return sum - mine;
  }

  template <class RanksOf>
  __device__ void start(const RanksOf& ranks_of, int ranks) {
    if (threadIdx.x < 32) {
      Count counts[kLaneDigits], mine;
      const Count before = counts_before(0, counts, mine);
      if (threadIdx.x == 31) search_.total = std::int64_t(before + mine);
    }
    __syncthreads();
    if (threadIdx.x < ranks) search_.rank[threadIdx.x] = ranks_of(search_.total, int(threadIdx.x));
    __syncthreads();
  }

  __device__ void find_digit(int i) {
    const auto rank = Count(search_.rank[i]);
    Count counts[kLaneDigits], mine;
    Count before = counts_before(search_.slot[i], counts, mine);
    const Key prefix = search_.prefix[i];
    __syncwarp();
    if (rank < before || rank >= before + mine) return;
    int digit = 0;
#pragma unroll
    for (int d = 0; d < kLaneDigits - 1; ++d)
      if (digit == d && rank >= before + counts[d]) before += counts[d], ++digit;
    search_.rank[i] = std::int64_t(rank - before);
    search_.prefix[i] = prefix << kDigitBits | Key(threadIdx.x % 32 * kLaneDigits + digit);
  }

  __device__ void collect_prefixes(int ranks) {
    int slots = 0;
    for (int i = 0; i < ranks; ++i) {
      if (search_.rank[i] == kNoRank) continue;
      int slot = 0;
      while (slot < slots && search_.slot_prefix[slot] != search_.prefix[i]) ++slot;
      if (slot == slots) search_.slot_prefix[slots++] = search_.prefix[i];
      search_.slot[i] = slot;
    }
    search_.slots = slots;
    counts_.blocks_done = 0;
  }

  RankSearch<Key>& search_;
  DigitCounts& counts_;
  const Key* prefixes_;
  int shift_, slots_;
  SharedBins bins_;
};

template <class T, Machine kMachine, class RanksOf>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    value_digits_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                        RankSearch<typename KeyEncoder<T>::Key>* search, DigitCounts* counts,
                        const __grid_constant__ RanksOf ranks_of, int ranks, int shift, bool first) {
  __shared__ unsigned shared[kSharedBins];
  DigitPass pass(shared, search, counts, shift);
  for_each_voxel<T, kMachine>(values, [&](T value, auto keep) {
    if (keep) pass.add(encode(value));
  });
  pass.finish(ranks_of, ranks, first);
}

/// Of an array of *count keys, of which `capacity` at most are there.
template <class Key, class RanksOf>
__global__ void __launch_bounds__(kThreads)
    key_digits_kernel(const Key* keys, const Count* count, std::int64_t capacity, RankSearch<Key>* search,
                      DigitCounts* counts, const __grid_constant__ RanksOf ranks_of, int ranks, int shift, bool first) {
  __shared__ unsigned shared[kSharedBins];
  DigitPass pass(shared, search, counts, shift);
  const std::int64_t end = min(std::int64_t(*count), capacity);
  for (std::int64_t i = blockIdx.x * std::int64_t(kThreads) + threadIdx.x; i < end;
       i += gridDim.x * std::int64_t(kThreads))
    pass.add(keys[i]);
  pass.finish(ranks_of, ranks, first);
}

/// Both order statistics of each percentile.
struct PercentileRanks {
  double percents[kMaxPercents];

  VOLPIPE_HD std::int64_t operator()(std::int64_t n, int i) const {
    if (n == 0) return kNoRank;
    const PercentilePlace place(n, percents[i / 2]);
    return i % 2 ? place.above : place.below;
  }
};

/// Ends of the ranges of a sample that hold the percentiles in all likelihood, five standard deviations to either side;
/// none beyond the sample's own ends.
struct SampleRanks {
  double percents[kMaxPercents];

  VOLPIPE_HD std::int64_t operator()(std::int64_t n, int i) const {
    const double share = percents[i / 2] / 100, centre = share * double(n - 1);
    const double margin = 5 * std::sqrt(double(n) * share * (1 - share)) + 5;
    const auto rank = std::int64_t(i % 2 ? std::ceil(centre + margin) : std::floor(centre - margin));
    return rank >= 0 && rank < n ? rank : kNoRank;
  }
};

/// One voxel from each of kSamples equal stretches, at a hashed place so that no stride of the grid is favoured.
template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads, 8)
    sample_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                  typename KeyEncoder<T>::Key* keys, Count* count) {
  const std::int64_t i = blockIdx.x * std::int64_t(kThreads) + threadIdx.x;
  std::uint32_t hash = std::uint32_t(i) * 0x9e3779b1u;
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  const double place = (double(i) + (hash ^ hash >> 13) * 0x1p-32) / double(kSamples);
  const SingleVoxel voxel{min(std::int64_t(place * double(values.kernel.count)), values.kernel.count - 1)};
  SelectedVoxels<T, SingleVoxel, kMachine> voxels;
  const bool keep = voxels.run(values, voxel);
  const unsigned keepers = __ballot_sync(kAllLanes, keep);
  Count first = 0;
  if (threadIdx.x % 32 == 0 && keepers != 0) first = atomicAdd(count, Count(__popc(keepers)));
  first = __shfl_sync(kAllLanes, first, 0);
  if (keep) keys[first + __popc(keepers & ((1u << threadIdx.x % 32) - 1))] = encode(voxels.value(0));
}

/// Finite values low to high, both included; those between are stored unless there is but one.
template <class T>
struct Brackets {
  T low[kMaxPercents], high[kMaxPercents];
};

struct BracketCounts {
  Count kept, stored, below[kMaxPercents], up_to_high[kMaxPercents];
};

/// Where the order statistics lie once the brackets are counted.
struct BracketPlaces {
  PercentileRanks percentiles;
  int brackets;
  bool stored[kMaxPercents];

  struct Place {
    int bracket;  ///< the number of brackets: in none
    std::int64_t stored_rank;
  };
  VOLPIPE_HD Place operator()(const BracketCounts& counts, int i) const {
    const std::int64_t rank = percentiles(std::int64_t(counts.kept), i);
    std::int64_t stored_before = 0;
    for (int b = 0; b < brackets; ++b) {
      const auto below = std::int64_t(counts.below[b]), up_to_high = std::int64_t(counts.up_to_high[b]);
      if (rank < below) break;
      if (rank < up_to_high) return {b, stored[b] ? stored_before + rank - below : kNoRank};
      if (stored[b]) stored_before += up_to_high - below;
    }
    return {brackets, kNoRank};
  }
};

struct StoredRanks {
  BracketPlaces places;
  const BracketCounts* counts;

  __device__ std::int64_t operator()(std::int64_t, int i) const { return places(*counts, i).stored_rank; }
};

/// A warp's keys on their way to the candidates, written a few hundred at a time.
template <class Key>
class CandidateBuffer {
 public:
  static constexpr int kSize = 512;
  __device__ CandidateBuffer(Key* shared, Key* candidates, std::int64_t capacity, Count* stored)
      : shared_(shared), candidates_(candidates), capacity_(capacity), stored_(stored) {}

  template <class T>
  __device__ __forceinline__ void add(const KeyEncoder<T>& encode, T value, bool keep) {
    const unsigned keepers = __ballot_sync(kAllLanes, keep);
    if (keepers == 0) return;
    if (keep) shared_[size_ + __popc(keepers & ((1u << threadIdx.x % 32) - 1))] = encode(value);
    size_ += __popc(keepers);
    if (size_ > kSize - 32) flush();
  }
  __device__ void flush() {
    __syncwarp();
    Count first = 0;
    if (threadIdx.x % 32 == 0 && size_ > 0) first = atomicAdd(stored_, Count(size_));
    first = __shfl_sync(kAllLanes, first, 0);
    for (int i = threadIdx.x % 32; i < size_; i += 32)
      if (std::int64_t(first) + i < capacity_) candidates_[first + i] = shared_[i];
    size_ = 0;
    __syncwarp();
  }

 private:
  Key* shared_;
  Key* candidates_;
  std::int64_t capacity_;
  Count* stored_;
  int size_ = 0;
};

__device__ void add_from_warp(Count* total, Count mine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) mine += __shfl_xor_sync(kAllLanes, mine, distance);
  if (threadIdx.x % 32 == 0 && mine) atomicAdd(total, mine);
}

template <class T, Machine kMachine, int kBrackets>
__global__ void __launch_bounds__(kThreads, resident_blocks(kMachine))
    bracket_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                   const __grid_constant__ Brackets<T> brackets, typename KeyEncoder<T>::Key* candidates,
                   std::int64_t capacity, BracketCounts* total) {
  using Key = typename KeyEncoder<T>::Key;
  __shared__ Key shared[kWarps][CandidateBuffer<Key>::kSize];
  CandidateBuffer<Key> buffer(shared[threadIdx.x / 32], candidates, capacity, &total->stored);
  unsigned kept = 0, below[kBrackets] = {}, up_to_high[kBrackets] = {};
  for_each_voxel<T, kMachine>(values, [&](T voxel, auto keep) {
    const T value = keep ? voxel : std::numeric_limits<T>::quiet_NaN();  // in no bracket, below none
    kept += bool(keep);
    bool candidate = false;
#pragma unroll
    for (int b = 0; b < kBrackets; ++b) {
      const bool is_below = value < brackets.low[b], is_up_to_high = value <= brackets.high[b];
      below[b] += is_below;
      up_to_high[b] += is_up_to_high;
      candidate |= is_up_to_high & !is_below & (brackets.low[b] < brackets.high[b]);
    }
    buffer.add(encode, value, candidate);
  });
  buffer.flush();
  add_from_warp(&total->kept, kept);
#pragma unroll
  for (int b = 0; b < kBrackets; ++b) {
    add_from_warp(&total->below[b], below[b]);
    add_from_warp(&total->up_to_high[b], up_to_high[b]);
  }
}

/// Exact order statistics of at most kMaxPercents percentiles: in one pass with the help of a sample where that works,
/// else by a pass a digit. The host waits twice for the first and once for the second.
template <class T, Machine kMachine>
class OrderSelection {
 public:
  using Key = typename KeyEncoder<T>::Key;

  OrderSelection(DeviceContext& context, const KernelValues<T>& values, const KeyFormat& format,
                 std::span<const double> percents)
      : context_(context),
        values_(values),
        format_(format),
        encode_(format),
        percents_(percents),
        memory_(context.allocate(sizeof(State))),
        state_(static_cast<State*>(memory_.data())) {
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(state_, 0, sizeof(State), stream_of(context)));
    std::copy(percents.begin(), percents.end(), percentiles_.percents);
  }

  /// Adds the ranks found and their keys; returns how many values were kept.
  std::int64_t run(std::map<std::int64_t, std::uint64_t>& key_of_rank) {
    const bool sampling = values_.kernel.count >= kLeastForSampling && format_.bits > 8;
    if (sampling)
      if (const auto kept = select_in_brackets(key_of_rank)) return *kept;
    return select_by_passes(key_of_rank);
  }

 private:
  static constexpr Key kOpenLow = 0, kOpenHigh = ~Key(0);  ///< no finite value has these

  struct KeyRange {
    Key low, high;
  };
  struct Outcome {
    BracketCounts brackets;
    RankSearch<Key> search;
  };
  struct State {
    Outcome outcome;
    RankSearch<Key> sampled;
    Count samples;
    DigitCounts digits;
  };

  int ranks() const { return 2 * int(percents_.size()); }

  /// launch(shift, first) queues one pass.
  template <class Launch>
  void narrow(Launch&& launch) {
    for (int shift = format_.bits - kDigitBits; shift >= 0; shift -= kDigitBits) {
      launch(shift, shift + kDigitBits == format_.bits);
      VOLPIPE_CHECK_CUDA(cudaGetLastError());
    }
  }

  template <class RanksOf>
  void search_keys(const Key* keys, const Count* count, std::int64_t capacity, RankSearch<Key>* search,
                   const RanksOf& ranks_of) {
    const auto blocks = unsigned(
        std::min(divide_up(capacity, kThreads * 8), resident_blocks(context_, key_digits_kernel<Key, RanksOf>)));
    narrow([&](int shift, bool first) {
      key_digits_kernel<Key, RanksOf><<<blocks, kThreads, 0, stream_of(context_)>>>(
          keys, count, capacity, search, &state_->digits, ranks_of, ranks(), shift, first);
    });
  }

  std::int64_t select_by_passes(std::map<std::int64_t, std::uint64_t>& key_of_rank) {
    auto* search = &state_->outcome.search;
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(search, 0, sizeof *search, stream_of(context_)));
    const auto kernel = value_digits_kernel<T, kMachine, PercentileRanks>;
    const auto blocks = unsigned(std::min(resident_blocks(context_, kernel), tiles()));
    narrow([&](int shift, bool first) {
      kernel<<<blocks, kThreads, 0, stream_of(context_)>>>(values_, encode_, search, &state_->digits, percentiles_,
                                                           ranks(), shift, first);
    });
    RankSearch<Key> found;
    copy_to_host(context_, &found, search, sizeof found);
    if (found.total > 0)
      for (int i = 0; i < ranks(); ++i) key_of_rank[percentiles_(found.total, i)] = found.prefix[i];
    return found.total;
  }

  /// Disjoint ascending ranges that hold the percentiles in all likelihood.
  std::vector<KeyRange> sample_ranges() {
    Buffer memory = context_.allocate(kSamples * sizeof(Key));
    auto* keys = static_cast<Key*>(memory.data());
    sample_kernel<T, kMachine>
        <<<unsigned(kSamples / kThreads), kThreads, 0, stream_of(context_)>>>(values_, encode_, keys, &state_->samples);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    SampleRanks ends;
    std::copy(percents_.begin(), percents_.end(), ends.percents);
    search_keys(keys, &state_->samples, kSamples, &state_->sampled, ends);
    RankSearch<Key> found;
    copy_to_host(context_, &found, &state_->sampled, sizeof found);
    if (found.total == 0) return {{kOpenLow, kOpenHigh}};

    std::vector<KeyRange> wanted;
    for (int i = 0; i < ranks(); i += 2)
      wanted.push_back({found.rank[i] == kNoRank ? kOpenLow : found.prefix[i],
                        found.rank[i + 1] == kNoRank ? kOpenHigh : found.prefix[i + 1]});
    return disjoint(std::move(wanted));
  }

  static std::vector<KeyRange> disjoint(std::vector<KeyRange> wanted) {
    std::sort(wanted.begin(), wanted.end(), [](const KeyRange& a, const KeyRange& b) { return a.low < b.low; });
    std::vector<KeyRange> ranges;
    for (KeyRange range : wanted) {
      if (!ranges.empty() && range.low <= ranges.back().high) {
        if (range.high <= ranges.back().high) continue;
        range.low = ranges.back().high + 1;
      }
      ranges.push_back(range);
    }
    return ranges;
  }

  /// Of the keys of an integer format, 0 is one like any other.
  T low_value(Key key) const {
    return format_.floating && key == kOpenLow ? -std::numeric_limits<T>::infinity() : T(decode_key(format_, key));
  }
  T high_value(Key key) const {
    return key == kOpenHigh ? std::numeric_limits<T>::infinity() : T(decode_key(format_, key));
  }

  void count_brackets(const std::vector<KeyRange>& ranges, Key* candidates, std::int64_t capacity) {
    Brackets<T> brackets{};
    for (std::size_t b = 0; b < ranges.size(); ++b) {
      brackets.low[b] = low_value(ranges[b].low);
      brackets.high[b] = high_value(ranges[b].high);
    }
    const auto launch = [&](auto kernel) {
      const auto blocks = unsigned(std::min(resident_blocks(context_, kernel), tiles()));
      kernel<<<blocks, kThreads, 0, stream_of(context_)>>>(values_, encode_, brackets, candidates, capacity,
                                                           &state_->outcome.brackets);
      VOLPIPE_CHECK_CUDA(cudaGetLastError());
    };
    if (ranges.size() <= 2) launch(bracket_kernel<T, kMachine, 2>);
    else launch(bracket_kernel<T, kMachine, kMaxPercents>);
  }

  /// Empty where a range missed its percentile or the candidates are too many.
  std::optional<std::int64_t> select_in_brackets(std::map<std::int64_t, std::uint64_t>& key_of_rank) {
    const std::vector<KeyRange> ranges = sample_ranges();
    const std::int64_t capacity = values_.kernel.count / kCandidateShare;
    Buffer memory = context_.allocate(std::size_t(capacity) * sizeof(Key));
    auto* candidates = static_cast<Key*>(memory.data());
    count_brackets(ranges, candidates, capacity);

    BracketPlaces places{percentiles_, int(ranges.size()), {}};
    for (std::size_t b = 0; b < ranges.size(); ++b) places.stored[b] = ranges[b].low != ranges[b].high;
    const BracketCounts* counts = &state_->outcome.brackets;
    search_keys(candidates, &counts->stored, capacity, &state_->outcome.search, StoredRanks{places, counts});
    Outcome outcome;
    copy_to_host(context_, &outcome, &state_->outcome, sizeof outcome);

    const auto kept = std::int64_t(outcome.brackets.kept);
    if (kept == 0) return kept;
    if (std::int64_t(outcome.brackets.stored) > capacity) return std::nullopt;
    for (int i = 0; i < ranks(); ++i) {
      const auto place = places(outcome.brackets, i);
      if (place.bracket == places.brackets) return std::nullopt;
      key_of_rank[percentiles_(kept, i)] =
          place.stored_rank == kNoRank ? ranges[std::size_t(place.bracket)].low : outcome.search.prefix[i];
    }
    return kept;
  }

  std::int64_t tiles() const { return divide_up(values_.kernel.count, StatisticsTile<T, kMachine>::kSize); }

  DeviceContext& context_;
  const KernelValues<T>& values_;
  KeyFormat format_;
  KeyEncoder<T> encode_;
  std::span<const double> percents_;
  PercentileRanks percentiles_{};
  Buffer memory_;
  State* state_;
};

template <class Values>
struct ValueType;
template <class T>
struct ValueType<KernelValues<T>> {
  using type = T;
};

}  // namespace

Moments moments(DeviceContext& context, const SampledValues& values) {
  return visit_values(context, values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    const std::int64_t chunks = divide_up(values.count, kChunkVoxels);
    const MomentsTreeSize size(chunks);
    const std::size_t done_bytes = std::size_t(size.groups) * sizeof(unsigned);
    Buffer results = context.allocate(std::size_t(size.moments) * sizeof(Moments)), done = context.allocate(done_bytes);
    const MomentsTree tree{static_cast<Moments*>(results.data()), static_cast<unsigned*>(done.data()), chunks};
    const cudaStream_t stream = stream_of(context);
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(tree.blocks_done, 0, done_bytes, stream));
    moments_kernel<T, decltype(machine)::value><<<unsigned(chunks), kThreads, 0, stream>>>(kernel_values, tree);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    Moments total;
    copy_to_host(context, &total, tree.level + size.moments - 1, sizeof total);
    return total;
  });
}

Moments range(DeviceContext& context, const SampledValues& values) {
  return visit_values(context, values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    constexpr Machine kMachine = decltype(machine)::value;
    Buffer total = context.allocate(sizeof(RangeKeys));
    const cudaStream_t stream = stream_of(context);
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total.data(), 0, sizeof(RangeKeys), stream));
    const std::int64_t tiles = divide_up(values.count, StatisticsTile<T, kMachine>::kSize);
    const std::int64_t blocks = std::min(resident_blocks(context, range_kernel<T, kMachine>), tiles);
    range_kernel<T, kMachine><<<unsigned(blocks), kThreads, 0, stream>>>(kernel_values, KeyEncoder<double>(kDoubleKeys),
                                                                         static_cast<RangeKeys*>(total.data()));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    RangeKeys keys;
    copy_to_host(context, &keys, total.data(), sizeof keys);
    Moments result;
    result.count = std::int64_t(keys.count);
    result.non_finite = std::int64_t(keys.non_finite);
    if (result.count == 0) return result;
    result.min = decode_key(kDoubleKeys, ~keys.not_least);
    result.max = decode_key(kDoubleKeys, keys.greatest);
    return result;
  });
}

OrderStatistics order_statistics(DeviceContext& context, const SampledValues& values, const KeyFormat& format,
                                 std::span<const double> percents) {
  return visit_values(context, values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    OrderStatistics result;
    std::map<std::int64_t, std::uint64_t> key_of_rank;
    for (std::size_t first = 0; first < percents.size(); first += kMaxPercents) {
      const auto group = percents.subspan(first, std::min<std::size_t>(kMaxPercents, percents.size() - first));
      result.count =
          OrderSelection<T, decltype(machine)::value>(context, kernel_values, format, group).run(key_of_rank);
      if (result.count == 0) return result;
    }
    for (const auto& [rank, key] : key_of_rank) result.keys.push_back(key);
    return result;
  });
}

std::vector<std::int64_t> histogram(DeviceContext& context, const SampledValues& values, double low, double high,
                                    int bins) {
  return visit_values(context, values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    constexpr Machine kMachine = decltype(machine)::value;
    const std::size_t bytes = std::size_t(bins) * sizeof(Count);
    Buffer total = context.allocate(bytes);
    const cudaStream_t stream = stream_of(context);
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total.data(), 0, bytes, stream));
    const std::int64_t tiles = divide_up(values.count, StatisticsTile<T, kMachine>::kSize);
    const std::int64_t blocks = std::min(resident_blocks(context, histogram_kernel<T, kMachine>), tiles);
    histogram_kernel<T, kMachine><<<unsigned(blocks), kThreads, 0, stream>>>(
        kernel_values, low, high, HistogramBins(low, high, bins), static_cast<Count*>(total.data()));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    std::vector<std::int64_t> counts(static_cast<std::size_t>(bins));
    copy_to_host(context, counts.data(), total.data(), bytes);
    return counts;
  });
}

}  // namespace volpipe::cuda
