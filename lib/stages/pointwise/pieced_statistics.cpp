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
using Interval = std::pair<double, double>;

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
  void count(std::map<Interval, Histogram>& totals) const {
    each([&](const SampledValues& piece) {
      for (auto& [interval, total] : totals)
        add(total, compute_histogram(context_, piece, interval.first, interval.second, int(total.size())));
    });
  }

  /// Least and greatest of the values within each interval.
  void measure(std::map<Interval, Moments>& totals) const {
    each([&](const SampledValues& piece) {
      for (auto& [interval, total] : totals) {
        Program within = *piece.program;
        within.add(Op::keep_at_least, interval.first, std::nan(""));
        within.add(Op::keep_at_most, interval.second, std::nan(""));
        SampledValues values = piece;
        values.program = &within;
        total = merge(total, compute_range(context_, values));
      }
    });
  }

  Precision precision() const { return precision_; }
  /// Whether there is room in the program to look at an interval alone.
  bool can_measure_intervals() const { return instructions_ + 2 <= Program::kMaxInstructions; }

 private:
  template <class Visit>
  void each(Visit&& visit) const {
    pieces_([&](const SampledValues& piece) {
      SampledValues values = piece;
      if (chosen_) values.selection = *chosen_;
      instructions_ = int(piece.program->size());
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
  mutable int instructions_ = 0;
};

/// An order statistic on its way: the value of rank `rank` among the `count` from `low` to `high`.
struct Search {
  std::int64_t rank, count;
  double low, high;

  bool is_open() const { return low < high; }
  Interval interval() const { return {low, high}; }
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

/// To the bin that holds it.
template <class T>
void narrow(Search& search, const Histogram& counts) {
  const HistogramBins bin_of(search.low, search.high, int(counts.size()));
  std::size_t bin = 0;
  while (search.rank >= counts[bin]) search.rank -= counts[bin++];
  search.count = counts[bin];
  const double low = least_in_bin<T>(bin_of, int(bin), search.low, search.high);
  search.high = greatest_in_bin<T>(bin_of, int(bin), low, search.high);
  search.low = low;
}

/// To the values themselves.
void tighten(Search& search, const Moments& range) {
  search.low = search.rank == search.count - 1 ? range.max : range.min;
  search.high = search.rank == 0 ? range.min : range.max;
}

void check_steps(const Search& search, int bins) {
  if (std::isfinite(search.high - search.low) && std::isfinite(bins / (search.high - search.low))) return;
  throw Error(ErrorCode::unsupported,
              "the values span more than float64 holds, so their percentiles cannot be taken slab by slab: clip them "
              "first, or use a device that holds the whole volume");
}

std::vector<Search> found(const PiecedValues& values, std::vector<Search> searches) {
  constexpr int kBins = 8192;
  for (;;) {
    std::map<Interval, Histogram> counts;
    for (const Search& search : searches) {
      if (!search.is_open()) continue;
      check_steps(search, kBins);
      counts.try_emplace(search.interval(), Histogram(std::size_t(kBins)));
    }
    if (counts.empty()) return searches;
    values.count(counts);
    std::map<Interval, Moments> ranges;
    for (Search& search : searches) {
      if (!search.is_open()) continue;
      const Histogram& found = counts.at(search.interval());
      values.precision() == Precision::single ? narrow<float>(search, found) : narrow<double>(search, found);
      if (search.is_open()) ranges.try_emplace(search.interval());
    }
    if (ranges.empty() || !values.can_measure_intervals()) continue;
    values.measure(ranges);
    for (Search& search : searches)
      if (search.is_open()) tighten(search, ranges.at(search.interval()));
  }
}

std::vector<double> percentiles(const PiecedValues& values, const std::vector<double>& percents) {
  const Moments range = values.range();
  if (range.count == 0) return std::vector<double>(percents.size(), std::numeric_limits<double>::quiet_NaN());
  std::vector<Search> searches;
  for (const double percent : percents) {
    const PercentilePlace place(range.count, percent);
    searches.push_back({place.below, range.count, range.min, range.max});
    searches.push_back({place.above, range.count, range.min, range.max});
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
