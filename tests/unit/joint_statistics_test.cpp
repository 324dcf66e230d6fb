// Statistics over all images of an item, over components and under masks, where the values lie in several places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/stage_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;

const Json kJoint = {{"op", "normalize"}, {"per", "item"}};

std::vector<double> normal_values(std::size_t count, double mean, double std, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(mean, std);
  std::vector<double> values(count);
  for (double& v : values) v = double(float(normal(random)));
  return values;
}

template <class T = float>
Volume volume_from(const std::vector<double>& values, Index3 size = {}, std::int64_t components = 1) {
  return volume_of(std::vector<T>(values.begin(), values.end()), size, components);
}

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// numpy's percentile.
double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = percent / 100 * double(values.size() - 1);
  const auto below = std::size_t(place);
  const double weight = place - double(below);
  return below + 1 < values.size() ? values[below] + weight * (values[below + 1] - values[below]) : values[below];
}

void expect_scaled(const std::vector<double>& found, const std::vector<double>& before, double centre, double spread) {
  ASSERT_EQ(found.size(), before.size());
  // Values of a few spreads, in float32.
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], (before[i] - centre) / spread, 2e-6) << i;
}

TEST(JointStatistics, TwoImagesAreNormalizedByTheirCommonMeanAndDeviation) {
  const std::vector<double> a = normal_values(600, 100, 10, 1), b = normal_values(1000, -50, 30, 2);
  const MeanAndStd both = mean_and_std(joined(a, b));
  const StageOutcome outcome = run_stages({kJoint}, images_of("image", volume_from(a), "other", volume_from(b)));
  expect_scaled(outcome.values("image"), a, both.mean, both.std);
  expect_scaled(outcome.values("other"), b, both.mean, both.std);
}

TEST(JointStatistics, DoNotDependOnWhichImageComesFirst) {
  const std::vector<double> a = normal_values(700, 3, 2, 3), b = normal_values(900, 8, 1, 4);
  const auto run = [&](const Json& order) {
    Json stage = kJoint;
    stage["on"] = order;
    return run_stages({stage}, images_of("image", volume_from(a), "other", volume_from(b)));
  };
  const StageOutcome one = run({"image", "other"}), two = run({"other", "image"});
  const std::vector<double> x = one.values("other"), y = two.values("other");
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-6);  // one rounding of the constants apart
  const MeanAndStd both = mean_and_std(joined(a, b));
  expect_scaled(one.values("image"), a, both.mean, both.std);
}

TEST(JointStatistics, AreThoseBeforeAnyOfTheImagesChanges) {
  const std::vector<double> a{0, 2}, b{10, 12};
  const StageOutcome outcome = run_stages({{{"op", "shift"}, {"offset", 4}}, kJoint, {{"op", "scale"}, {"factor", 2}}},
                                          images_of("image", volume_from(a), "other", volume_from(b)));
  const double std = std::sqrt(26.0);  // of 4, 6, 14, 16 about 10
  EXPECT_NEAR(outcome.values("image")[0], 2 * -6 / std, 1e-6);
  EXPECT_NEAR(outcome.values("other")[1], 2 * 6 / std, 1e-6);
}

TEST(JointStatistics, OverComponentsAndTypes) {
  const std::vector<double> a = normal_values(600, 40, 5, 5);
  std::vector<double> b = normal_values(90, 10, 3, 6);
  for (double& v : b) v = std::round(v);
  const MeanAndStd both = mean_and_std(joined(a, b));
  const StageOutcome outcome = run_stages(
      {kJoint}, images_of("image", volume_from(a, {10, 20, 1}, 3), "other", volume_from<std::int16_t>(b, {5, 3, 6})));
  expect_scaled(outcome.values("image"), a, both.mean, both.std);
  expect_scaled(outcome.values("other"), b, both.mean, both.std);
}

TEST(JointStatistics, UnderMasks) {
  const std::vector<double> a{0, 4, 8, 0}, b{2, 0, 6, 100};
  Json stage = kJoint;
  stage["mask"] = "nonzero";
  const StageOutcome nonzero = run_stages({stage}, images_of("image", volume_from(a), "other", volume_from(b)));
  const MeanAndStd chosen = mean_and_std({4, 8, 2, 6, 100});
  EXPECT_EQ(nonzero.values("image")[0], 0);
  EXPECT_NEAR(nonzero.values("other")[3], (100 - chosen.mean) / chosen.std, 1e-6);

  stage["mask"] = "label";
  stage["on"] = {"image", "other"};
  const StageOutcome labelled = run_stages({stage}, images_of("image", volume_from(a), "other", volume_from(b), "label",
                                                              volume_of<std::uint8_t>({1, 1, 1, 0})));
  const MeanAndStd inside = mean_and_std({0, 4, 8, 2, 0, 6});
  expect_scaled(labelled.values("image"), a, inside.mean, inside.std);
  expect_scaled(labelled.values("other"), b, inside.mean, inside.std);

  const StageOutcome empty = run_stages({stage}, images_of("image", volume_from(a), "other", volume_from(b), "label",
                                                           volume_of<std::uint8_t>({0, 0, 0, 0})));
  EXPECT_EQ(empty.values("other"), b);
  EXPECT_THAT(empty.codes(), ElementsAre("no_voxels", "no_voxels"));  // of either image
}

TEST(JointStatistics, MedianAndQuartiles) {
  const std::vector<double> a = normal_values(501, 3, 1, 7), b = normal_values(300, 9, 4, 8);
  Json stage = kJoint;
  stage["method"] = "median_iqr";
  const StageOutcome outcome = run_stages({stage}, images_of("image", volume_from(a), "other", volume_from(b)));
  const std::vector<double> both = joined(a, b);
  expect_scaled(outcome.values("other"), b, percentile(both, 50), percentile(both, 75) - percentile(both, 25));
}

TEST(JointStatistics, OneImageIsByItself) {
  const std::vector<double> a = normal_values(400, 3, 2, 9);
  const MeanAndStd own = mean_and_std(a);
  expect_scaled(run_stages({kJoint}, images_of("image", volume_from(a))).values(), a, own.mean, own.std);
}

TEST(JointStatistics, OfConstantImages) {
  const StageOutcome outcome =
      run_stages({kJoint}, images_of("image", volume_of<float>({5, 5, kNan}), "other", volume_of<float>({5})));
  EXPECT_EQ(outcome.values("other")[0], 0);
  EXPECT_THAT(outcome.codes(), ElementsAre("constant_image", "constant_image"));
}

/// The mask has one component for all of the image's, or as many.
TEST(ComponentStatistics, PercentilesUnderAMaskAreExact) {
  constexpr std::int64_t kVoxels = 1000, kComponents = 3;
  std::vector<double> values;
  for (int c = 0; c < kComponents; ++c)
    values = joined(values, normal_values(kVoxels, 50 * c, 10 + c, 10 + unsigned(c)));
  values[7] = kNan;
  std::mt19937 random(1);
  for (const std::int64_t mask_components : {std::int64_t(1), kComponents}) {
    std::vector<std::uint8_t> mask(std::size_t(kVoxels * mask_components));
    for (auto& m : mask) m = random() % 3 == 0;
    for (const char* per : {"volume", "component"}) {
      const Json stage = {{"op", "normalize"}, {"method", "median_iqr"}, {"mask", "label"}, {"per", per}};
      const StageOutcome outcome =
          run_stages({stage}, images_of("image", volume_from(values, {10, 10, 10}, kComponents), "label",
                                        volume_of(mask, {10, 10, 10}, mask_components)));
      const bool together = per == std::string("volume");
      for (int c = 0; c < kComponents; ++c) {
        std::vector<double> chosen;
        for (std::size_t i = 0; i < values.size(); ++i)
          if ((together || int(i) / kVoxels == c) && mask[i % mask.size()] && !std::isnan(values[i]))
            chosen.push_back(values[i]);
        const double centre = percentile(chosen, 50), spread = percentile(chosen, 75) - percentile(chosen, 25);
        const std::vector<double> found = outcome.values();
        for (std::int64_t i = c * kVoxels; i < (c + 1) * kVoxels; ++i) {
          if (std::isnan(values[std::size_t(i)])) continue;
          ASSERT_NEAR(found[std::size_t(i)], (values[std::size_t(i)] - centre) / spread, 2e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace volpipe
