// Statistics on the CPU against brute force in long double and against sorting.
#include <gtest/gtest.h>

#include <algorithm>

#include "stages/pointwise/otsu.h"
#include "support/pointwise_data.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

const Program kIdentity;

class StatisticsTest : public testing::Test {
 protected:
  static SampledValues sampled(const ProgramInput& input, std::int64_t count, Selection selection = {}) {
    return {{&input, 1},
            &kIdentity,
            count,
            selection,
            input.dtype == DataType::float64 ? Precision::double_ : Precision::single};
  }
  Moments moments(const Row& row, Selection selection = {}) {
    const ProgramInput input = row.input();
    const SampledValues values = sampled(input, row.count, selection);
    const Moments found = compute_moments(*cpu_, values);
    EXPECT_EQ(compute_range(*cpu_, values), range_of(found));
    return found;
  }
  std::vector<double> percentiles(const Row& row, const std::vector<double>& percents, Selection selection = {}) {
    const ProgramInput input = row.input();
    return compute_percentiles(*cpu_, sampled(input, row.count, selection), percents);
  }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

/// The finite values of a row that pass.
template <class Pass>
std::vector<double> finite_values(const Row& row, Pass&& pass) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < row.count; ++i)
    if (std::isfinite(row.at(i)) && pass(i)) values.push_back(row.at(i));
  return values;
}
std::vector<double> finite_values(const Row& row) {
  return finite_values(row, [](std::int64_t) { return true; });
}

void expect_moments(const Moments& found, const std::vector<double>& values) {
  long double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const long double mean = values.empty() ? 0 : sum / (long double)(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  EXPECT_EQ(found.count, std::int64_t(values.size()));
  if (values.empty()) return;
  EXPECT_EQ(found.min, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(found.max, *std::max_element(values.begin(), values.end()));
  const double spread = double(std::sqrt(squares / (long double)(values.size())));
  EXPECT_NEAR(found.mean, double(mean), 1e-12 * (std::abs(double(mean)) + spread));
  const double rounding_of_mean =
      double(values.size()) * spread * std::abs(double(mean)) * std::numeric_limits<double>::epsilon();
  EXPECT_NEAR(found.sum_squares, double(squares), 1e-12 * double(squares) + rounding_of_mean);
}

/// numpy.percentile(values, percent) in float64, its default method.
double numpy_percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = double(values.size() - 1) * (percent / 100);
  const auto below = std::size_t(std::floor(place)), above = std::min(below + 1, values.size() - 1);
  const double weight = place - std::floor(place), difference = values[above] - values[below];
  const volatile double step = difference * (weight >= 0.5 ? 1 - weight : weight);  // rounded by itself
  return weight >= 0.5 ? values[above] - step : values[below] + step;
}

TEST_F(StatisticsTest, MomentsOfEveryTypeMatchBruteForce) {
  for (const DataType type : kAllTypes)
    for (const std::int64_t count : {1, 2, 3, 511, 512, 513, 100003}) {
      SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(count));
      const Row row = random_row(type, count, std::uint64_t(count));
      expect_moments(moments(row), finite_values(row));
    }
}

TEST_F(StatisticsTest, MomentsFarFromZeroKeepTheirDigits) {
  Row row = random_row(DataType::float64, 200003, 1);
  for (std::int64_t i = 0; i < row.count; ++i) row.as<double>()[i] = 1e9 + row.as<double>()[i];
  expect_moments(moments(row), finite_values(row));
  Row background = random_row(DataType::float32, 200003, 2);
  for (std::int64_t i = 0; i < row.count; ++i)
    background.as<float>()[i] = i % 3 ? 0 : 30000 + background.as<float>()[i];
  expect_moments(moments(background, {Selection::Kind::nonzero}),
                 finite_values(background, [&](std::int64_t i) { return background.at(i) != 0; }));
}

TEST_F(StatisticsTest, NonFiniteVoxelsAreLeftOutAndCounted) {
  const Row row = random_row(DataType::float32, 50001, 3, true);
  const Moments found = moments(row);
  expect_moments(found, finite_values(row));
  EXPECT_EQ(found.count + found.non_finite, row.count);
  EXPECT_GT(found.non_finite, 0);
}

TEST_F(StatisticsTest, SelectionsDecideWhatCounts) {
  const Row row = random_row(DataType::int8, 70003, 4), mask = random_row(DataType::uint8, 70003, 5);
  expect_moments(moments(row, {Selection::Kind::nonzero}),
                 finite_values(row, [&](std::int64_t i) { return row.at(i) != 0; }));
  expect_moments(moments(row, {Selection::Kind::above, 17}),
                 finite_values(row, [&](std::int64_t i) { return row.at(i) > 17; }));
  const Selection masked{Selection::Kind::mask, 0, mask.input()};
  const auto chosen = finite_values(row, [&](std::int64_t i) { return mask.at(i) != 0; });
  expect_moments(moments(row, masked), chosen);
  EXPECT_EQ(percentiles(row, {30}, masked)[0], numpy_percentile(chosen, 30));
}

TEST_F(StatisticsTest, DegenerateImages) {
  const Moments constant = moments(Row(std::vector<float>(100003, 0.1f)));
  EXPECT_EQ(constant.min, constant.max);
  EXPECT_EQ(constant.mean, double(0.1f));
  EXPECT_EQ(constant.sum_squares, 0);
  const Row nan(std::vector<float>(1000, std::nanf("")));
  EXPECT_EQ(moments(nan).count, 0);
  EXPECT_EQ(moments(nan).non_finite, 1000);
  EXPECT_EQ(moments(nan).std(), 0);
  EXPECT_TRUE(std::isnan(percentiles(nan, {50})[0]));
  const Row one(std::vector<float>{-2.5f});
  EXPECT_EQ(moments(one).mean, -2.5);
  EXPECT_EQ(moments(one).std(1), 0);
  EXPECT_EQ(percentiles(one, {0, 33, 100}), (std::vector<double>{-2.5, -2.5, -2.5}));
  EXPECT_EQ(moments(one, {Selection::Kind::above, 0}), Moments{});
  EXPECT_TRUE(std::isnan(percentiles(one, {50}, {Selection::Kind::above, 0})[0]));
}

TEST_F(StatisticsTest, StandardDeviationTakesDdof) {
  const Moments found = moments(Row(std::vector<float>{1, 2, 3, 4}));
  EXPECT_DOUBLE_EQ(found.std(), std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(found.std(1), std::sqrt(5.0 / 3));
}

TEST_F(StatisticsTest, MergingEqualsTheWhole) {
  const Row row = random_row(DataType::float32, 3000, 6, true);
  Row first(DataType::float32, 1000), rest(DataType::float32, 2000);
  std::copy_n(row.as<float>(), 1000, first.as<float>());
  std::copy_n(row.as<float>() + 1000, 2000, rest.as<float>());
  const Moments together = merge(moments(first), moments(rest));
  expect_moments(together, finite_values(row));
  EXPECT_EQ(together.non_finite, moments(row).non_finite);
  EXPECT_EQ(merge(Moments{}, together), together);
}

TEST_F(StatisticsTest, ResultsDoNotDependOnThreads) {
  const Row row = random_row(DataType::float32, 3000017, 7, true);
  const ProgramInput input = row.input();
  const SampledValues values = sampled(input, row.count);
  const std::vector<double> percents{0, 1, 50, 99, 100};
  const auto one = make_context(Device::cpu(), 1);
  const Moments expected = compute_moments(*one, values);
  for (const int threads : {2, 7}) {
    const auto many = make_context(Device::cpu(), threads);
    EXPECT_EQ(compute_moments(*many, values), expected);
    EXPECT_EQ(compute_percentiles(*many, values, percents), compute_percentiles(*one, values, percents));
    EXPECT_EQ(compute_histogram(*many, values, -3, 3, 100), compute_histogram(*one, values, -3, 3, 100));
  }
}

TEST_F(StatisticsTest, CountsAbove2To24AreExact) {
  const std::int64_t count = (std::int64_t(1) << 24) + 3;
  Row row(DataType::uint8, count);
  for (std::int64_t i = 0; i < count; ++i) row.as<std::uint8_t>()[i] = std::uint8_t(i % 2);
  const Moments found = moments(row);
  EXPECT_EQ(found.count, count);
  EXPECT_DOUBLE_EQ(found.mean, double((std::int64_t(1) << 23) + 1) / double(count));
  const ProgramInput input = row.input();
  EXPECT_EQ(compute_histogram(*cpu_, sampled(input, count), 0, 1, 2),
            (std::vector<std::int64_t>{(1 << 23) + 2, (1 << 23) + 1}));
}

TEST_F(StatisticsTest, PercentilesEqualNumpys) {
  const std::vector<double> percents{0, 0.1, 1, 5, 25, 33.3, 50, 66.7, 75, 99, 99.9, 100};
  for (const DataType type : kAllTypes)
    for (const std::int64_t count : {1, 2, 3, 10, 1001, 40000}) {
      SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(count));
      const Row row = random_row(type, count, 8, count > 10);
      const auto found = percentiles(row, percents);
      const auto values = finite_values(row);
      for (std::size_t i = 0; i < percents.size(); ++i)
        EXPECT_EQ(found[i], numpy_percentile(values, percents[i])) << percents[i];
    }
}

TEST_F(StatisticsTest, PercentilesOfTiesAndOddFloats) {
  std::vector<float> values{-0.0f,
                            0.0f,
                            0.0f,
                            -0.0f,
                            1e-45f,
                            -1e-45f,
                            1e-40f,
                            -3,
                            -3,
                            -3,
                            7,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::nanf(""),
                            3.4e38f,
                            -3.4e38f};
  const Row row(values);
  for (int percent = 0; percent <= 100; ++percent)
    EXPECT_EQ(percentiles(row, {double(percent)})[0], numpy_percentile(finite_values(row), percent)) << percent;
}

TEST_F(StatisticsTest, ManyPercentilesEqualFew) {
  std::vector<double> percents;
  for (int i = 0; i <= 200; ++i) percents.push_back(i / 2.0);
  for (const DataType type : kAllTypes)
    for (const Precision precision : {Precision::single, Precision::double_}) {
      Row row = random_row(type, 30011, 21);
      if (type == DataType::float32)
        for (std::int64_t i = 0; i < row.count; ++i)
          row.as<float>()[i] = 1 + 1e-5f * float(i % 300);  // first digits alike
      const ProgramInput input = row.input();
      SampledValues values = sampled(input, row.count);
      values.precision = precision;
      const std::vector<double> all = compute_percentiles(*cpu_, values, percents);
      for (std::size_t i = 0; i < percents.size(); i += 4) {
        const std::array<double, 4> few{percents[i], percents[std::min<std::size_t>(i + 1, 200)],
                                        percents[std::min<std::size_t>(i + 2, 200)],
                                        percents[std::min<std::size_t>(i + 3, 200)]};
        const std::vector<double> found = compute_percentiles(*cpu_, values, few);
        for (std::size_t k = 0; k < few.size() && i + k < percents.size(); ++k)
          ASSERT_EQ(all[i + k], found[k]) << to_string(type) << " " << few[k];
      }
    }
}

TEST_F(StatisticsTest, PercentilesSeeTheProgramsValues) {
  const Row row = random_row(DataType::int16, 5001, 9);
  const ProgramInput input = row.input();
  const Program program = Program().add(Op::multiply, -0.25);
  std::vector<double> values = finite_values(row);
  for (double& v : values) v *= -0.25;
  EXPECT_EQ(compute_percentiles(*cpu_, {{&input, 1}, &program, row.count}, std::vector<double>{90})[0],
            numpy_percentile(values, 90));
}

TEST_F(StatisticsTest, PercentilesOf257CubedAreExact) {
  const std::int64_t count = 257 * 257 * 257;  // more than the 2^24 that quantile functions of other libraries stop at
  Row row(DataType::float32, count);
  for (std::int64_t i = 0; i < count; ++i)
    row.as<float>()[i] = float(i * 7919 % count) / 4;  // each i once; exact in float32 to 2^24 / 4
  std::vector<float> sorted(row.as<float>(), row.as<float>() + count);
  for (const double percent : {1.0, 37.0, 99.0}) {
    const double place = double(count - 1) * (percent / 100);
    const auto below = sorted.begin() + std::int64_t(place);
    std::nth_element(sorted.begin(), below, sorted.end());
    const double low = *below, high = *std::min_element(below + 1, sorted.end());
    EXPECT_NEAR(percentiles(row, {percent})[0], low + (high - low) * (place - std::floor(place)), 1e-9);
  }
}

TEST_F(StatisticsTest, HistogramsCountWhatLiesInside) {
  const Row row(std::vector<float>{-1, 0, 0.5f, 0.99f, 1, 1.5f, 2, 2.01f, std::nanf("")});
  const ProgramInput input = row.input();
  EXPECT_EQ(compute_histogram(*cpu_, sampled(input, row.count), 0, 2, 2), (std::vector<std::int64_t>{3, 3}));
  EXPECT_THROW(compute_histogram(*cpu_, sampled(input, row.count), 2, 2, 2), Error);
  EXPECT_THROW(compute_histogram(*cpu_, sampled(input, row.count), 0, 2, 0), Error);
}

TEST_F(StatisticsTest, OtsuPartsTwoClasses) {
  Row row = random_row(DataType::float32, 100000, 10);
  for (std::int64_t i = 0; i < row.count; ++i) row.as<float>()[i] += i % 4 == 0 ? 20 : 0;
  const ProgramInput input = row.input();
  const double found = otsu_threshold(*cpu_, sampled(input, row.count));
  EXPECT_GT(found, 4);
  EXPECT_LT(found, 16);

  const auto values = finite_values(row);
  const auto counts = compute_histogram(*cpu_, sampled(input, row.count), moments(row).min, moments(row).max, 256);
  const double width = (moments(row).max - moments(row).min) / 256;
  double best = -1;
  int parting = 0;
  for (int split = 0; split < 255; ++split) {
    double n[2] = {}, sum[2] = {};
    for (int bin = 0; bin < 256; ++bin) {
      n[bin > split] += double(counts[std::size_t(bin)]);
      sum[bin > split] += double(counts[std::size_t(bin)]) * (double(bin) + 0.5);
    }
    const double between = n[0] * n[1] * std::pow(sum[0] / n[0] - sum[1] / n[1], 2);
    if (between > best * (1 + 1e-12)) best = between, parting = split;
  }
  EXPECT_FLOAT_EQ(float(found), float(moments(row).min + (parting + 1) * width));
  std::int64_t foreground = 0;
  for (int bin = parting + 1; bin < 256; ++bin) foreground += counts[std::size_t(bin)];
  EXPECT_EQ(std::count_if(values.begin(), values.end(), [&](double v) { return v > found; }), foreground);
}

TEST_F(StatisticsTest, OtsuForegroundIsWholeBins) {
  const Row row(std::vector<float>{10, 16, 1000, 1006});  // 10 and 16 lie at the two ends of the background's bins
  const ProgramInput input = row.input();
  const double found = otsu_threshold(*cpu_, sampled(input, row.count));
  EXPECT_GE(found, 16);
  EXPECT_LT(found, 1000);
}

/// Sum over classes of count * (mean - mean of all)^2, for thresholds after the given bins.
double between_classes(const std::vector<std::int64_t>& histogram, const std::vector<int>& partings) {
  std::vector<double> n(partings.size() + 1), sum(n.size());
  double total = 0, total_sum = 0;
  for (std::size_t bin = 0; bin < histogram.size(); ++bin) {
    const auto k = std::size_t(std::count_if(partings.begin(), partings.end(), [&](int p) { return int(bin) > p; }));
    n[k] += double(histogram[bin]);
    sum[k] += double(histogram[bin]) * double(bin);
    total += double(histogram[bin]);
    total_sum += double(histogram[bin]) * double(bin);
  }
  double between = 0;
  for (std::size_t k = 0; k < n.size(); ++k)
    if (n[k] > 0) between += n[k] * std::pow(sum[k] / n[k] - total_sum / total, 2);
  return between;
}

TEST_F(StatisticsTest, OtsuOfSeveralClassesIsTheExhaustiveBest) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::int64_t> histogram(14);
    for (auto& count : histogram) count = random() % 3 == 0 ? 0 : random() % 1000;
    histogram.front() = histogram.back() = 5;
    const Moments moments{.count = 1, .min = 0, .max = 14};
    for (int classes = 2; classes <= 4; ++classes) {
      double best = 0;
      std::vector<int> partings(std::size_t(classes - 1));
      const std::function<void(std::size_t, int)> search = [&](std::size_t k, int from) {
        if (k == partings.size()) return (void)(best = std::max(best, between_classes(histogram, partings)));
        for (partings[k] = from; partings[k] < 13; ++partings[k]) search(k + 1, partings[k] + 1);
      };
      search(0, 0);
      std::vector<int> found;
      for (const double t : otsu_thresholds(moments, histogram, classes, Precision::single)) {
        EXPECT_EQ(t, double(std::nextafter(std::ceil(float(t)), 0.0f)));  // just below a bin's end
        found.push_back(int(t));
      }
      ASSERT_EQ(found.size(), partings.size());
      EXPECT_NEAR(between_classes(histogram, found), best, 1e-9 * best);
    }
  }
}

TEST_F(StatisticsTest, OtsuFindsNoMoreClassesThanFilledBins) {
  const std::vector<std::int64_t> histogram{4, 0, 0, 7, 0, 0, 0, 2};
  const Moments moments{.count = 13, .min = 0, .max = 8};
  EXPECT_EQ(otsu_thresholds(moments, histogram, 8, Precision::double_).size(), 2u);
  EXPECT_LT(otsu_thresholds(moments, histogram, 3, Precision::single)[0], 1);  // the lowest of equally good ones
  EXPECT_TRUE(otsu_thresholds({}, {}, 3, Precision::single).empty());
}

TEST_F(StatisticsTest, OtsuWhereTheBinsPartAtZero) {
  std::vector<double> voxels(100, 1);
  voxels.insert(voxels.end(), 100, -0x1p-52);
  voxels.push_back(-1);
  const Row row(voxels);
  const ProgramInput input = row.input();
  SampledValues values = sampled(input, row.count);
  values.precision = Precision::double_;
  const double found = otsu_threshold(*cpu_, values);
  EXPECT_GE(found, -0x1p-52);
  EXPECT_LT(found, 0);
}

TEST_F(StatisticsTest, PercentilesTakeScratchMemory) {
  const std::int64_t count = 512 * 512 * 512;
  EXPECT_GE(statistics_scratch_bytes(count, Precision::single, true), std::size_t(count) / 8 * 4);
  EXPECT_GE(statistics_scratch_bytes(count, Precision::double_, true), std::size_t(count) / 8 * 8);
  EXPECT_LT(statistics_scratch_bytes(count, Precision::single, false), std::size_t(count) / 64);
}

TEST_F(StatisticsTest, OtsuOfDegenerateImages) {
  const Row constant(std::vector<float>(10, 4.0f)), nan(std::vector<float>(3, std::nanf("")));
  const ProgramInput constant_input = constant.input(), nan_input = nan.input();
  EXPECT_EQ(otsu_threshold(*cpu_, sampled(constant_input, 10)), 4);
  EXPECT_TRUE(std::isnan(otsu_threshold(*cpu_, sampled(nan_input, 3))));
}

}  // namespace
}  // namespace volpipe
