#include "stages/pointwise/otsu.h"

#include <algorithm>

#include "stages/pointwise/statistics_ops.h"

namespace volpipe {

namespace {

/// Counts of bins and sums of bin numbers, up to each bin, so that any run of bins costs two differences.
class BinSums {
 public:
  explicit BinSums(std::span<const std::int64_t> histogram) : counts_(histogram.size() + 1), sums_(counts_.size()) {
    for (std::size_t bin = 0; bin < histogram.size(); ++bin) {
      counts_[bin + 1] = counts_[bin] + histogram[bin];
      sums_[bin + 1] = sums_[bin] + histogram[bin] * std::int64_t(bin);
    }
    if (counts_.back() > 0) middle_ = sums_.back() / counts_.back();
  }

  /// What bins [first, last] as a class add to the variance between classes, up to what all partings share: their
  /// count by the square of their mean, about the middle of all.
  double of_class(int first, int last) const {
    const std::int64_t count = counts_[std::size_t(last + 1)] - counts_[std::size_t(first)];
    const std::int64_t sum = sums_[std::size_t(last + 1)] - sums_[std::size_t(first)] - middle_ * count;
    return count == 0 ? 0 : double(sum) * (double(sum) / double(count));
  }

 private:
  std::vector<std::int64_t> counts_, sums_;
  std::int64_t middle_ = 0;
};

/// The last bin of every class but the last.
std::vector<int> best_partings(const BinSums& sums, int bins, int classes) {
  std::vector<std::vector<int>> last_of_first(std::size_t(classes), std::vector<int>(std::size_t(bins), bins - 1));
  std::vector<double> best(static_cast<std::size_t>(bins));  // of bins [first, bins) in so many classes
  for (int first = 0; first < bins; ++first) best[std::size_t(first)] = sums.of_class(first, bins - 1);
  for (int more = 1; more < classes; ++more) {
    std::vector<double> with_one_more(std::size_t(bins), 0.0);
    for (int first = 0; first + more < bins; ++first) {
      double highest = -1;
      for (int last = first; last + more < bins; ++last) {
        const double between = sums.of_class(first, last) + best[std::size_t(last + 1)];
        if (between <= highest) continue;
        highest = between;
        last_of_first[std::size_t(more)][std::size_t(first)] = last;
      }
      with_one_more[std::size_t(first)] = highest;
    }
    best = std::move(with_one_more);
  }
  std::vector<int> partings;
  for (int more = classes - 1, first = 0; more > 0; --more) {
    partings.push_back(last_of_first[std::size_t(more)][std::size_t(first)]);
    first = partings.back() + 1;
  }
  return partings;
}

/// The largest number of type T that lies in `bin` or below, between `low` that does and `high` that does not.
template <class T>
double largest_in_bin(const HistogramBins& bin_of, int bin, double low, double high) {
  const KeyFormat format{true, 8 * sizeof(T), 0};
  const KeyEncoder<T> encode(format);
  auto inside = encode(T(low)), outside = encode(T(high));
  while (outside - inside > 1) {
    const auto middle = inside + (outside - inside) / 2;
    (bin_of(decode_key(format, middle)) <= bin ? inside : outside) = middle;
  }
  return decode_key(format, inside);
}

}  // namespace

std::vector<double> otsu_thresholds(const Moments& moments, std::span<const std::int64_t> histogram, int classes,
                                    Precision precision) {
  const auto filled =
      int(std::count_if(histogram.begin(), histogram.end(), [](std::int64_t count) { return count > 0; }));
  if (filled == 0) return {};
  const int bins = int(histogram.size());
  const HistogramBins bin_of(moments.min, moments.max, bins);
  std::vector<double> thresholds;
  for (const int parting : best_partings(BinSums(histogram), bins, std::min(classes, filled)))
    thresholds.push_back(precision == Precision::single
                             ? largest_in_bin<float>(bin_of, parting, moments.min, moments.max)
                             : largest_in_bin<double>(bin_of, parting, moments.min, moments.max));
  return thresholds;
}

double otsu_threshold(DeviceContext& context, const SampledValues& values) {
  const Moments range = compute_range(context, values);
  if (range.count == 0) return std::numeric_limits<double>::quiet_NaN();
  if (range.min == range.max) return range.min;
  const auto histogram = compute_histogram(context, values, range.min, range.max, kOtsuBins);
  const Precision precision = needed_precision(*values.program, values.inputs, DataType::float32, values.precision);
  return otsu_thresholds(range, histogram, 2, precision)[0];
}

}  // namespace volpipe
