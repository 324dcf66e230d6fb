#include "stages/pointwise/statistics.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "stages/pointwise/block_evaluator.h"
#include "stages/pointwise/program_backends.h"
#include "stages/pointwise/statistics_backends.h"
#include "volume/error.h"

namespace volpipe {

namespace {

SampledValues checked(const SampledValues& values) {
  check_inputs(*values.program, values.inputs);
  check_grid(*values.program, values.grid, values.count);
  SampledValues result = values;
  result.precision = needed_precision(*values.program, values.inputs, DataType::float32, values.precision);
  return result;
}

}  // namespace

double Moments::std(double ddof) const {
  return double(count) > ddof ? std::sqrt(sum_squares / (double(count) - ddof)) : 0;
}

Moments merge(const Moments& a, const Moments& b) { return merged(a, b); }

Moments compute_moments(DeviceContext& context, const SampledValues& values) {
  if (values.count <= 0) return {};
  return run_on(context, cpu::moments, cuda::moments, checked(values));
}

Moments compute_range(DeviceContext& context, const SampledValues& values) {
  if (values.count <= 0) return {};
  return run_on(context, cpu::range, cuda::range, checked(values));
}

std::vector<std::int64_t> percentile_ranks(std::int64_t n, std::span<const double> percents) {
  std::vector<std::int64_t> ranks;
  for (const double percent : percents) {
    const PercentilePlace place(n, percent);
    ranks.insert(ranks.end(), {place.below, place.above});
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<double> compute_percentiles(DeviceContext& context, const SampledValues& given,
                                        std::span<const double> percents) {
  std::vector<double> result(percents.size(), std::numeric_limits<double>::quiet_NaN());
  if (given.count <= 0 || percents.empty()) return result;
  const SampledValues values = checked(given);
  const KeyFormat format = key_format(values, values.precision);
  const OrderStatistics found =
      run_on(context, cpu::order_statistics, cuda::order_statistics, values, format, percents);
  if (found.count == 0) return result;
  const std::vector<std::int64_t> ranks = percentile_ranks(found.count, percents);
  const auto value_at = [&](std::int64_t rank) {
    return decode_key(format,
                      found.keys[std::size_t(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())]);
  };
  for (std::size_t i = 0; i < percents.size(); ++i) {
    const PercentilePlace place(found.count, percents[i]);
    result[i] = place.interpolate(value_at(place.below), value_at(place.above));
  }
  return result;
}

std::vector<std::int64_t> compute_histogram(DeviceContext& context, const SampledValues& values, double low,
                                            double high, int bins) {
  if (!(low < high) || bins <= 0) throw Error(ErrorCode::internal, "a histogram needs low < high and at least one bin");
  if (values.count <= 0) return std::vector<std::int64_t>(std::size_t(bins));
  return run_on(context, cpu::histogram, cuda::histogram, checked(values), low, high, bins);
}

std::size_t statistics_scratch_bytes(std::int64_t count, Precision precision, bool percentiles, bool general_program) {
  constexpr std::size_t kTables = std::size_t(1) << 20;  // counts of digits and bins
  const std::size_t key_size = precision == Precision::single ? 4 : 8;
  const auto chunks = std::size_t((count + kChunkVoxels - 1) / kChunkVoxels);
  const std::size_t written = general_program ? std::size_t(count) * key_size : 0;
  const auto keys = std::size_t(percentiles && count >= kLeastForSampling ? kSamples + count / kCandidateShare : 0);
  return kTables + written + std::max(2 * chunks * sizeof(Moments), keys * key_size);
}

namespace cpu {

namespace {

/// A program's values block by block, and which of them count.
template <class T>
class SelectedBlocks {
 public:
  SelectedBlocks(const ExecutableProgram<T>& program, const SampledValues& values, const PlaceTables& tables)
      : evaluator_(program, values.inputs, tables), selection_(values.selection) {}

  void evaluate(std::int64_t begin, std::int64_t count) {
    values_ = evaluator_.evaluate(begin, count);
    select(begin, count);
    std::int64_t dropped = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool number = detail::finite(values_[i]);
      dropped += (number ? 0 : 1) & keep_[i];
      keep_[i] &= std::uint8_t(number);
    }
    non_finite_ += dropped;
  }
  const T* values() const { return values_; }
  const std::uint8_t* keep() const { return keep_; }  ///< 1: selected and finite
  std::int64_t non_finite() const { return non_finite_; }

 private:
  void select(std::int64_t begin, std::int64_t count) {
    const T threshold = T(selection_.threshold);
    switch (selection_.kind) {
      case Selection::Kind::all:
        std::fill_n(keep_, count, std::uint8_t(1));
        break;
      case Selection::Kind::nonzero:
        for (std::int64_t i = 0; i < count; ++i) keep_[i] = values_[i] != T(0);
        break;
      case Selection::Kind::above:
        for (std::int64_t i = 0; i < count; ++i) keep_[i] = values_[i] > threshold;
        break;
      case Selection::Kind::mask:
        visit(selection_.mask.dtype, [&](auto tag) {
          const auto* mask = static_cast<const typename decltype(tag)::type*>(selection_.mask.data) + begin;
          for (std::int64_t i = 0; i < count; ++i) keep_[i] = mask[i] != 0;
        });
    }
  }

  BlockEvaluator<T> evaluator_;
  const Selection& selection_;
  const T* values_ = nullptr;
  std::int64_t non_finite_ = 0;
  alignas(64) std::uint8_t keep_[kBlockVoxels];
};

/// work(blocks, begin, count) for every block of [begin, end), `size` voxels each.
template <class T, class Work>
void for_each_block(SelectedBlocks<T>& blocks, std::int64_t begin, std::int64_t end, std::int64_t size, Work&& work) {
  for (std::int64_t i = begin; i < end; i += size) {
    const std::int64_t count = std::min(size, end - i);
    blocks.evaluate(i, count);
    work(blocks.values(), blocks.keep(), count);
  }
}

/// Least and greatest of the values kept.
template <class T>
class LaneRange {
 public:
  LaneRange() {
    std::fill_n(lowest_, kLanes, std::numeric_limits<T>::infinity());
    std::fill_n(highest_, kLanes, -std::numeric_limits<T>::infinity());
  }

  /// Returns how many.
  std::int64_t add(const T* values, const std::uint8_t* keep, std::int64_t count) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count; ++i) kept += keep[i];
    if (kept == 0) return kept;
    count_ += kept;
    for (std::int64_t i = 0; i < count; ++i) {
      const T low = keep[i] ? values[i] : std::numeric_limits<T>::infinity();
      const T high = keep[i] ? values[i] : -std::numeric_limits<T>::infinity();
      lowest_[i] = low < lowest_[i] ? low : lowest_[i];
      highest_[i] = high > highest_[i] ? high : highest_[i];
    }
    return kept;
  }

  std::int64_t count() const { return count_; }
  Moments total(std::int64_t non_finite) const {
    Moments range;
    range.count = count_;
    range.non_finite = non_finite;
    if (count_ == 0) return range;
    range.min = double(*std::min_element(lowest_, lowest_ + kLanes)) + 0.0;  // -0 becomes 0
    range.max = double(*std::max_element(highest_, highest_ + kLanes)) + 0.0;
    return range;
  }

 private:
  std::int64_t count_ = 0;
  alignas(64) T lowest_[kLanes], highest_[kLanes];
};

template <class T>
class LaneSums {
 public:
  void add(const T* values, const std::uint8_t* keep, std::int64_t count) {
    if (range_.count() == 0) find_pivot(values, keep, count);
    if (range_.add(values, keep, count) == 0) return;
    const double pivot = pivot_;
    for (std::int64_t i = 0; i < count; ++i) {
      const double difference = keep[i] ? double(values[i]) - pivot : 0.0;
      sum_[i] += difference;
      squares_[i] = std::fma(difference, difference, squares_[i]);
    }
  }

  Moments total(std::int64_t non_finite) {
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
      for (int i = 0; i < lanes; ++i) {
        sum_[i] = sum_[2 * i] + sum_[2 * i + 1];
        squares_[i] = squares_[2 * i] + squares_[2 * i + 1];
      }
    const Moments range = range_.total(non_finite);
    return moments_of({range.count, range.non_finite, range.min, range.max, pivot_, sum_[0], squares_[0]});
  }

 private:
  void find_pivot(const T* values, const std::uint8_t* keep, std::int64_t count) {
    const std::int64_t first = std::find(keep, keep + count, 1) - keep;
    if (first < count) pivot_ = double(values[first]);
  }

  LaneRange<T> range_;
  double pivot_ = 0;
  alignas(64) double sum_[kLanes] = {}, squares_[kLanes] = {};
};

/// Sums of the chunks, merged neighbours in pairs, then pairs of pairs.
template <class T, class Sums>
Moments sum_chunks(const DeviceContext& context, const SampledValues& values) {
  const auto program = make_executable<T>(*values.program, DataType::float64);
  const PlaceTables tables = host_tables(*values.program, values.grid);
  std::vector<Moments> chunks(std::size_t((values.count + kChunkVoxels - 1) / kChunkVoxels));
  context.parallel(values.count, kChunkVoxels, [&](std::int64_t begin, std::int64_t end) {
    SelectedBlocks<T> blocks(program, values, tables);
    Sums sums;
    for_each_block(blocks, begin, end, kLanes,
                   [&](const T* block, const std::uint8_t* keep, std::int64_t count) { sums.add(block, keep, count); });
    chunks[std::size_t(begin / kChunkVoxels)] = sums.total(blocks.non_finite());
  });
  for (std::size_t step = 1; step < chunks.size(); step *= 2)
    for (std::size_t i = 0; i + step < chunks.size(); i += 2 * step) chunks[i] = merged(chunks[i], chunks[i + step]);
  return chunks[0];
}

/// Adds up, over all voxels, what tally(blocks' values, keep, count, counts) counts; counts hold `size` entries.
template <class T, class Tally>
std::vector<std::int64_t> count_in_pieces(const DeviceContext& context, const SampledValues& values, std::size_t size,
                                          Tally&& tally) {
  constexpr std::int64_t kLeast = 1 << 20, kMost = 1 << 30;
  const std::int64_t piece =
      std::clamp(values.count / (4 * context.threads()) / kBlockVoxels * kBlockVoxels, kLeast, kMost);
  const auto program = make_executable<T>(*values.program, DataType::float64);
  const PlaceTables tables = host_tables(*values.program, values.grid);
  std::vector<std::int64_t> total(size);
  std::mutex mutex;
  context.parallel(values.count, piece, [&](std::int64_t begin, std::int64_t end) {
    SelectedBlocks<T> blocks(program, values, tables);
    std::vector<std::uint32_t> counts(size);
    for_each_block(blocks, begin, end, kBlockVoxels, [&](const T* block, const std::uint8_t* keep, std::int64_t count) {
      tally(block, keep, count, counts.data());
    });
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < size; ++i) total[i] += counts[i];
  });
  return total;
}

/// More prefixes than it pays to compare each key with.
constexpr std::size_t kManyPrefixes = 8;

/// Finds the prefixes of keys among many that are sought.
class PrefixSlots {
 public:
  static constexpr std::size_t kNone = ~std::size_t(0);

  PrefixSlots(std::span<const std::uint64_t> prefixes, int bits) : prefixes_(prefixes) {
    constexpr int kTableBits = 16;
    shift_ = std::max(bits - kTableBits, 0);
    std::size_t slot = 0;
    for (std::uint64_t top = 0; top <= std::uint64_t(1) << (bits - shift_); ++top) {
      while (slot < prefixes.size() && prefixes[slot] >> shift_ < top) ++slot;
      first_.push_back(std::uint32_t(slot));
    }
  }

  std::size_t operator()(std::uint64_t prefix) const {
    const std::uint64_t top = prefix >> shift_;
    const auto begin = prefixes_.begin() + first_[top], end = prefixes_.begin() + first_[top + 1];
    if (begin == end) return kNone;
    const auto found = std::lower_bound(begin, end, prefix);
    return found != end && *found == prefix ? std::size_t(found - prefixes_.begin()) : kNone;
  }

 private:
  std::span<const std::uint64_t> prefixes_;
  int shift_;
  std::vector<std::uint32_t> first_;  ///< slot with at least such top bits
};

template <class T>
std::vector<std::int64_t> count_digits(const DeviceContext& context, const SampledValues& values,
                                       const KeyFormat& format, std::span<const std::uint64_t> prefixes, int shift,
                                       int width) {
  using Key = typename KeyEncoder<T>::Key;
  const KeyEncoder<T> encode(format);
  const bool first_digits = shift + width == format.bits;
  const PrefixSlots slots(prefixes, format.bits - shift - width);
  const Key digits = Key((std::uint64_t(1) << width) - 1);
  const auto tally = [&](const T* block, const std::uint8_t* keep, std::int64_t count, std::uint32_t* counts) {
    Key keys[kBlockVoxels];
    for (std::int64_t i = 0; i < count; ++i) keys[i] = encode(block[i]) >> shift;
    if (first_digits) {
      for (std::int64_t i = 0; i < count; ++i) counts[keys[i] & digits] += keep[i];
      return;
    }
    if (prefixes.size() > kManyPrefixes) {
      for (std::int64_t i = 0; i < count; ++i)
        if (const std::size_t slot = slots(keys[i] >> width); slot != PrefixSlots::kNone)
          counts[slot << width | (keys[i] & digits)] += keep[i];
      return;
    }
    for (std::size_t slot = 0; slot < prefixes.size(); ++slot) {
      const Key prefix = Key(prefixes[slot]);
      for (std::int64_t i = 0; i < count; ++i)
        if (keys[i] >> width == prefix) counts[slot << width | (keys[i] & digits)] += keep[i];
    }
  };
  return count_in_pieces<T>(context, values, prefixes.size() << width, tally);
}

}  // namespace

Moments moments(DeviceContext& context, const SampledValues& values) {
  return visit_precision(values.precision, [&](auto zero) {
    using T = decltype(zero);
    return sum_chunks<T, LaneSums<T>>(context, values);
  });
}

Moments range(DeviceContext& context, const SampledValues& values) {
  return visit_precision(values.precision, [&](auto zero) {
    using T = decltype(zero);
    return sum_chunks<T, LaneRange<T>>(context, values);
  });
}

OrderStatistics order_statistics(DeviceContext& context, const SampledValues& values, const KeyFormat& format,
                                 std::span<const double> percents) {
  const auto digit_bits = [](std::size_t prefixes) { return prefixes > kManyPrefixes ? 8 : 16; };
  return visit_precision(values.precision, [&](auto zero) {
    using T = decltype(zero);
    OrderStatistics result;
    const auto ranks_of = [&](std::int64_t n) {
      result.count = n;
      return percentile_ranks(n, percents);
    };
    result.keys = radix_select(format.bits, digit_bits, ranks_of, [&](const auto& prefixes, int shift, int width) {
      return count_digits<T>(context, values, format, prefixes, shift, width);
    });
    return result;
  });
}

std::vector<std::int64_t> histogram(DeviceContext& context, const SampledValues& values, double low, double high,
                                    int bins) {
  const HistogramBins bin_of(low, high, bins);
  return visit_precision(values.precision, [&](auto zero) {
    using T = decltype(zero);
    return count_in_pieces<T>(context, values, std::size_t(bins),
                              [=](const T* block, const std::uint8_t* keep, std::int64_t count, std::uint32_t* counts) {
                                for (std::int64_t i = 0; i < count; ++i) {
                                  const double value = block[i];
                                  if (keep[i] && value >= low && value <= high) ++counts[bin_of(value)];
                                }
                              });
  });
}

}  // namespace cpu

}  // namespace volpipe
