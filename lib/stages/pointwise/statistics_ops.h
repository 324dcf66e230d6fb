// The arithmetic of the statistics that both executors share: chunk moments and their merging, keys that sort as values
// do, the narrowing of ranks by digits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "device/host_device.h"
#include "stages/pointwise/statistics.h"

namespace volpipe {

/// A chunk is summed in kLanes interleaved lanes, lane l taking voxels l, l + kLanes, ...; lanes are then added
/// pairwise, neighbours first.
inline constexpr std::int64_t kChunkVoxels = 32768;
inline constexpr int kLanes = 512;

/// Sums of a chunk's differences from its pivot, the first finite voxel selected.
struct ChunkSums {
  std::int64_t count, non_finite;
  double min, max, pivot, sum, squares;
};

VOLPIPE_HD inline Moments moments_of(const ChunkSums& sums) {
  Moments moments;
  moments.count = sums.count;
  moments.non_finite = sums.non_finite;
  if (sums.count == 0) return moments;
  const double shift = sums.sum / double(sums.count);
  const double squares = std::fma(-sums.sum, shift, sums.squares);
  moments.min = sums.min + 0.0;  // -0 becomes 0
  moments.max = sums.max + 0.0;
  moments.mean = sums.pivot + shift;
  moments.sum_squares = squares > 0 ? squares : 0;
  return moments;
}

VOLPIPE_HD inline Moments merged(const Moments& a, const Moments& b) {
  const std::int64_t non_finite = a.non_finite + b.non_finite;
  Moments result = a.count == 0 ? b : a;
  if (a.count != 0 && b.count != 0) {
    const double share = double(b.count) / double(a.count + b.count);
    const double delta = b.mean - a.mean;
    result.count = a.count + b.count;
    result.min = b.min < a.min ? b.min : a.min;
    result.max = b.max > a.max ? b.max : a.max;
    result.mean = std::fma(delta, share, a.mean);
    result.sum_squares = std::fma(delta * delta, double(a.count) * share, a.sum_squares + b.sum_squares);
  }
  result.non_finite = non_finite;
  return result;
}

/// How values become unsigned keys in the same order; -0 and 0 share one.
struct KeyFormat {
  bool floating;
  int bits;       ///< of a key
  double lowest;  ///< integers: the value of key 0
};

/// Keys of an integer image that no program changes are as short as its type.
inline KeyFormat key_format(const SampledValues& values, Precision precision) {
  const DataType type = values.inputs[0].dtype;
  if (values.program->is_identity() && !is_floating(type))
    return {false, int(8 * size_of(type)), integer_range(type).lowest};
  return {true, precision == Precision::single ? 32 : 64, 0};
}

template <class T>
struct KeyEncoder {
  using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  bool floating;
  T lowest;

  explicit KeyEncoder(const KeyFormat& format) : floating(format.floating), lowest(T(format.lowest)) {}
  VOLPIPE_HD Key operator()(T value) const {
    if (!floating) return Key(value - lowest);
    const Key bits = std::bit_cast<Key>(value + T(0));
    constexpr Key kSign = Key(1) << (8 * sizeof(Key) - 1);
    return bits & kSign ? ~bits : bits | kSign;
  }
};

inline double decode_key(const KeyFormat& format, std::uint64_t key) {
  if (!format.floating) return double(key) + format.lowest;
  if (format.bits == 32) {
    const auto bits = std::uint32_t(key);
    return std::bit_cast<float>(bits >> 31 ? bits & 0x7fffffffu : ~bits);
  }
  return std::bit_cast<double>(key >> 63 ? key & ~(std::uint64_t(1) << 63) : ~key);
}

/// The keys at ranks ranks_of(n), ascending, among n keys. count_digits(prefixes, shift, width) gives, for each prefix
/// in turn, how many keys with key >> (shift + width) == prefix have each value of the next `width` bits, which are
/// digit_bits(number of prefixes) while there are so many. Empty when n is 0.
template <class DigitBits, class RanksOf, class CountDigits>
std::vector<std::uint64_t> radix_select(int key_bits, DigitBits&& digit_bits, RanksOf&& ranks_of,
                                        CountDigits&& count_digits) {
  struct Search {
    std::int64_t rank;
    std::uint64_t prefix;
  };
  std::vector<Search> searches;
  std::vector<std::uint64_t> prefixes{0};
  for (int shift = key_bits; shift > 0;) {
    const int width = std::min(digit_bits(prefixes.size()), shift);
    shift -= width;
    const std::vector<std::int64_t> counts = count_digits(prefixes, shift, width);
    if (shift + width == key_bits) {
      std::int64_t n = 0;
      for (const std::int64_t count : counts) n += count;
      if (n == 0) return {};
      for (const std::int64_t rank : ranks_of(n)) searches.push_back({rank, 0});
    }
    for (Search& search : searches) {
      const auto slot = std::lower_bound(prefixes.begin(), prefixes.end(), search.prefix) - prefixes.begin();
      const std::int64_t* digit_counts = counts.data() + (slot << width);
      std::uint64_t digit = 0;
      while (search.rank >= digit_counts[digit]) search.rank -= digit_counts[digit++];
      search.prefix = search.prefix << width | digit;
    }
    prefixes.clear();
    for (const Search& search : searches)
      if (prefixes.empty() || prefixes.back() != search.prefix) prefixes.push_back(search.prefix);
  }
  std::vector<std::uint64_t> keys;
  for (const Search& search : searches) keys.push_back(search.prefix);
  return keys;
}

/// Equal bins over [low, high], half open but the last.
struct HistogramBins {
  double low, scale;
  int last;

  HistogramBins(double from, double to, int bins) : low(from), scale(bins / (to - from)), last(bins - 1) {}
  /// Of a value from low to high.
  VOLPIPE_HD int operator()(double value) const {
    const int bin = int((value - low) * scale);
    return bin < last ? bin : last;
  }
};

/// Where a percentile lies among n > 0 sorted values, with numpy's arithmetic.
struct PercentilePlace {
  std::int64_t below, above;
  double weight;  ///< of `above`

  VOLPIPE_HD PercentilePlace(std::int64_t n, double percent) {
    const double place = double(n - 1) * (percent / 100);
    const auto whole = std::int64_t(std::floor(place));
    below = whole < 0 ? 0 : whole < n - 1 ? whole : n - 1;
    above = below + 1 < n - 1 ? below + 1 : n - 1;
    weight = place - double(below);
  }
  double interpolate(double low, double high) const {
    const double difference = high - low;
    return weight >= 0.5 ? high - difference * (1 - weight) : low + difference * weight;
  }
};

/// Order statistics on CUDA: samples taken first, from as many values as make it worth while, and the share of the
/// values that may turn out candidates.
inline constexpr std::int64_t kSamples = 262144, kLeastForSampling = 1 << 20, kCandidateShare = 8;

/// Both order statistics of each percentile among n values, ascending and without repeats.
std::vector<std::int64_t> percentile_ranks(std::int64_t n, std::span<const double> percents);

}  // namespace volpipe
