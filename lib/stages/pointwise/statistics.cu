#include <algorithm>
#include <cmath>
#include <map>

#include "stages/pointwise/cuda_evaluator.h"
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
decltype(auto) visit_values(const SampledValues& values, Visitor&& visitor) {
  return values.precision == Precision::single ? visit_machine<float>(values, visitor)
                                               : visit_machine<double>(values, visitor);
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
  const unsigned warp_first = __reduce_min_sync(kAllLanes, position);
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

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const __grid_constant__ KernelValues<T> values, Moments* chunks) {
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
  mine.count = __reduce_add_sync(kAllLanes, kept);
  mine.non_finite = __reduce_add_sync(kAllLanes, voxels.non_finite);
  mine.pivot = pivot;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  static_assert(kWarps == 4);
  mine.sum = (warps[0].sum + warps[1].sum) + (warps[2].sum + warps[3].sum);
  mine.squares = (warps[0].squares + warps[1].squares) + (warps[2].squares + warps[3].squares);
  for (int w = 1; w < kWarps; ++w) {
    mine.min = warps[w].min < mine.min ? warps[w].min : mine.min;
    mine.max = warps[w].max > mine.max ? warps[w].max : mine.max;
    mine.count += warps[w].count;
    mine.non_finite += warps[w].non_finite;
  }
  chunks[blockIdx.x] = moments_of(mine);
}

constexpr int kMergeThreads = 1024;

/// The tree of the CPU's merging, by one block, in place; the result is chunks[0].
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(Moments* chunks, std::int64_t count) {
  for (std::int64_t step = 1; step < count; step *= 2) {
    for (std::int64_t i = threadIdx.x * 2 * step; i + step < count; i += kMergeThreads * 2 * step)
      chunks[i] = merged(chunks[i], chunks[i + step]);
    __syncthreads();
  }
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
__global__ void __launch_bounds__(kThreads) histogram_kernel(const __grid_constant__ KernelValues<T> values, double low,
                                                             double high, double scale, int bins, Count* total) {
  __shared__ unsigned shared[kSharedBins];
  const auto bin_of = [=](double value) { return min(int((value - low) * scale), bins - 1); };
  if (bins <= kSharedBins) {
    SharedBins counts(shared, bins);
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

constexpr int kDigitBits = 11;
constexpr int kSlots = kSharedBins >> kDigitBits;

/// The prefixes that one pass counts the digits of.
template <class Key>
struct Digits {
  Key prefix[kSlots];
  int slots, shift, width;
};

/// kFirst: there is but the empty prefix.
template <bool kFirst, class Key>
__device__ __forceinline__ void count_digit(SharedBins& counts, const Digits<Key>& digits, Key key) {
  const Key shifted = key >> digits.shift;
  const int digit = int(shifted & ((Key(1) << digits.width) - 1));
  if constexpr (kFirst) {
    counts.add(digit);
  } else {
    const Key prefix = shifted >> digits.width;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot)
      if (slot < digits.slots && prefix == digits.prefix[slot]) counts.add(slot << digits.width | digit);
  }
}

template <class T, Machine kMachine, bool kFirst>
__global__ void __launch_bounds__(kThreads)
    value_digits_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                        const __grid_constant__ Digits<typename KeyEncoder<T>::Key> digits, Count* total) {
  __shared__ unsigned shared[kSharedBins];
  SharedBins counts(shared, digits.slots << digits.width);
  for_each_voxel<T, kMachine>(values, [&](T value, auto keep) {
    if (keep) count_digit<kFirst>(counts, digits, encode(value));
  });
  counts.flush(total);
}

/// Of an array of *count keys.
template <class Key, bool kFirst>
__global__ void __launch_bounds__(kThreads)
    key_digits_kernel(const Key* keys, const Count* count, const __grid_constant__ Digits<Key> digits, Count* total) {
  __shared__ unsigned shared[kSharedBins];
  SharedBins counts(shared, digits.slots << digits.width);
  const auto end = std::int64_t(*count);
  for (std::int64_t i = blockIdx.x * std::int64_t(kThreads) + threadIdx.x; i < end;
       i += gridDim.x * std::int64_t(kThreads))
    count_digit<kFirst>(counts, digits, keys[i]);
  counts.flush(total);
}

/// radix_select's counting; launch(digits, first, total) queues the kernel that adds to `total`.
template <class Key, class Launch>
std::vector<std::int64_t> count_digits(DeviceContext& context, int key_bits, const std::vector<std::uint64_t>& prefixes,
                                       int shift, int width, Launch&& launch) {
  const std::size_t bytes = (prefixes.size() << width) * sizeof(Count);
  Buffer total = context.allocate(bytes);
  VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total.data(), 0, bytes, stream_of(context)));
  for (std::size_t first = 0; first < prefixes.size(); first += kSlots) {
    Digits<Key> digits{{}, int(std::min<std::size_t>(kSlots, prefixes.size() - first)), shift, width};
    for (int slot = 0; slot < digits.slots; ++slot) digits.prefix[slot] = Key(prefixes[first + std::size_t(slot)]);
    launch(digits, shift + width == key_bits, static_cast<Count*>(total.data()) + (first << width));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  }
  std::vector<std::int64_t> counts(prefixes.size() << width);
  copy_to_host(context, counts.data(), total.data(), bytes);
  return counts;
}

/// The keys at ranks_of(*count) of an array of *count keys, a number that lies on the device and is at most `most`.
template <class Key, class RanksOf>
std::vector<std::uint64_t> select_keys(DeviceContext& context, const Key* keys, const Count* count, std::int64_t most,
                                       int key_bits, RanksOf&& ranks_of) {
  const auto blocks =
      unsigned(std::min(divide_up(most, kThreads * 8), resident_blocks(context, key_digits_kernel<Key, false>)));
  return radix_select(key_bits, kDigitBits, ranks_of, [&](const auto& prefixes, int shift, int width) {
    return count_digits<Key>(
        context, key_bits, prefixes, shift, width, [&](const Digits<Key>& digits, bool first, Count* total) {
          const cudaStream_t stream = stream_of(context);
          if (first) key_digits_kernel<Key, true><<<blocks, kThreads, 0, stream>>>(keys, count, digits, total);
          else key_digits_kernel<Key, false><<<blocks, kThreads, 0, stream>>>(keys, count, digits, total);
        });
  });
}

constexpr std::int64_t kSamples = 262144;

/// One voxel from each of kSamples equal stretches, at a hashed place so that no stride of the grid is favoured.
template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                  typename KeyEncoder<T>::Key* keys, Count* count) {
  const std::int64_t i = blockIdx.x * std::int64_t(kThreads) + threadIdx.x;
  std::uint32_t hash = std::uint32_t(i) * 0x9e3779b1u;
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  const double place = (double(i) + (hash ^ hash >> 13) * 0x1p-32) / double(kSamples);
  const SingleVoxel voxel{min(std::int64_t(place * double(values.kernel.count)), values.kernel.count - 1)};
  SelectedVoxels<T, SingleVoxel, kMachine> voxels;
  if (voxels.run(values, voxel)) keys[atomicAdd(count, Count(1))] = encode(voxels.value(0));
}

constexpr int kMaxBrackets = 8;

/// Finite values low to high, both included; those between are stored unless there is but one.
template <class T>
struct Brackets {
  T low[kMaxBrackets], high[kMaxBrackets];
};

struct BracketCounts {
  Count kept, stored, below[kMaxBrackets], up_to_high[kMaxBrackets];
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
__global__ void __launch_bounds__(kThreads)
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

/// Exact order statistics: in one pass with the help of a sample where that works, else by radix passes over the
/// values.
template <class T, Machine kMachine>
class OrderSelection {
 public:
  using Key = typename KeyEncoder<T>::Key;
  static constexpr Key kOpenLow = 0, kOpenHigh = ~Key(0);  ///< no finite value has these

  OrderSelection(DeviceContext& context, const KernelValues<T>& values, const KeyFormat& format,
                 std::span<const double> percents)
      : context_(context), values_(values), format_(format), encode_(format), percents_(percents) {}

  OrderStatistics run() {
    constexpr std::int64_t kLeastForSampling = 1 << 20;
    const bool sampling = values_.kernel.count >= kLeastForSampling && format_.bits > 16;
    OrderStatistics found;
    return sampling && select_in_brackets(found) ? found : select_by_passes();
  }

 private:
  struct KeyRange {
    Key low, high;
  };

  OrderStatistics select_by_passes() {
    OrderStatistics found;
    const auto ranks_of = [&](std::int64_t n) { return percentile_ranks(found.count = n, percents_); };
    const auto blocks = unsigned(std::min(resident_blocks(context_, value_digits_kernel<T, kMachine, false>), tiles()));
    found.keys = radix_select(format_.bits, kDigitBits, ranks_of, [&](const auto& prefixes, int shift, int width) {
      return count_digits<Key>(
          context_, format_.bits, prefixes, shift, width, [&](const Digits<Key>& digits, bool first, Count* total) {
            const cudaStream_t stream = stream_of(context_);
            if (first)
              value_digits_kernel<T, kMachine, true><<<blocks, kThreads, 0, stream>>>(values_, encode_, digits, total);
            else
              value_digits_kernel<T, kMachine, false><<<blocks, kThreads, 0, stream>>>(values_, encode_, digits, total);
          });
    });
    return found;
  }

  /// Disjoint ascending ranges that hold the percentiles in all likelihood: five standard deviations of the sample's.
  std::vector<KeyRange> sample_ranges() {
    Buffer keys = context_.allocate(kSamples * sizeof(Key)), counter = context_.allocate(sizeof(Count));
    auto* sampled = static_cast<Key*>(keys.data());
    auto* count = static_cast<Count*>(counter.data());
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(count, 0, sizeof(Count), stream_of(context_)));
    sample_kernel<T, kMachine>
        <<<unsigned(kSamples / kThreads), kThreads, 0, stream_of(context_)>>>(values_, encode_, sampled, count);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());

    struct RankRange {
      std::int64_t low, high;
    };
    std::vector<RankRange> wanted;
    std::vector<std::int64_t> ranks;
    std::int64_t n = 0;
    const auto inside = [&](std::int64_t rank) { return rank >= 0 && rank < n; };
    const auto ranks_of = [&](std::int64_t found) {
      n = found;
      for (const double percent : percents_) {
        const double share = percent / 100, centre = share * double(n - 1);
        const double margin = 5 * std::sqrt(double(n) * share * (1 - share)) + 5;
        const RankRange range{std::int64_t(std::floor(centre - margin)), std::int64_t(std::ceil(centre + margin))};
        wanted.push_back(range);
        if (inside(range.low)) ranks.push_back(range.low);
        if (inside(range.high)) ranks.push_back(range.high);
      }
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      return ranks;
    };
    const auto found = select_keys(context_, sampled, count, kSamples, format_.bits, ranks_of);
    const auto key_at = [&](std::int64_t rank) {
      return Key(found[std::size_t(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())]);
    };
    if (n == 0) return {{kOpenLow, kOpenHigh}};

    std::sort(wanted.begin(), wanted.end(), [](const RankRange& a, const RankRange& b) { return a.low < b.low; });
    std::vector<KeyRange> ranges;
    for (const RankRange& range : wanted) {
      KeyRange keys_of{inside(range.low) ? key_at(range.low) : kOpenLow,
                       inside(range.high) ? key_at(range.high) : kOpenHigh};
      if (!ranges.empty() && keys_of.low <= ranges.back().high) {
        if (keys_of.high <= ranges.back().high) continue;
        keys_of.low = ranges.back().high + 1;
      }
      ranges.push_back(keys_of);
    }
    return ranges;
  }

  T value_of(Key key) const {
    if (key == kOpenLow) return -std::numeric_limits<T>::infinity();
    return key == kOpenHigh ? std::numeric_limits<T>::infinity() : T(decode_key(format_, key));
  }

  BracketCounts count_brackets(const std::vector<KeyRange>& ranges, Key* candidates, std::int64_t capacity,
                               BracketCounts* total) {
    Brackets<T> brackets;
    for (std::size_t b = 0; b < kMaxBrackets; ++b) {
      brackets.low[b] = b < ranges.size() ? value_of(ranges[b].low) : T(0);
      brackets.high[b] = b < ranges.size() ? value_of(ranges[b].high) : T(0);
    }
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total, 0, sizeof(BracketCounts), stream_of(context_)));
    const auto launch = [&](auto kernel) {
      const auto blocks = unsigned(std::min(resident_blocks(context_, kernel), tiles()));
      kernel<<<blocks, kThreads, 0, stream_of(context_)>>>(values_, encode_, brackets, candidates, capacity, total);
      VOLPIPE_CHECK_CUDA(cudaGetLastError());
    };
    if (ranges.size() <= 2) launch(bracket_kernel<T, kMachine, 2>);
    else launch(bracket_kernel<T, kMachine, kMaxBrackets>);
    BracketCounts counts;
    copy_to_host(context_, &counts, total, sizeof counts);
    return counts;
  }

  /// False where a range missed its percentile or the candidates are too many.
  bool select_in_brackets(OrderStatistics& found) {
    const std::vector<KeyRange> ranges = sample_ranges();
    const std::int64_t capacity = values_.kernel.count / 8;
    Buffer candidates = context_.allocate(std::size_t(capacity) * sizeof(Key)),
           totals = context_.allocate(sizeof(BracketCounts));
    auto* keys = static_cast<Key*>(candidates.data());
    auto* total = static_cast<BracketCounts*>(totals.data());
    const BracketCounts counts = count_brackets(ranges, keys, capacity, total);
    found.count = std::int64_t(counts.kept);
    if (found.count == 0) return true;
    if (std::int64_t(counts.stored) > capacity) return false;

    constexpr std::int64_t kNotStored = -1;
    struct Place {
      std::size_t range;
      std::int64_t stored_rank;
    };
    std::vector<Place> places;
    std::vector<std::int64_t> stored_ranks;
    for (const std::int64_t rank : percentile_ranks(found.count, percents_)) {
      std::int64_t stored_before = 0;
      std::size_t r = 0;
      for (; r < ranges.size() && rank >= std::int64_t(counts.up_to_high[r]); ++r)
        if (ranges[r].low != ranges[r].high) stored_before += std::int64_t(counts.up_to_high[r] - counts.below[r]);
      if (r == ranges.size() || rank < std::int64_t(counts.below[r])) return false;
      const bool stored = ranges[r].low != ranges[r].high;
      places.push_back({r, stored ? stored_before + rank - std::int64_t(counts.below[r]) : kNotStored});
      if (stored) stored_ranks.push_back(places.back().stored_rank);
    }
    std::vector<std::uint64_t> stored_keys;
    if (!stored_ranks.empty())
      stored_keys = select_keys(context_, keys, &total->stored, std::int64_t(counts.stored), format_.bits,
                                [&](std::int64_t) { return stored_ranks; });
    auto next = stored_keys.begin();
    for (const Place& place : places)
      found.keys.push_back(place.stored_rank == kNotStored ? std::uint64_t(ranges[place.range].low) : *next++);
    return true;
  }

  std::int64_t tiles() const { return divide_up(values_.kernel.count, StatisticsTile<T, kMachine>::kSize); }

  DeviceContext& context_;
  const KernelValues<T>& values_;
  KeyFormat format_;
  KeyEncoder<T> encode_;
  std::span<const double> percents_;
};

template <class Values>
struct ValueType;
template <class T>
struct ValueType<KernelValues<T>> {
  using type = T;
};

}  // namespace

Moments moments(DeviceContext& context, const SampledValues& values) {
  return visit_values(values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    const std::int64_t chunks = divide_up(values.count, kChunkVoxels);
    Buffer buffer = context.allocate(std::size_t(chunks) * sizeof(Moments));
    auto* results = static_cast<Moments*>(buffer.data());
    const cudaStream_t stream = stream_of(context);
    moments_kernel<T, decltype(machine)::value><<<unsigned(chunks), kThreads, 0, stream>>>(kernel_values, results);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    merge_kernel<<<1, kMergeThreads, 0, stream>>>(results, chunks);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    Moments total;
    copy_to_host(context, &total, results, sizeof total);
    return total;
  });
}

OrderStatistics order_statistics(DeviceContext& context, const SampledValues& values, const KeyFormat& format,
                                 std::span<const double> percents) {
  return visit_values(values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    OrderStatistics result;
    std::map<std::int64_t, std::uint64_t> key_of_rank;
    for (std::size_t first = 0; first < percents.size(); first += kMaxBrackets) {
      const auto group = percents.subspan(first, std::min<std::size_t>(kMaxBrackets, percents.size() - first));
      const auto found = OrderSelection<T, decltype(machine)::value>(context, kernel_values, format, group).run();
      if (found.count == 0) return found;
      result.count = found.count;
      const auto ranks = percentile_ranks(found.count, group);
      for (std::size_t i = 0; i < ranks.size(); ++i) key_of_rank[ranks[i]] = found.keys[i];
    }
    for (const auto& [rank, key] : key_of_rank) result.keys.push_back(key);
    return result;
  });
}

std::vector<std::int64_t> histogram(DeviceContext& context, const SampledValues& values, double low, double high,
                                    int bins) {
  return visit_values(values, [&](const auto& kernel_values, auto machine) {
    using T = typename ValueType<std::decay_t<decltype(kernel_values)>>::type;
    constexpr Machine kMachine = decltype(machine)::value;
    const std::size_t bytes = std::size_t(bins) * sizeof(Count);
    Buffer total = context.allocate(bytes);
    const cudaStream_t stream = stream_of(context);
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total.data(), 0, bytes, stream));
    const std::int64_t tiles = divide_up(values.count, StatisticsTile<T, kMachine>::kSize);
    const std::int64_t blocks = std::min(resident_blocks(context, histogram_kernel<T, kMachine>), tiles);
    histogram_kernel<T, kMachine><<<unsigned(blocks), kThreads, 0, stream>>>(
        kernel_values, low, high, bins / (high - low), bins, static_cast<Count*>(total.data()));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    std::vector<std::int64_t> counts(static_cast<std::size_t>(bins));
    copy_to_host(context, counts.data(), total.data(), bytes);
    return counts;
  });
}

}  // namespace volpipe::cuda
