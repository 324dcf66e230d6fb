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

/// visitor(KernelValues<T>, machine) with the type and the least machine that the values need.
template <class Visitor>
decltype(auto) visit_values(const SampledValues& values, Visitor&& visitor) {
  return visit_machine(*values.program, values.precision, [&](auto zero, auto machine) {
    constexpr Machine kMachine = decltype(machine)::value == Machine::load_only ? Machine::load_only : Machine::full;
    return visitor(make_kernel_values<decltype(zero)>(values), std::integral_constant<Machine, kMachine>{});
  });
}

template <class T, class Place, Machine kMachine>
class SelectedVoxels {
 public:
  static constexpr int kVoxels = Place::kVoxels;

  /// Bit v of the result: voxel v is before the end, selected and finite.
  __device__ __forceinline__ unsigned run(const KernelValues<T>& values, const Place& place) {
    evaluator_.run(values.kernel, place);
    unsigned keep = 0;
    if (values.selection == Selection::Kind::mask) {
      T mask[kVoxels];
      load_voxels(values.mask, values.kernel.count, place, mask);
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) keep |= unsigned(mask[v] != T(0)) << v;
    } else {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) {
        const bool selected = values.selection == Selection::Kind::all ||
                              (values.selection == Selection::Kind::nonzero ? evaluator_.acc[v] != T(0)
                                                                            : evaluator_.acc[v] > values.threshold);
        keep |= unsigned(selected) << v;
      }
    }
    if (!place.whole) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) keep &= ~(unsigned(place.position(v) >= values.kernel.count) << v);
    }
    unsigned numbers = 0;
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) numbers |= unsigned(detail::finite(evaluator_.acc[v])) << v;
    non_finite += __popc(keep & ~numbers);
    return keep & numbers;
  }
  __device__ __forceinline__ T value(int v) const { return evaluator_.acc[v]; }

  int non_finite = 0;

 private:
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
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v) {
      if (keep >> v & 1) {
        const T value = voxels.value(v);
        const double difference = double(value) - pivot;
        sum[v % 4] += difference;
        squares[v % 4] = std::fma(difference, difference, squares[v % 4]);
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
      }
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

/// body(value) for every voxel kept, the block's tiles dealt out in turn.
template <class T, Machine kMachine, class Body>
__device__ __forceinline__ void for_each_kept(const KernelValues<T>& values, Body&& body) {
  using Place = StatisticsTile<T, kMachine>;
  SelectedVoxels<T, Place, kMachine> voxels;
  const std::int64_t tiles = (values.kernel.count + Place::kSize - 1) / Place::kSize;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const unsigned keep = voxels.run(values, Place(tile, values.kernel.count, values.kernel.quads));
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v) body(voxels.value(v), bool(keep >> v & 1));
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
    for_each_kept<T, kMachine>(values, [&](T value, bool keep) {
      if (keep && double(value) >= low && double(value) <= high) counts.add(bin_of(value));
    });
    counts.flush(total);
  } else {
    for_each_kept<T, kMachine>(values, [&](T value, bool keep) {
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

template <class Key>
__device__ __forceinline__ void count_digit(SharedBins& counts, const Digits<Key>& digits, Key key, bool keep) {
  const Key shifted = key >> digits.shift;
  const Key prefix = digits.width + digits.shift == 8 * int(sizeof(Key)) ? Key(0) : shifted >> digits.width;
  const int digit = int(shifted & ((Key(1) << digits.width) - 1));
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot)
    if (keep && slot < digits.slots && prefix == digits.prefix[slot]) counts.add(slot << digits.width | digit);
}

template <class T, Machine kMachine>
__global__ void __launch_bounds__(kThreads)
    value_digits_kernel(const __grid_constant__ KernelValues<T> values, KeyEncoder<T> encode,
                        const __grid_constant__ Digits<typename KeyEncoder<T>::Key> digits, Count* total) {
  __shared__ unsigned shared[kSharedBins];
  SharedBins counts(shared, digits.slots << digits.width);
  for_each_kept<T, kMachine>(values, [&](T value, bool keep) { count_digit(counts, digits, encode(value), keep); });
  counts.flush(total);
}

template <class Key>
__global__ void __launch_bounds__(kThreads)
    key_digits_kernel(const Key* keys, std::int64_t count, const __grid_constant__ Digits<Key> digits, Count* total) {
  __shared__ unsigned shared[kSharedBins];
  SharedBins counts(shared, digits.slots << digits.width);
  for (std::int64_t i = blockIdx.x * std::int64_t(kThreads) + threadIdx.x; i < count;
       i += gridDim.x * std::int64_t(kThreads))
    count_digit(counts, digits, keys[i], true);
  counts.flush(total);
}

/// radix_select's counting; launch(digits, total) queues the kernel that adds to `total`.
template <class Key, class Launch>
std::vector<std::int64_t> count_digits(DeviceContext& context, const std::vector<std::uint64_t>& prefixes, int shift,
                                       int width, Launch&& launch) {
  const std::size_t bytes = (prefixes.size() << width) * sizeof(Count);
  Buffer total = context.allocate(bytes);
  VOLPIPE_CHECK_CUDA(cudaMemsetAsync(total.data(), 0, bytes, stream_of(context)));
  for (std::size_t first = 0; first < prefixes.size(); first += kSlots) {
    Digits<Key> digits{{}, int(std::min<std::size_t>(kSlots, prefixes.size() - first)), shift, width};
    for (int slot = 0; slot < digits.slots; ++slot) digits.prefix[slot] = Key(prefixes[first + std::size_t(slot)]);
    launch(digits, static_cast<Count*>(total.data()) + (first << width));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  }
  std::vector<std::int64_t> counts(prefixes.size() << width);
  copy_to_host(context, counts.data(), total.data(), bytes);
  return counts;
}

/// The keys at `ranks` of an array of keys.
template <class Key>
std::vector<std::uint64_t> select_keys(DeviceContext& context, const Key* keys, std::int64_t count, int key_bits,
                                       const std::vector<std::int64_t>& ranks) {
  if (count == 0 || ranks.empty()) return {};
  const auto blocks = std::min(divide_up(count, kThreads * 8), resident_blocks(context, key_digits_kernel<Key>));
  return radix_select(
      key_bits, kDigitBits, [&](std::int64_t) { return ranks; },
      [&](const auto& prefixes, int shift, int width) {
        return count_digits<Key>(context, prefixes, shift, width, [&](const Digits<Key>& digits, Count* total) {
          key_digits_kernel<Key><<<unsigned(blocks), kThreads, 0, stream_of(context)>>>(keys, count, digits, total);
        });
      });
}

constexpr std::int64_t kSamples = 65536;

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

/// Keys low to high, both included. The keys between are stored unless there is but one.
template <class Key>
struct Brackets {
  Key low[kMaxBrackets], high[kMaxBrackets];
  int size;
};

struct BracketCounts {
  Count kept, stored, below[kMaxBrackets], inside[kMaxBrackets];
};

/// A warp's keys on their way to the candidates, written a few hundred at a time.
template <class Key>
class CandidateBuffer {
 public:
  static constexpr int kSize = 512;
  __device__ CandidateBuffer(Key* shared, Key* candidates, std::int64_t capacity, Count* stored)
      : shared_(shared), candidates_(candidates), capacity_(capacity), stored_(stored) {}

  __device__ __forceinline__ void add(Key key, bool keep) {
    const unsigned keepers = __ballot_sync(kAllLanes, keep);
    if (keepers == 0) return;
    if (keep) shared_[size_ + __popc(keepers & ((1u << threadIdx.x % 32) - 1))] = key;
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
                   const __grid_constant__ Brackets<typename KeyEncoder<T>::Key> brackets,
                   typename KeyEncoder<T>::Key* candidates, std::int64_t capacity, BracketCounts* total) {
  using Key = typename KeyEncoder<T>::Key;
  __shared__ Key shared[kWarps][CandidateBuffer<Key>::kSize];
  CandidateBuffer<Key> buffer(shared[threadIdx.x / 32], candidates, capacity, &total->stored);
  unsigned kept = 0, below[kBrackets] = {}, inside[kBrackets] = {};
  for_each_kept<T, kMachine>(values, [&](T value, bool keep) {
    const Key key = encode(value);
    kept += keep;
    bool candidate = false;
#pragma unroll
    for (int b = 0; b < kBrackets; ++b) {
      const bool is_below = keep && key < brackets.low[b];
      const bool is_inside = keep && !is_below && key <= brackets.high[b];
      below[b] += is_below;
      inside[b] += is_inside;
      candidate = candidate || (is_inside && brackets.low[b] != brackets.high[b]);
    }
    buffer.add(key, candidate);
  });
  buffer.flush();
  add_from_warp(&total->kept, kept);
#pragma unroll
  for (int b = 0; b < kBrackets; ++b) {
    add_from_warp(&total->below[b], below[b]);
    add_from_warp(&total->inside[b], inside[b]);
  }
}

/// Exact order statistics: in one pass with the help of a sample where that works, else by radix passes over the
/// values.
template <class T, Machine kMachine>
class OrderSelection {
 public:
  using Key = typename KeyEncoder<T>::Key;

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
  OrderStatistics select_by_passes() {
    OrderStatistics found;
    const auto ranks_of = [&](std::int64_t n) { return percentile_ranks(found.count = n, percents_); };
    const std::int64_t blocks = resident_blocks(context_, value_digits_kernel<T, kMachine>);
    found.keys = radix_select(format_.bits, kDigitBits, ranks_of, [&](const auto& prefixes, int shift, int width) {
      return count_digits<Key>(context_, prefixes, shift, width, [&](const Digits<Key>& digits, Count* total) {
        value_digits_kernel<T, kMachine><<<unsigned(std::min(blocks, tiles())), kThreads, 0, stream_of(context_)>>>(
            values_, encode_, digits, total);
      });
    });
    return found;
  }

  /// Disjoint ascending brackets that hold the percentiles in all likelihood: six standard deviations of the sample's.
  Brackets<Key> sample_brackets() {
    Buffer keys = context_.allocate(kSamples * sizeof(Key)), counter = context_.allocate(sizeof(Count));
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(counter.data(), 0, sizeof(Count), stream_of(context_)));
    sample_kernel<T, kMachine><<<unsigned(kSamples / kThreads), kThreads, 0, stream_of(context_)>>>(
        values_, encode_, static_cast<Key*>(keys.data()), static_cast<Count*>(counter.data()));
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
    std::int64_t n = 0;
    copy_to_host(context_, &n, counter.data(), sizeof n);

    struct Range {
      std::int64_t low, high;
    };
    std::vector<Range> ranges;
    std::vector<std::int64_t> ranks;
    for (const double percent : percents_) {
      const double share = percent / 100, centre = share * double(n - 1);
      const double margin = 6 * std::sqrt(double(n) * share * (1 - share)) + 6;
      const Range range{std::int64_t(std::floor(centre - margin)), std::int64_t(std::ceil(centre + margin))};
      ranges.push_back(range);
      if (range.low >= 0 && range.low < n) ranks.push_back(range.low);
      if (range.high >= 0 && range.high < n) ranks.push_back(range.high);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const auto found = select_keys(context_, static_cast<const Key*>(keys.data()), n, format_.bits, ranks);
    const auto key_at = [&](std::int64_t rank) {
      return Key(found[std::size_t(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())]);
    };

    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
    Brackets<Key> brackets{};
    for (const Range& range : ranges) {
      Key low = range.low >= 0 && range.low < n ? key_at(range.low) : Key(0);
      const Key high = range.high >= 0 && range.high < n ? key_at(range.high) : ~Key(0);
      if (brackets.size > 0 && low <= brackets.high[brackets.size - 1]) {
        if (high <= brackets.high[brackets.size - 1]) continue;
        low = brackets.high[brackets.size - 1] + 1;
      }
      brackets.low[brackets.size] = low;
      brackets.high[brackets.size++] = high;
    }
    for (int b = brackets.size; b < kMaxBrackets; ++b) brackets.low[b] = brackets.high[b] = ~Key(0);
    return brackets;
  }

  template <int kBrackets>
  void count_brackets(const Brackets<Key>& brackets, Key* candidates, std::int64_t capacity, BracketCounts* total) {
    const std::int64_t blocks = std::min(resident_blocks(context_, bracket_kernel<T, kMachine, kBrackets>), tiles());
    bracket_kernel<T, kMachine, kBrackets><<<unsigned(blocks), kThreads, 0, stream_of(context_)>>>(
        values_, encode_, brackets, candidates, capacity, total);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  }

  bool select_in_brackets(OrderStatistics& found) {
    const Brackets<Key> brackets = sample_brackets();
    const std::int64_t capacity = values_.kernel.count / 8;
    Buffer candidates = context_.allocate(std::size_t(capacity) * sizeof(Key));
    Buffer totals = context_.allocate(sizeof(BracketCounts));
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(totals.data(), 0, sizeof(BracketCounts), stream_of(context_)));
    auto* keys = static_cast<Key*>(candidates.data());
    auto* total = static_cast<BracketCounts*>(totals.data());
    if (brackets.size <= 2) count_brackets<2>(brackets, keys, capacity, total);
    else count_brackets<kMaxBrackets>(brackets, keys, capacity, total);
    BracketCounts counts;
    copy_to_host(context_, &counts, total, sizeof counts);
    found.count = std::int64_t(counts.kept);
    if (found.count == 0) return true;
    if (std::int64_t(counts.stored) > capacity) return false;

    const std::vector<std::int64_t> ranks = percentile_ranks(found.count, percents_);
    std::vector<std::int64_t> stored_ranks;
    std::vector<std::int64_t> places;  // of each rank: where its key is among the stored ranks, or -1 - bracket
    for (const std::int64_t rank : ranks) {
      std::int64_t before = 0;
      int b = 0;
      for (; b < brackets.size; ++b) {
        const auto below = std::int64_t(counts.below[b]), inside = std::int64_t(counts.inside[b]);
        const bool stored = brackets.low[b] != brackets.high[b];
        if (rank >= below && rank < below + inside) {
          places.push_back(stored ? std::int64_t(stored_ranks.size()) : -1 - b);
          if (stored) stored_ranks.push_back(before + rank - below);
          break;
        }
        if (stored) before += inside;
      }
      if (b == brackets.size) return false;
    }
    const auto stored_keys = select_keys(context_, keys, std::int64_t(counts.stored), format_.bits, stored_ranks);
    for (const std::int64_t place : places)
      found.keys.push_back(place >= 0 ? stored_keys[std::size_t(place)] : std::uint64_t(brackets.low[-1 - place]));
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
