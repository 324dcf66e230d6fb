// Noise: its moments against theory, that draws depend on nothing but their key, and its faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/stage_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr std::int64_t kSide = 64, kVoxels = kSide * kSide * kSide;

template <class T>
Volume constant(T value) {
  return volume_of(std::vector<T>(std::size_t(kVoxels), value), {kSide, kSide, kSide});
}

ItemKey seeded(std::uint64_t seed) { return {seed, "case", 0}; }

/// Five standard errors: the mean of n draws has one of std / sqrt(n), and the variance one of variance sqrt((kurtosis
/// - 1) / n).
double mean_error(double std) { return 5 * std / std::sqrt(double(kVoxels)); }
double variance_error(double variance, double kurtosis = 3) {
  return 5 * variance * std::sqrt((kurtosis - 1) / double(kVoxels));
}

void expect_moments(const std::vector<double>& values, double mean, double variance, double kurtosis = 3) {
  const MeanAndStd found = mean_and_std(values);
  EXPECT_NEAR(found.mean, mean, mean_error(std::sqrt(variance)));
  EXPECT_NEAR(found.std * found.std, variance, variance_error(variance, kurtosis));
}

TEST(Noise, GaussianHasItsMoments) {
  const std::vector<double> values =
      run_stage({{"op", "noise"}, {"mean", 3}, {"std", 2}}, constant<std::int16_t>(10), seeded(1)).values();
  expect_moments(values, 13, 4);
  double third = 0, fourth = 0, beside = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = (values[i] - 13) / 2, next = (values[(i + 1) % values.size()] - 13) / 2;
    third += z * z * z / double(kVoxels);
    fourth += z * z * z * z / double(kVoxels);
    beside += z * next / double(kVoxels);
  }
  EXPECT_NEAR(third, 0, mean_error(std::sqrt(15)));
  EXPECT_NEAR(fourth, 3, mean_error(std::sqrt(96)));
  EXPECT_NEAR(beside, 0, mean_error(1));
}

TEST(Noise, RelativeIsAShareOfTheImagesStandardDeviation) {
  std::vector<float> halves(std::size_t(kVoxels), 0);
  std::fill(halves.begin() + kVoxels / 2, halves.end(), 100.0f);
  const Volume image = volume_of(halves, {kSide, kSide, kSide});
  const Json stage = {{"op", "noise"}, {"std", 0.1}, {"relative", true}};
  std::vector<double> added = run_stage(stage, image, seeded(2)).values();
  for (std::size_t i = 0; i < added.size(); ++i) added[i] -= double(halves[i]);
  expect_moments(added, 0, 25);
  Json above = stage;
  above["mask"] = {{"above", 50}};
  const StageOutcome none = run_stage(above, image, seeded(2));
  EXPECT_EQ(none.values(), values_of(image));
  EXPECT_THAT(none.codes(), ElementsAre("constant_image"));
}

TEST(Noise, RicianOfNothingIsRayleigh) {
  const std::vector<double> values =
      run_stage({{"op", "noise"}, {"kind", "rician"}, {"std", 2}}, constant(0.0f), seeded(3)).values();
  const double pi = std::acos(-1.0);
  expect_moments(values, 2 * std::sqrt(pi / 2), 4 * (2 - pi / 2), 3.25);
}

TEST(Noise, RicianHasItsSecondMoment) {
  std::vector<double> squares =
      run_stage({{"op", "noise"}, {"kind", "rician"}, {"std", 1.5}}, constant(4.0f), seeded(4)).values();
  for (double& v : squares) v *= v;  // variance of the square: 4 std^2 v^2 + 4 std^4
  EXPECT_NEAR(mean_and_std(squares).mean, 16 + 2 * 2.25, mean_error(std::sqrt(4 * 2.25 * 16 + 4 * 2.25 * 2.25)));
}

TEST(Noise, PoissonHasItsMeanForVariance) {
  for (const float mean : {0.3f, 5.0f, 40.0f, 5e4f}) {
    const std::vector<double> values =
        run_stage({{"op", "noise"}, {"kind", "poisson"}}, constant(mean), seeded(5)).values();
    expect_moments(values, mean, mean, 3 + 1 / mean);
    for (const double v : values) ASSERT_EQ(v, std::floor(v));
  }
  const std::vector<double> scaled =
      run_stage({{"op", "noise"}, {"kind", "poisson"}, {"scale", 8}}, constant(2.0f), seeded(6)).values();
  expect_moments(scaled, 2, 0.25, 3 + 1 / 16.0);
}

TEST(Noise, PoissonOfOddValues) {
  const StageOutcome outcome =
      run_stage({{"op", "noise"}, {"kind", "poisson"}}, volume_of<float>({-3, 0, kNan, kInfinity, -kInfinity}));
  EXPECT_EQ(outcome.at(0), 0);
  EXPECT_EQ(outcome.at(1), 0);
  EXPECT_TRUE(std::isnan(outcome.at(2)));
  EXPECT_EQ(outcome.at(3), kInfinity);
  EXPECT_EQ(outcome.at(4), 0);
}

TEST(Noise, SaltAndPepperAreTheImagesEnds) {
  std::vector<std::int16_t> voxels(std::size_t(kVoxels), 5);
  voxels[0] = -7;
  voxels[1] = 900;
  const StageOutcome outcome = run_stage({{"op", "noise"}, {"kind", "salt_pepper"}, {"amount", 0.2}, {"salt", 0.25}},
                                         volume_of(voxels, {kSide, kSide, kSide}), seeded(7));
  EXPECT_EQ(outcome.dtype(), DataType::int16);
  const std::vector<double> values = outcome.values();
  const auto share = [&](double v) { return double(std::count(values.begin(), values.end(), v)) / double(kVoxels); };
  EXPECT_NEAR(share(900), 0.05, mean_error(std::sqrt(0.05 * 0.95)));
  EXPECT_NEAR(share(-7), 0.15, mean_error(std::sqrt(0.15 * 0.85)));
  EXPECT_EQ(share(900) + share(-7) + share(5), 1);
  const auto all = [&](double amount, double salt) {
    return run_stage({{"op", "noise"}, {"kind", "salt_pepper"}, {"amount", amount}, {"salt", salt}},
                     volume_of<float>({1, 2, kNan, 3}))
        .values();
  };
  EXPECT_THAT(all(1, 1), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(all(1, 0), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(all(0, 1)[1], 2);
  EXPECT_TRUE(std::isnan(all(0, 1)[2]));
}

TEST(Noise, SpeckleGrowsWithTheValue) {
  const std::vector<double> values =
      run_stage({{"op", "noise"}, {"kind", "speckle"}, {"std", 0.2}, {"mean", 0.1}}, constant(50.0f), seeded(8))
          .values();
  expect_moments(values, 55, 100);
}

TEST(Noise, EveryImageComponentStageAndSeedHasDrawsOfItsOwn) {
  const Json stage = {{"op", "noise"}, {"std", 1}};
  const auto zeros = [] { return volume_of(std::vector<float>(512, 0.0f), {8, 8, 4}, 2); };
  std::set<std::vector<double>> all;
  const auto keep = [&](const std::vector<double>& values) {
    all.insert({values.begin(), values.begin() + 256});
    all.insert({values.begin() + 256, values.end()});
  };
  const StageOutcome two = run_stages({stage}, images_of("image", zeros(), "other", zeros()), seeded(1));
  keep(two.values("image"));
  keep(two.values("other"));
  keep(run_stage(stage, zeros(), seeded(2)).values());
  keep(run_stage(stage, zeros(), {1, "other case", 0}).values());
  keep(run_stage(stage, zeros(), {1, "case", 1}).values());
  keep(run_stages({{{"op", "shift"}, {"offset", 0}}, stage}, images_of("image", zeros()), seeded(1)).values());
  EXPECT_EQ(all.size(), 12u);
  EXPECT_EQ(run_stage(stage, zeros(), seeded(1)).values(), two.values("image"));
}

TEST(Noise, DoesNotDependOnThreads) {
  for (const char* kind : {"gaussian", "rician", "speckle", "poisson", "salt_pepper"}) {
    Json stage = {{"op", "noise"}, {"kind", kind}};
    if (kind == std::string("gaussian") || kind == std::string("rician") || kind == std::string("speckle"))
      stage["std"] = 2;
    const auto image = [] { return images_of("image", volume_of(std::vector<float>(300007, 20.0f))); };
    EXPECT_EQ(run_stages({stage}, image(), seeded(1), {}, 1).values(),
              run_stages({stage}, image(), seeded(1), {}, 3).values());
  }
}

TEST(Noise, ParametersOfOtherKindsAreFaults) {
  EXPECT_THAT(fault_places({{"op", "noise"}}), ElementsAre(""));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"kind", "white"}}), ElementsAre("/kind"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"std", -1}}), ElementsAre("/std"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"std", 1}, {"mask", "nonzero"}}), ElementsAre("/mask"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"std", 1}, {"amount", 0.1}, {"salt", 0.1}, {"scale", 1}}),
              UnorderedElementsAre("/amount", "/salt", "/scale"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"kind", "rician"}, {"std", 1}, {"mean", 1}}), ElementsAre("/mean"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"kind", "speckle"}, {"std", 1}, {"relative", true}}),
              ElementsAre("/relative"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"kind", "poisson"}, {"std", 1}, {"mask", "nonzero"}}),
              UnorderedElementsAre("/std", "/mask"));
  EXPECT_THAT(fault_places({{"op", "noise"}, {"kind", "salt_pepper"}, {"amount", 1.5}}), ElementsAre("/amount"));
}

}  // namespace
}  // namespace volpipe
