// The random ops of programs: known words, distributions, independence. Every bound is that of a fair draw at 4.5
// standard deviations (one in 150 000) unless it says otherwise; the draws are fixed, so a test passes always or never.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "stages/pointwise/place_ops.h"
#include "support/pointwise_data.h"

namespace volpipe {
namespace {

using namespace testing_support;

constexpr std::int64_t kDraws = 1 << 20;
constexpr double kSigmas = 4.5;

using Draws = std::vector<double>;

class RandomDrawsTest : public testing::Test {
 protected:
  /// The first draws of a stream; a Poisson's mean is `mean`.
  Draws draws(Op op, std::uint64_t key, double mean = 0, std::int64_t count = kDraws) {
    const Row row(DataType::uint8, count);
    const Program program = Program().add(Op::set, mean).random(op, key);
    const Row result =
        run_rows(*cpu_, program, {row}, DataType::float64, Precision::double_, 0, {{count, 1, 1}}).voxels;
    return {result.as<double>(), result.as<double>() + count};
  }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

double mean_of(const Draws& draws) { return std::accumulate(draws.begin(), draws.end(), 0.0) / double(draws.size()); }

/// Mean of (draw - centre) ^ power.
double central(const Draws& draws, double centre, int power) {
  double sum = 0;
  for (const double draw : draws) sum += std::pow(draw - centre, power);
  return sum / double(draws.size());
}

double correlation(const Draws& a, const Draws& b, std::size_t lag = 0) {
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double sum = 0;
  for (std::size_t i = 0; i + lag < a.size(); ++i) sum += (a[i] - mean_a) * (b[i + lag] - mean_b);
  return sum / double(a.size() - lag) / std::sqrt(central(a, mean_a, 2) * central(b, mean_b, 2));
}

/// Largest distance between the share of draws up to a value and `cdf` there.
template <class Cdf>
double kolmogorov_smirnov(Draws draws, Cdf&& cdf) {
  std::sort(draws.begin(), draws.end());
  double most = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double expected = cdf(draws[i]), n = double(draws.size());
    most = std::max({most, double(i + 1) / n - expected, expected - double(i) / n});
  }
  return most;
}

/// Passed by a fair draw but once in 10^5: 2 exp(-2 n d^2) = 1e-5.
double most_distance(double n) { return std::sqrt(std::log(2e5) / (2 * n)); }

TEST_F(RandomDrawsTest, PhiloxGivesItsKnownAnswers) {  // Random123's kat_vectors, philox4x32, 10 rounds
  const auto words = [](PhiloxWords counter, std::uint64_t key) {
    const PhiloxWords result = philox4x32(counter, key);
    return std::vector<std::uint32_t>(result.word, result.word + 4);
  };
  EXPECT_EQ(words({{0, 0, 0, 0}}, 0), (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t(0)),
            (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_F(RandomDrawsTest, VoxelsTakeTheWordsInTurn) {
  const Draws first = draws(Op::random_uniform, 0, 0, 7);
  const std::uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(first[i], (words[i] + 0.5) * 0x1p-32);
  const PhiloxWords next = philox4x32({{1, 0, 0, 0}}, 0);
  for (std::size_t i = 4; i < 7; ++i) EXPECT_EQ(first[i], (next.word[i - 4] + 0.5) * 0x1p-32);
}

TEST_F(RandomDrawsTest, VoxelsFarOutHaveWordsOfTheirOwn) {
  const std::int64_t first = 5 * (std::int64_t(1) << 40);
  const Row row(DataType::uint8, 5);
  const Row result = run_rows(*cpu_, Program().random(Op::random_uniform, 77), {row}, DataType::float64,
                              Precision::double_, 0, {{5, 1, 1}, first})
                         .voxels;
  for (std::int64_t i = 0; i < 5; ++i) {
    const std::int64_t block = (first + i) / 4;
    const PhiloxWords words = philox4x32({{std::uint32_t(block), std::uint32_t(block >> 32), 0, 0}}, 77);
    EXPECT_EQ(result.at(i), (words.word[(first + i) % 4] + 0.5) * 0x1p-32);
  }
}

TEST_F(RandomDrawsTest, UniformDrawsLieInside) {
  EXPECT_GT(uniform_of<float>(0), 0);
  EXPECT_LT(uniform_of<float>(~0u), 1);
  EXPECT_LT(uniform_of<double>(~0u), 1);
}

TEST_F(RandomDrawsTest, UniformDrawsAreUniform) {
  const Draws u = draws(Op::random_uniform, 12345);
  const double n = double(kDraws);
  EXPECT_NEAR(mean_of(u), 0.5, kSigmas * std::sqrt(1 / (12 * n)));
  EXPECT_NEAR(central(u, 0.5, 2), 1.0 / 12, kSigmas * std::sqrt(1 / (180 * n)));  // var (u - 1/2)^2 = 1/80 - 1/144
  EXPECT_LT(kolmogorov_smirnov(u, [](double v) { return v; }), most_distance(n));
}

TEST_F(RandomDrawsTest, NormalDrawsAreNormal) {
  const Draws z = draws(Op::random_normal, 12345);
  const double n = double(kDraws), mean = mean_of(z), variance = central(z, mean, 2);
  EXPECT_NEAR(mean, 0, kSigmas / std::sqrt(n));
  EXPECT_NEAR(variance, 1, kSigmas * std::sqrt(2 / n));
  EXPECT_NEAR(central(z, mean, 3) / std::pow(variance, 1.5), 0, kSigmas * std::sqrt(6 / n));
  EXPECT_NEAR(central(z, mean, 4) / (variance * variance), 3, kSigmas * std::sqrt(24 / n));
  EXPECT_LT(kolmogorov_smirnov(z, [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2)); }), most_distance(n));
  for (const double limit : {3.0, 4.0}) {
    const double expected = n * std::erfc(limit / std::sqrt(2));
    const auto beyond = double(std::count_if(z.begin(), z.end(), [=](double v) { return std::fabs(v) > limit; }));
    EXPECT_NEAR(beyond, expected, kSigmas * std::sqrt(expected)) << limit;
  }
}

TEST_F(RandomDrawsTest, NeighboursAreIndependent) {
  for (const Op op : {Op::random_uniform, Op::random_normal, Op::random_poisson}) {
    const Draws d = draws(op, 99, 20);
    Draws squares;  // of a pair of normals, cosine and sine, the sum is 1 times a radius
    const double mean = mean_of(d);
    for (const double draw : d) squares.push_back((draw - mean) * (draw - mean));
    for (const std::size_t lag : {1, 2, 3, 4, 5, 8, 512}) {
      EXPECT_NEAR(correlation(d, d, lag), 0, kSigmas / std::sqrt(double(kDraws))) << to_string(op) << lag;
      EXPECT_NEAR(correlation(squares, squares, lag), 0, kSigmas / std::sqrt(double(kDraws))) << to_string(op) << lag;
    }
  }
}

TEST_F(RandomDrawsTest, StreamsAreIndependent) {
  const Draws first = draws(Op::random_uniform, 1);
  for (const std::uint64_t key : {std::uint64_t(0), std::uint64_t(2), std::uint64_t(1) << 32, ~std::uint64_t(0)})
    for (const std::size_t lag : {0, 1, 2, 3, 4})
      EXPECT_NEAR(correlation(first, draws(Op::random_uniform, key), lag), 0, kSigmas / std::sqrt(double(kDraws)))
          << key << ", " << lag;
  EXPECT_NEAR(correlation(first, draws(Op::random_poisson, 1, 20)), 0, kSigmas / std::sqrt(double(kDraws)));
}

/// Chance of k.
double poisson_chance(double k, double mean) { return std::exp(k * std::log(mean) - mean - std::lgamma(k + 1)); }

TEST_F(RandomDrawsTest, PoissonDrawsOfSmallMeansHaveTheirChances) {
  for (const double mean : {0.1, 3.0, 9.9, 10.0, 30.0, 1000.0}) {
    const Draws d = draws(Op::random_poisson, 4242, mean);
    std::map<double, double> counts;
    for (const double draw : d) counts[draw] += 1;
    double chi_squared = 0, rest_expected = double(kDraws), rest_found = double(kDraws);
    int bins = 0;
    for (double k = 0; k < mean + 12 * std::sqrt(mean) + 20; ++k) {
      const double expected = double(kDraws) * poisson_chance(k, mean);
      if (expected < 10) continue;  // those go together
      rest_expected -= expected;
      rest_found -= counts[k];
      chi_squared += (counts[k] - expected) * (counts[k] - expected) / expected;
      ++bins;
    }
    if (rest_expected > 1) chi_squared += (rest_found - rest_expected) * (rest_found - rest_expected) / rest_expected;
    // The mean of chi squared is the degrees of freedom, its variance twice that; 8 for its longer upper tail.
    EXPECT_LT(chi_squared, bins + kSigmas * std::sqrt(2.0 * bins) + 8) << mean << ", " << bins << " bins";
    EXPECT_NEAR(mean_of(d), mean, kSigmas * std::sqrt(mean / double(kDraws)));
  }
}

TEST_F(RandomDrawsTest, PoissonDrawsHaveTheirMoments) {
  for (const double mean : {0.1, 3.0, 9.9, 10.0, 30.0, 1e3, 1e7, 2e8}) {
    const Draws d = draws(Op::random_poisson, 31, mean);
    const double n = double(kDraws), found = mean_of(d), variance = central(d, found, 2);
    EXPECT_NEAR(found, mean, kSigmas * std::sqrt(mean / n)) << mean;
    EXPECT_NEAR(variance / mean, 1, kSigmas * std::sqrt((2 + 1 / mean) / n)) << mean;
    for (const double draw : d) ASSERT_EQ(draw, std::floor(draw)) << mean;
    // Of the skewness 1 / root(mean), the spread for a normal; small means have a wider one, chi squared is for them.
    if (mean < 10) continue;
    const double skewness = central(d, found, 3) / std::pow(variance, 1.5);
    EXPECT_NEAR(skewness, 1 / std::sqrt(mean), 1.5 * kSigmas * std::sqrt(6 / n)) << mean;
  }
}

TEST_F(RandomDrawsTest, PoissonDrawsOfOddMeans) {
  const Row means(
      std::vector<double>{0, -1, -0.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e-300, 1e300});
  const Row result = run_rows(*cpu_, Program().random(Op::random_poisson, 5), {means}, DataType::float64,
                              Precision::double_, 0, {{means.count, 1, 1}})
                         .voxels;
  EXPECT_EQ(result.at(0), 0);
  EXPECT_EQ(result.at(1), 0);
  EXPECT_EQ(result.at(2), 0);
  EXPECT_TRUE(std::isnan(result.at(3)));
  EXPECT_EQ(result.at(4), std::numeric_limits<double>::infinity());
  EXPECT_EQ(result.at(5), 0);
  EXPECT_NEAR(result.at(6), 1e300, 1e151);
}

TEST_F(RandomDrawsTest, SinglePrecisionRoundsTheSameDraws) {
  const Row row(DataType::uint8, 5003);
  for (const Op op : {Op::random_uniform, Op::random_normal}) {
    const auto in = [&](DataType type, Precision precision) {
      return run_rows(*cpu_, Program().random(op, 8), {row}, type, precision, 0, {{row.count, 1, 1}}).voxels;
    };
    const Row single = in(DataType::float32, Precision::single), exact = in(DataType::float64, Precision::double_);
    for (std::int64_t i = 0; i < row.count; ++i) ASSERT_EQ(single.at(i), double(float(exact.at(i))));
  }
}

}  // namespace
}  // namespace volpipe
