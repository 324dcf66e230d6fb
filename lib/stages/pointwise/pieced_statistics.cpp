#include "stages/pointwise/pieced_statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "stages/pointwise/otsu.h"
#include "stages/pointwise/statistics_ops.h"
#include "volume/error.h"

namespace volpipe {

namespace {

using Histogram = std::vector<std::int64_t>;

class PiecedValues {
 public:
  PiecedValues(DeviceContext& context, const EachPiece& pieces) : context_(context), pieces_(pieces) {}

  void select(const Mask& mask) {
    if (mask.kind == Mask::Kind::nonzero) chosen_ = Selection{Selection::Kind::nonzero};
    if (mask.kind == Mask::Kind::above) chosen_ = Selection{Selection::Kind::above, mask.threshold};
    if (mask.kind == Mask::Kind::foreground) chosen_ = Selection{Selection::Kind::above, foreground_threshold()};
  }

  Moments moments() const {
    Moments total;
    each([&](const SampledValues& piece) { total = merge(total, compute_moments(context_, piece)); });
    return total;
  }

  Moments range() const {
    Moments total;
    each([&](const SampledValues& piece) { total = merge(total, compute_range(context_, piece)); });
    return total;
  }

  Histogram histogram(double low, double high, int bins) const {
    Histogram total(static_cast<std::size_t>(bins));
    each([&](const SampledValues& piece) { add(total, compute_histogram(context_, piece, low, high, bins)); });
    return total;
  }

  /// Adds up the histograms over the intervals that are their keys.
  std::map<std::pair<double, double>, Histogram> histograms(std::map<std::pair<double, double>, Histogram> totals,
                                                            int bins) const {
    each([&](const SampledValues& piece) {
      for (auto& [interval, total] : totals)
        add(total, compute_histogram(context_, piece, interval.first, interval.second, bins));
    });
    return totals;
  }

  Precision precision() const { return precision_; }

 private:
  template <class Visit>
  void each(Visit&& visit) const {
    pieces_([&](const SampledValues& piece) {
      SampledValues values = piece;
      if (chosen_) values.selection = *chosen_;
      precision_ = needed_precision(*piece.program, piece.inputs, DataType::float32, piece.precision);
      visit(values);
    });
  }

  static void add(Histogram& total, const Histogram& part) {
    std::transform(total.begin(), total.end(), part.begin(), total.begin(), std::plus<>());
  }

  double foreground_threshold() const {
    const Moments whole = range();
    if (whole.count == 0) return std::numeric_limits<double>::quiet_NaN();
    if (whole.min == whole.max) return whole.min;
    return otsu_thresholds(whole, histogram(whole.min, whole.max, kOtsuBins), 2, precision_)[0];
  }

  DeviceContext& context_;
  const EachPiece& pieces_;
  std::optional<Selection> chosen_;
  mutable Precision precision_ = Precision::single;
};

/// An order statistic on its way: the value of rank `rank` among those from `low` to `high`.
struct Search {
  std::int64_t rank;
  double low, high;
};

/// The least number of type T from `low` to `high` that lies in `bin` or above; the bin of `high` is such.
template <class T>
double least_in_bin(const HistogramBins& bin_of, int bin, double low, double high) {
  const KeyFormat format{true, 8 * sizeof(T), 0};
  const KeyEncoder<T> encode(format);
  auto below = encode(T(low)), inside = encode(T(high));
  if (bin_of(low) >= bin) return low;
  while (inside - below > 1) {
    const auto middle = below + (inside - below) / 2;
    (bin_of(decode_key(format, middle)) >= bin ? inside : below) = middle;
  }
  return decode_key(format, inside) + 0.0;
}

/// The greatest that lies in `bin` or below; the bin of `low` is such.
template <class T>
double greatest_in_bin(const HistogramBins& bin_of, int bin, double low, double high) {
  const KeyFormat format{true, 8 * sizeof(T), 0};
  const KeyEncoder<T> encode(format);
  auto inside = encode(T(low)), above = encode(T(high));
  if (bin_of(high) <= bin) return high;
  while (above - inside > 1) {
    const auto middle = inside + (above - inside) / 2;
    (bin_of(decode_key(format, middle)) <= bin ? inside : above) = middle;
  }
  return decode_key(format, inside) + 0.0;
}

template <class T>
void narrow(Search& search, const Histogram& counts) {
  const HistogramBins bin_of(search.low, search.high, int(counts.size()));
  std::size_t bin = 0;
  while (search.rank >= counts[bin]) search.rank -= counts[bin++];
  const double low = least_in_bin<T>(bin_of, int(bin), search.low, search.high);
  search.high = greatest_in_bin<T>(bin_of, int(bin), low, search.high);
  search.low = low;
}

void check_steps(const Search& search, int bins) {
  if (std::isfinite(search.high - search.low) && std::isfinite(bins / (search.high - search.low))) return;
  throw Error(ErrorCode::unsupported,
              "the values span more than float64 holds, so their percentiles cannot be taken slab by slab: clip them "
              "first, or use a device that holds the whole volume");
}

std::vector<Search> found(const PiecedValues& values, std::vector<Search> searches) {
  constexpr int kBins = 4096;
  for (;;) {
    std::map<std::pair<double, double>, Histogram> intervals;
    for (const Search& search : searches)
      if (search.low < search.high) {
        check_steps(search, kBins);
        intervals.try_emplace({search.low, search.high}, Histogram(std::size_t(kBins)));
      }
    if (intervals.empty()) return searches;
    intervals = values.histograms(std::move(intervals), kBins);
    for (Search& search : searches) {
      if (!(search.low < search.high)) continue;
      const Histogram& counts = intervals.at({search.low, search.high});
      values.precision() == Precision::single ? narrow<float>(search, counts) : narrow<double>(search, counts);
    }
  }
}

std::vector<double> percentiles(const PiecedValues& values, const std::vector<double>& percents) {
  const Moments range = values.range();
  if (range.count == 0) return std::vector<double>(percents.size(), std::numeric_limits<double>::quiet_NaN());
  std::vector<Search> searches;
  for (const double percent : percents) {
    const PercentilePlace place(range.count, percent);
    searches.push_back({place.below, range.min, range.max});
    searches.push_back({place.above, range.min, range.max});
  }
  searches = found(values, std::move(searches));
  std::vector<double> result;
  for (std::size_t i = 0; i < percents.size(); ++i)
    result.push_back(
        PercentilePlace(range.count, percents[i]).interpolate(searches[2 * i].low, searches[2 * i + 1].low));
  return result;
}

}  // namespace

StatisticsResult measure_pieces(DeviceContext& context, const StatisticsRequest& request, const EachPiece& pieces) {
  PiecedValues values(context, pieces);
  values.select(request.mask);
  StatisticsResult result;
  if (request.moments) result.moments = values.moments();
  else if (request.range || request.bins > 0) result.moments = values.range();
  if (!request.percentiles.empty()) result.percentiles = percentiles(values, request.percentiles);
  if (request.bins > 0 && result.moments.min < result.moments.max)
    result.histogram = values.histogram(result.moments.min, result.moments.max, request.bins);
  return result;
}

}  // namespace volpipe
