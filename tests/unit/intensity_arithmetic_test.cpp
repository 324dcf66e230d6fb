// The intensity stages that are arithmetic on the value, with at most minimum, maximum, mean and standard deviation:
// against their formulas in double, on degenerate images, and their faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/stage_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;

Volume odd_values() { return volume_of<float>({-2, -0.5f, 0, 0.5f, 3, kNan, kInfinity, -kInfinity}); }

/// A few roundings of float32, 6e-8 each; times the size of the values.
constexpr double kRounding = 3e-7;

TEST(AdjustContrast, IsTheFormula) {
  const auto curve = [](double v, double gamma) { return std::pow((v + 50) / 200, gamma) * 200 - 50; };
  expect_formula(
      {{"op", "adjust_contrast"}, {"gamma", 2}}, ramp(), [&](double v) { return curve(v, 2); }, 200 * kRounding);
  expect_formula(
      {{"op", "adjust_contrast"}, {"gamma", 0.4}, {"invert_image", true}}, ramp(),
      [&](double v) { return 150 - std::pow((150 - v) / 200, 0.4) * 200; }, 200 * kRounding);
}

TEST(AdjustContrast, RetainsMeanAndStandardDeviation) {
  for (const bool invert : {false, true}) {
    const Json stage = {{"op", "adjust_contrast"}, {"gamma", 1.7}, {"invert_image", invert}, {"retain_stats", true}};
    const StageOutcome outcome = run_stage(stage, ramp());
    const MeanAndStd before = mean_and_std(values_of(ramp())), after = mean_and_std(outcome.values());
    EXPECT_NEAR(after.mean, before.mean, 200 * kRounding);
    EXPECT_NEAR(after.std, before.std, 200 * kRounding);
    EXPECT_NE(outcome.at(50), 50);
  }
}

TEST(AdjustContrast, KeepsSmallRangesAndTheirMaximum) {
  const StageOutcome outcome =
      run_stage({{"op", "adjust_contrast"}, {"gamma", 2}}, volume_of<float>({0, 1e-8f, 2e-8f}));
  EXPECT_NEAR(outcome.at(1), 5e-9, 2e-8 * kRounding);
  EXPECT_EQ(outcome.at(2), double(2e-8f));
}

TEST(AdjustContrast, OfDegenerateImages) {
  for (const bool retain : {false, true}) {
    const Json stage = {{"op", "adjust_contrast"}, {"gamma", 2}, {"retain_stats", retain}};
    const StageOutcome constant = run_stage(stage, volume_of<float>({3, 3, kNan}));
    EXPECT_EQ(constant.at(0), 3);
    EXPECT_TRUE(std::isnan(constant.at(2)));
    EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
    const StageOutcome nothing = run_stage(stage, volume_of<float>({kNan, kInfinity}));
    EXPECT_EQ(nothing.at(1), kInfinity);
    EXPECT_THAT(nothing.codes(), ElementsAre("no_voxels"));
    EXPECT_EQ(run_stage(stage, volume_of<float>({7})).at(0), 7);
  }
  const StageOutcome odd = run_stage({{"op", "adjust_contrast"}, {"gamma", 2}}, odd_values());
  EXPECT_TRUE(std::isnan(odd.at(5)));
  EXPECT_NEAR(odd.at(6), 3, kRounding);
  EXPECT_NEAR(odd.at(7), -2, kRounding);
}

TEST(AdjustContrast, OfEachComponentOrOfAllImages) {
  const Volume two = volume_of<float>({0, 1, 2, 0, 10, 40}, {3, 1, 1}, 2);
  const Json stage = {{"op", "adjust_contrast"}, {"gamma", 2}, {"per", "component"}};
  const std::vector<double> each = run_stage(stage, two).values();
  EXPECT_NEAR(each[1], 0.5, kRounding);
  EXPECT_NEAR(each[4], 2.5, 40 * kRounding);
  Json joint = stage;
  joint["per"] = "item";
  const StageOutcome both =
      run_stages({joint}, images_of("image", volume_of<float>({0, 5}), "other", volume_of<float>({8, 10})));
  EXPECT_NEAR(both.values("image")[1], 2.5, 10 * kRounding);
  EXPECT_NEAR(both.values("other")[0], 6.4, 10 * kRounding);
}

TEST(Logarithms, AreThoseOfC) {
  expect_formula({{"op", "log"}}, odd_values(), [](double v) { return std::log(v); });
  expect_formula({{"op", "log"}, {"base", 2}, {"offset", 1.5}}, odd_values(),
                 [](double v) { return std::log2(v + 1.5); });
  expect_formula({{"op", "log"}, {"base", 10}}, volume_of<std::int16_t>({0, 1, 10, 1000, -3}),
                 [](double v) { return std::log10(v); });
  EXPECT_EQ(run_stage({{"op", "log"}, {"base", 10}}, volume_of<std::int16_t>({1000})).at(0), 3);
}

TEST(Exponentials, UndoLogarithms) {
  expect_formula(
      {{"op", "exp"}}, odd_values(), [](double v) { return std::exp(v); }, 20 * kRounding);
  expect_formula(
      {{"op", "exp"}, {"base", 2}, {"offset", 3}}, odd_values(), [](double v) { return std::exp2(v) - 3; },
      20 * kRounding);
  // base ^ v itself, not exp(v ln base), whose argument is rounded: 1 ulp where that would be 30.
  EXPECT_NEAR(run_stage({{"op", "exp"}, {"base", 10}}, volume_of<float>({38})).at(0) / 1e38, 1, 1.2e-7);
  const StageOutcome back =
      run_stages({{{"op", "log"}, {"base", 3}, {"offset", 60}}, {{"op", "exp"}, {"base", 3}, {"offset", 60}}},
                 images_of("image", ramp()));
  for (int i = 0; i <= 100; ++i) EXPECT_NEAR(back.at(i), 2 * i - 50, 200 * 5 * kRounding);  // log up to 5 in between
}

TEST(Powers, AreThoseOfC) {
  expect_formula({{"op", "sqrt"}}, odd_values(), [](double v) { return std::sqrt(v); });
  expect_formula({{"op", "power"}, {"exponent", 1.5}}, odd_values(), [](double v) { return std::pow(v, 1.5); });
  expect_formula({{"op", "power"}, {"exponent", -2}}, odd_values(), [](double v) { return std::pow(v, -2); });
  expect_formula({{"op", "power"}, {"exponent", 0.5}, {"keep_sign", true}}, odd_values(),
                 [](double v) { return std::isnan(v) ? v : std::copysign(std::sqrt(std::abs(v)), v); });
  EXPECT_NEAR(run_stage({{"op", "sqrt"}}, volume_of<std::int16_t>({2})).at(0), std::sqrt(2.0), kRounding);
}

TEST(InvertIntensity, TurnsTheRangeAround) {
  expect_formula(
      {{"op", "invert_intensity"}}, ramp(), [](double v) { return 100 - v; }, 200 * kRounding);
  expect_formula({{"op", "invert_intensity"}, {"max", 1}}, odd_values(), [](double v) { return 1 - v; });
  const StageOutcome odd = run_stage({{"op", "invert_intensity"}}, odd_values());
  EXPECT_TRUE(std::isnan(odd.at(5)));
  EXPECT_EQ(odd.at(6), -kInfinity);
  EXPECT_EQ(run_stage({{"op", "invert_intensity"}}, volume_of<float>({4, 4})).at(0), 4);
  EXPECT_THAT(run_stage({{"op", "invert_intensity"}}, volume_of<float>({kNan})).codes(), ElementsAre("no_voxels"));
}

TEST(InvertIntensity, KeepsIntegersWhereTheyStayInRange) {
  const Json automatic = {{"op", "invert_intensity"}};
  const StageOutcome large = run_stage(automatic, volume_of<std::int32_t>({16777217, 2147483647, 2147483645}));
  EXPECT_EQ(large.dtype(), DataType::int32);
  EXPECT_THAT(large.values(), ElementsAre(2147483647, 16777217, 16777219));
  EXPECT_THAT(run_stage(automatic, volume_of<std::uint8_t>({255, 3, 0})).values(), ElementsAre(0, 252, 255));
  const StageOutcome whole = run_stage({{"op", "invert_intensity"}, {"max", 255}}, volume_of<std::uint8_t>({0, 9}));
  EXPECT_EQ(whole.dtype(), DataType::uint8);
  EXPECT_THAT(whole.values(), ElementsAre(255, 246));
  const StageOutcome less = run_stage({{"op", "invert_intensity"}, {"max", 100}}, volume_of<std::uint8_t>({200}));
  EXPECT_EQ(less.dtype(), DataType::float32);
  EXPECT_EQ(less.at(0), -100);
  const Volume two = volume_of<std::int16_t>({1, 5, 100, 300}, {2, 1, 1}, 2);
  EXPECT_THAT(run_stage({{"op", "invert_intensity"}, {"per", "component"}}, two).values(), ElementsAre(5, 1, 300, 100));
  EXPECT_THAT(run_stage(automatic, two).values(), ElementsAre(300, 296, 201, 1));
}

TEST(InvertIntensity, OfRangesThatOverflowFloat32) {
  const float end = std::numeric_limits<float>::max();
  const StageOutcome outcome = run_stage({{"op", "invert_intensity"}}, volume_of<float>({-end, 0, end / 2, end}));
  EXPECT_THAT(outcome.values(), ElementsAre(double(end), 0, -double(end) / 2, -double(end)));
}

TEST(Shift, AddsANumberOrAShareOfTheStandardDeviation) {
  expect_formula({{"op", "shift"}, {"offset", -2.5}}, odd_values(), [](double v) { return v - 2.5; });
  expect_formula({{"op", "shift"}, {"offset", 300}}, volume_of<std::uint8_t>({0, 255}),
                 [](double v) { return v + 300; });  // no wrap, no limit
  const double std = mean_and_std(values_of(ramp())).std;
  expect_formula(
      {{"op", "shift"}, {"offset", 0.5}, {"relative", true}}, ramp(), [&](double v) { return v + 0.5 * std; },
      200 * kRounding);
}

TEST(Shift, UnderMasks) {
  const Volume image = volume_of<float>({0, 2, 4, 0, kNan});
  const Json nonzero = {{"op", "shift"}, {"offset", 10}, {"relative", true}, {"mask", "nonzero"}};
  const StageOutcome kept = run_stage(nonzero, image);
  EXPECT_EQ(kept.at(0), 0);
  EXPECT_EQ(kept.at(1), 12);
  EXPECT_TRUE(std::isnan(kept.at(4)));
  const Json by_label = {{"op", "shift"}, {"offset", 1}, {"relative", true}, {"mask", "label"}};
  const StageOutcome labelled =
      run_stages({by_label}, images_of("image", copy_of(image), "label", volume_of<std::uint8_t>({1, 0, 1, 0, 1})));
  EXPECT_EQ(labelled.at(0), 2);
  const StageOutcome empty =
      run_stages({by_label}, images_of("image", copy_of(image), "label", volume_of<std::uint8_t>({0, 0, 0, 0, 0})));
  EXPECT_EQ(empty.at(1), 2);
  EXPECT_THAT(empty.codes(), ElementsAre("no_voxels"));
  const StageOutcome constant =
      run_stage({{"op", "shift"}, {"offset", 1}, {"relative", true}}, volume_of<float>({5, 5}));
  EXPECT_EQ(constant.at(0), 5);
  EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
}

TEST(Scale, LeavesOneValueInPlace) {
  expect_formula({{"op", "scale"}, {"factor", 1.5}}, odd_values(), [](double v) { return 1.5 * v; });
  expect_formula(
      {{"op", "scale"}, {"factor", 2}, {"about", 40}}, ramp(), [](double v) { return 2 * v - 40; }, 300 * kRounding);
  expect_formula(
      {{"op", "scale"}, {"factor", 0.5}, {"about", "mean"}}, ramp(), [](double v) { return 0.5 * v + 25; },
      300 * kRounding);
  expect_formula(
      {{"op", "scale"}, {"factor", 3}, {"about", "min"}}, ramp(), [](double v) { return 3 * v + 100; },
      600 * kRounding);
  expect_formula(
      {{"op", "scale"}, {"factor", 3}, {"about", "mean"}, {"clip", true}}, ramp(),
      [](double v) { return std::clamp(3 * v - 100, -50.0, 150.0); }, 600 * kRounding);
  expect_formula({{"op", "scale"}, {"factor", 1000}}, volume_of<std::int16_t>({-30000, 3}),
                 [](double v) { return 1000 * v; });
}

TEST(Scale, UnderMasks) {
  const Volume image = volume_of<float>({0, 10, 20, 0});
  const Json stage = {{"op", "scale"}, {"factor", 2}, {"about", "mean"}, {"mask", "nonzero"}};
  EXPECT_THAT(run_stage(stage, image).values(), ElementsAre(0, 5, 25, 0));
  Json clipped = stage;
  clipped["mask"] = {{"above", 5}};
  clipped["clip"] = true;
  EXPECT_THAT(run_stage(clipped, image).values(), ElementsAre(0, 5, 20, 0));  // limited to the range of all voxels
  EXPECT_THAT(run_stage(stage, volume_of<float>({0, 0})).codes(), ElementsAre("no_voxels"));
  EXPECT_THAT(run_stage({{"op", "scale"}, {"factor", 2}, {"about", "min"}}, volume_of<float>({5, 5})).values(),
              ElementsAre(5, 5));
}

TEST(Binarize, ByThresholdOrRange) {
  const Volume image = volume_of<float>({-1, 0, 0.5f, 1, 2, kNan, kInfinity, -kInfinity});
  const auto values = [&](const Json& entry) {
    const StageOutcome outcome = run_stage(entry, image);
    EXPECT_EQ(outcome.dtype(), DataType::uint8);
    EXPECT_TRUE(outcome.notices.empty());
    return outcome.values();
  };
  EXPECT_THAT(values({{"op", "binarize"}, {"threshold", 0.5}}), ElementsAre(0, 0, 0, 1, 1, 0, 1, 0));
  EXPECT_THAT(values({{"op", "binarize"}, {"above", 0.5}}), ElementsAre(0, 0, 1, 1, 1, 0, 1, 0));
  EXPECT_THAT(values({{"op", "binarize"}, {"above", 0}, {"below", 1}, {"inside", 200}, {"outside", 7}}),
              ElementsAre(7, 200, 200, 200, 7, 7, 7, 7));
  EXPECT_THAT(values({{"op", "binarize"}, {"below", 0}, {"inside", 0}, {"outside", 255}}),
              ElementsAre(0, 0, 255, 255, 255, 255, 255, 0));
  EXPECT_THAT(
      run_stage({{"op", "binarize"}, {"threshold", 16777217}}, volume_of<std::int32_t>({16777217, 16777218})).values(),
      ElementsAre(0, 1));
}

TEST(Sigmoid, IsItks) {
  const auto sigmoid = [](double v) { return -1 + 3 / (1 + std::exp(-(v - 40) / 15)); };
  expect_formula({{"op", "sigmoid"}, {"alpha", 15}, {"beta", 40}, {"to", {-1, 2}}}, ramp(), sigmoid, 1e-6);
  const StageOutcome falling = run_stage({{"op", "sigmoid"}, {"alpha", -2}}, odd_values());
  EXPECT_NEAR(falling.at(4), 1 / (1 + std::exp(1.5)), kRounding);
  EXPECT_TRUE(std::isnan(falling.at(5)));
  EXPECT_EQ(falling.at(6), 0);
  EXPECT_EQ(falling.at(7), 1);
}

TEST(ReplaceNonfinite, EachKindByItself) {
  EXPECT_THAT(run_stage({{"op", "replace_nonfinite"}, {"value", 9}}, odd_values()).values(),
              ElementsAre(-2, -0.5, 0, 0.5, 3, 9, 9, 9));
  EXPECT_THAT(
      run_stage({{"op", "replace_nonfinite"}, {"nan", 1}, {"posinf", 2}, {"neginf", -3}}, odd_values()).values(),
      ElementsAre(-2, -0.5, 0, 0.5, 3, 1, 2, -3));
  EXPECT_THAT(run_stage({{"op", "replace_nonfinite"}, {"value", 5}, {"neginf", -3}}, odd_values()).values(),
              ElementsAre(-2, -0.5, 0, 0.5, 3, 5, 5, -3));
  const StageOutcome integers = run_stage({{"op", "replace_nonfinite"}}, volume_of<std::int32_t>({16777217}));
  EXPECT_EQ(integers.dtype(), DataType::int32);
  EXPECT_EQ(integers.at(0), 16777217);
  EXPECT_EQ(run_stage({{"op", "replace_nonfinite"}}, volume_of<double>({1e300})).at(0), 0);  // beyond float32
}

/// A box of `size` whose corners are `padding` and whose other voxels count from 10.
Volume padded(const Index3& size, std::int16_t padding) {
  std::vector<std::int16_t> values(std::size_t(size[0] * size[1] * size[2]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = std::int64_t(i) % size[0], y = std::int64_t(i) / size[0] % size[1],
               z = std::int64_t(i) / size[0] / size[1];
    const auto at_end = [](std::int64_t c, std::int64_t n) { return c == 0 || c == n - 1; };
    values[i] = at_end(x, size[0]) && at_end(y, size[1]) && at_end(z, size[2]) ? padding : std::int16_t(10 + i);
  }
  return volume_of(values, size);
}

TEST(ReplacePadding, FindsWhatAllCornersHave) {
  for (const Index3& size : {Index3{3, 3, 3}, Index3{5, 2, 4}, Index3{9, 1, 1}, Index3{4, 3, 1}}) {
    const Volume image = padded(size, -2000);
    const StageOutcome outcome = run_stage({{"op", "replace_padding"}}, image);
    EXPECT_EQ(outcome.dtype(), DataType::int16);
    EXPECT_TRUE(outcome.notices.empty());
    const std::vector<double> before = values_of(image), after = outcome.values();
    double least = 1e9;
    for (const double v : before)
      if (v != -2000) least = std::min(least, v);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i] == -2000 ? least : before[i]);
  }
}

TEST(ReplacePadding, LeavesAnImageWhoseCornersDiffer) {
  Volume image = padded({3, 4, 5}, -2000);
  image.data_as<std::int16_t>()[59] = -1999;
  const StageOutcome outcome = run_stage({{"op", "replace_padding"}}, image);
  EXPECT_EQ(outcome.values(), values_of(image));
  EXPECT_THAT(outcome.codes(), ElementsAre("no_padding"));
  for (const float odd : {kNan, kInfinity}) {
    const StageOutcome without = run_stage({{"op", "replace_padding"}}, volume_of<float>({odd, 3, 4, odd}));
    EXPECT_EQ(without.at(1), 3);
    EXPECT_THAT(without.codes(), ElementsAre("no_padding"));
  }
}

TEST(ReplacePadding, ByNumbers) {
  const Volume image = volume_of<std::int16_t>({-2000, 5, -2000, 7});
  const StageOutcome outcome = run_stage({{"op", "replace_padding"}, {"padding", -2000}, {"value", -1024}}, image);
  EXPECT_EQ(outcome.dtype(), DataType::int16);
  EXPECT_THAT(outcome.values(), ElementsAre(-1024, 5, -1024, 7));
  EXPECT_EQ(run_stage({{"op", "replace_padding"}, {"padding", -2000}, {"value", 0.5}}, image).dtype(),
            DataType::float32);
  EXPECT_EQ(run_stage({{"op", "replace_padding"}, {"padding", 3}}, image).values(), values_of(image));
  const StageOutcome all = run_stage({{"op", "replace_padding"}}, volume_of<std::int16_t>({8, 8}));
  EXPECT_THAT(all.values(), ElementsAre(8, 8));
  EXPECT_THAT(all.codes(), ElementsAre("no_voxels"));
  EXPECT_THAT(
      run_stage({{"op", "replace_padding"}, {"padding", 0}}, volume_of<float>({0, kNan, 3, kInfinity})).values()[0], 3);
}

TEST(ReplacePadding, OverAllComponents) {
  const StageOutcome outcome = run_stage({{"op", "replace_padding"}, {"value", 0}},
                                         volume_of<std::int16_t>({-9, 4, -9, -9, 5, -9}, {3, 1, 1}, 2));
  EXPECT_THAT(outcome.values(), ElementsAre(0, 4, 0, 0, 5, 0));
  EXPECT_THAT(
      run_stage({{"op", "replace_padding"}}, volume_of<std::int16_t>({-9, 4, -9, -8, 5, -8}, {3, 1, 1}, 2)).codes(),
      ElementsAre("no_padding"));
}

TEST(IntensityArithmetic, WrongParametersAreFaultsInTheirPlace) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"op", "adjust_contrast"}}, ""},
      {{{"op", "adjust_contrast"}, {"gamma", 0}}, "/gamma"},
      {{{"op", "adjust_contrast"}, {"gamma", 1}, {"per", "slice"}}, "/per"},
      {{{"op", "log"}, {"base", 1}}, "/base"},
      {{{"op", "log"}, {"base", -2}}, "/base"},
      {{{"op", "exp"}, {"base", 0}}, "/base"},
      {{{"op", "power"}}, ""},
      {{{"op", "invert_intensity"}, {"max", "auto"}}, "/max"},
      {{{"op", "shift"}}, ""},
      {{{"op", "shift"}, {"offset", 1}, {"mask", "nonzero"}}, "/mask"},
      {{{"op", "scale"}}, ""},
      {{{"op", "scale"}, {"factor", 2}, {"about", "median"}}, "/about"},
      {{{"op", "scale"}, {"factor", 2}, {"mask", "nonzero"}}, "/mask"},
      {{{"op", "binarize"}}, ""},
      {{{"op", "binarize"}, {"threshold", 1}, {"below", 3}}, "/threshold"},
      {{{"op", "binarize"}, {"above", 4}, {"below", 3}}, "/above"},
      {{{"op", "binarize"}, {"threshold", 1}, {"inside", 256}}, "/inside"},
      {{{"op", "binarize"}, {"threshold", 1}, {"outside", 0.5}}, "/outside"},
      {{{"op", "sigmoid"}, {"alpha", 0}}, "/alpha"},
      {{{"op", "replace_nonfinite"}, {"nan", "zero"}}, "/nan"},
      {{{"op", "replace_padding"}, {"padding", "corner"}}, "/padding"},
      {{{"op", "replace_padding"}, {"value", "max"}}, "/value"}};
  for (const auto& [entry, place] : cases) EXPECT_THAT(fault_places(entry), ElementsAre(place)) << entry;
}

}  // namespace
}  // namespace volpipe
