// Bias fields and other smooth random fields: what they are on any grid, that images share them, and their faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/stage_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

const ItemKey kKey{11, "case", 0};

Volume ones(const Geometry& grid, std::int64_t components = 1) {
  VolumeInfo info;
  info.geometry = grid;
  info.components = components;
  Volume volume(info, Buffer::host(info.bytes()));
  std::fill_n(volume.data_as<float>(), info.value_count(), 1.0f);
  return volume;
}

/// What the stage makes of ones: its field.
std::vector<double> field_of(const Json& stage, const Geometry& grid) {
  return run_stage(stage, ones(grid), kKey).values();
}

/// Differences of order `order` along an axis; of a polynomial of lower degree they are 0.
double largest_difference(std::vector<double> values, const Index3& size, int axis, int order) {
  const std::int64_t stride = axis == 0 ? 1 : axis == 1 ? size[0] : size[0] * size[1];
  double largest = 0;
  for (int pass = 0; pass < order; ++pass)
    for (std::size_t i = 0; i + std::size_t(stride) < values.size(); ++i)
      values[i] = values[i + std::size_t(stride)] - values[i];
  for (std::int64_t i = 0; i < std::int64_t(values.size()); ++i)
    if (i / stride % size[std::size_t(axis)] < size[std::size_t(axis)] - order)
      largest = std::max(largest, std::abs(values[std::size_t(i)]));
  return largest;
}

TEST(BiasField, IsAPositivePolynomialsExponentialOfGeometricMeanOne) {
  const Index3 size{12, 9, 7};
  for (const int degree : {1, 2, 3, 5}) {
    std::vector<double> logarithm =
        field_of({{"op", "bias_field"}, {"degree", degree}, {"magnitude", 0.5}}, oblique_grid(size));
    double mean = 0, largest = 0;
    for (double& v : logarithm) {
      ASSERT_GT(v, 0);
      v = std::log(v);
      mean += v / double(logarithm.size());
      largest = std::max(largest, std::abs(v));
    }
    EXPECT_NEAR(mean, 0, 1e-7);
    EXPECT_GT(largest, 0.1);
    // Rounding of the factor to float32, 6e-8, grows at most twofold a difference.
    for (int axis = 0; axis < 3; ++axis) {
      if (degree + 1 >= size[std::size_t(axis)]) continue;
      EXPECT_LT(largest_difference(logarithm, size, axis, degree + 1), 2e-7 * std::exp2(degree + 1)) << degree << axis;
    }
    EXPECT_GT(largest_difference(logarithm, size, 0, degree), 1e-4);
  }
}

TEST(BiasField, IsOfTotalDegree) {
  // For degree 1 there are no mixed terms: f(x, y) f(x', y') = f(x', y) f(x, y').
  const std::vector<double> field = field_of({{"op", "bias_field"}, {"degree", 1}}, oblique_grid({5, 4, 1}));
  EXPECT_NEAR(field[0] * field[19], field[4] * field[15], 1e-6);
}

TEST(BiasField, OfNoMagnitudeIsOne) {
  for (const double v : field_of({{"op", "bias_field"}, {"magnitude", 0}}, oblique_grid({4, 3, 2}))) EXPECT_EQ(v, 1);
}

TEST(BiasField, OfSmallestGrids) {
  EXPECT_NEAR(field_of({{"op", "bias_field"}}, oblique_grid({1, 1, 1}))[0], 1, 1e-6);
  const std::vector<double> pair = field_of({{"op", "bias_field"}}, oblique_grid({2, 1, 1}));
  EXPECT_NEAR(pair[0] * pair[1], 1, 1e-6);
}

TEST(BiasField, IsTheSameForEveryComponentAndKeepsOddValues) {
  Volume image = ones(oblique_grid({4, 3, 2}), 2);
  image.data_as<float>()[0] = kNan;
  image.data_as<float>()[1] = -kInfinity;
  const std::vector<double> field = run_stage({{"op", "bias_field"}}, image, kKey).values();
  EXPECT_TRUE(std::isnan(field[0]));
  EXPECT_EQ(field[1], -kInfinity);
  for (std::size_t i = 2; i < 24; ++i) EXPECT_EQ(field[i], field[i + 24]);
  const StageOutcome integers = run_stage({{"op", "bias_field"}}, volume_of<std::int16_t>({100, 100, 100}), kKey);
  EXPECT_EQ(integers.dtype(), DataType::float32);
}

/// A grid that lies within `frame` in the world: voxel i of it at index a + s * i, axes in another order, turned.
Geometry part_of(const Geometry& frame, const Index3& size, bool turned) {
  Affine map{{{{{0, 0.5, 0}, {-0.25, 0, 0}, {0, 0, 0.4}}}}, {3, 8, 1}};
  if (turned) map.linear.m[0][0] = 0.25;
  return frame.remapped(size, map);
}

/// Interpolates nothing: compares where voxels coincide, at frame index {3 + 0.5 j, 8 - 0.25 i, 1 + 0.4 k} (+ 0.25 i).
void expect_same_in_the_world(const Json& stage, bool turned) {
  const Geometry frame = oblique_grid({12, 10, 6});
  const Geometry other = part_of(frame, {10, 6, 6}, turned);
  const StageOutcome outcome = run_stages({stage}, images_of("image", ones(frame), "other", ones(other)), kKey);
  const std::vector<double> a = outcome.values("image"), b = outcome.values("other");
  int compared = 0;
  for (std::int64_t k = 0; k < 6; k += 5)
    for (std::int64_t j = 0; j < 6; ++j)
      for (std::int64_t i = 0; i < 10; i += 4) {
        const double x = 3 + 0.5 * double(j) + (turned ? 0.25 * double(i) : 0), y = 8 - 0.25 * double(i),
                     z = 1 + 0.4 * double(k);
        if (x != std::floor(x)) continue;
        const auto at = std::size_t((z * 10 + y) * 12 + x);
        EXPECT_NEAR(b[std::size_t((k * 6 + j) * 10 + i)], a[at], 3e-6) << i << " " << j << " " << k;
        ++compared;
      }
  EXPECT_GE(compared, 8);
}

TEST(BiasField, IsOneFieldInTheWorld) {
  const Json stage = {{"op", "bias_field"}, {"degree", 4}};
  expect_same_in_the_world(stage, false);
  expect_same_in_the_world(stage, true);
}

TEST(SmoothIntensity, IsOneFieldInTheWorld) {
  expect_same_in_the_world({{"op", "smooth_intensity"}, {"spacing", {4, 5, 6}}}, false);
}

TEST(SmoothIntensity, RefusesGridsThatAreTurned) {
  const Geometry frame = oblique_grid({12, 10, 6});
  try {
    run_stages({{{"op", "smooth_intensity"}}},
               images_of("image", ones(frame), "other", ones(part_of(frame, {10, 6, 6}, true))), kKey);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.what(), HasSubstr("resample_to"));
  }
}

TEST(SmoothIntensity, ImagesOnOneGridShareTheFieldExactly) {
  const Geometry grid = oblique_grid({9, 8, 7});
  const StageOutcome outcome = run_stages({{{"op", "smooth_intensity"}, {"spacing", 5}}},
                                          images_of("image", ones(grid), "other", ones(grid, 3)), kKey);
  const std::vector<double> a = outcome.values("image"), b = outcome.values("other");
  for (std::size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b[i], a[i % a.size()]);
}

TEST(SmoothIntensity, StaysInItsRangeAndIsSmooth) {
  const Index3 size{40, 30, 20};
  const std::vector<double> field =
      field_of({{"op", "smooth_intensity"}, {"spacing", 12}, {"range", {0.25, 2}}}, Geometry(size, Affine{}));
  double low = 9, high = 0;
  for (const double v : field) low = std::min(low, v), high = std::max(high, v);
  EXPECT_GE(low, 0.25);
  EXPECT_LE(high, 2);
  EXPECT_GT(high - low, 0.5);
  // |f''| of a cubic B-spline with values in a range r on points h apart is at most 4 r / h^2.
  EXPECT_LT(largest_difference(field, size, 0, 2), 4 * 1.75 / 144);
  for (const double v : field_of({{"op", "smooth_intensity"}, {"range", {3, 3}}}, Geometry({3, 1, 2}, Affine{})))
    EXPECT_NEAR(v, 3, 1e-6);
}

TEST(SmoothIntensity, DependsOnItsKeyAlone) {
  const Geometry grid = oblique_grid({9, 8, 7});
  const Json stage = {{"op", "smooth_intensity"}, {"spacing", 5}};
  EXPECT_EQ(field_of(stage, grid), field_of(stage, grid));
  EXPECT_NE(run_stage(stage, ones(grid), {12, "case", 0}).values(), field_of(stage, grid));
  EXPECT_NE(run_stage(stage, ones(grid), {11, "case", 1}).values(), field_of(stage, grid));
}

TEST(SmoothContrast, RaisesToTheFieldOfSmoothIntensity) {
  const Index3 size{8, 7, 6};
  Volume image = ones(Geometry(size, Affine{}));
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < image.info().value_count(); ++i)
    image.data_as<float>()[i] = float(random() % 1000) - 300;
  image.data_as<float>()[0] = -300;
  image.data_as<float>()[1] = 700;
  image.data_as<float>()[2] = kNan;
  image.data_as<float>()[3] = kInfinity;
  const Json common = {{"spacing", 4}, {"range", {0.5, 3}}};
  Json contrast = {{"op", "smooth_contrast"}}, intensity = {{"op", "smooth_intensity"}};
  contrast.update(common);
  intensity.update(common);
  const std::vector<double> exponent = field_of(intensity, Geometry(size, Affine{}));
  const std::vector<double> found = run_stage(contrast, image, kKey).values();
  EXPECT_TRUE(std::isnan(found[2]));
  EXPECT_EQ(found[3], 700);
  for (std::size_t i = 4; i < found.size(); ++i)
    EXPECT_NEAR(found[i], std::pow((double(image.data_as<float>()[i]) + 300) / 1000, exponent[i]) * 1000 - 300, 2e-3);
}

TEST(SmoothContrast, OfDegenerateImages) {
  EXPECT_THAT(run_stage({{"op", "smooth_contrast"}}, volume_of<float>({4, 4})).codes(), ElementsAre("constant_image"));
  EXPECT_THAT(run_stage({{"op", "smooth_contrast"}}, volume_of<float>({kNan})).codes(), ElementsAre("no_voxels"));
}

TEST(RandomFields, WrongParametersAreFaultsInTheirPlace) {
  EXPECT_THAT(fault_places({{"op", "bias_field"}, {"degree", 0}}), ElementsAre("/degree"));
  EXPECT_THAT(fault_places({{"op", "bias_field"}, {"degree", 11}}), ElementsAre("/degree"));
  EXPECT_THAT(fault_places({{"op", "bias_field"}, {"magnitude", -1}}), ElementsAre("/magnitude"));
  EXPECT_THAT(fault_places({{"op", "smooth_intensity"}, {"range", {2, 1}}}), ElementsAre("/range"));
  EXPECT_THAT(fault_places({{"op", "smooth_intensity"}, {"spacing", 0}}), ElementsAre("/spacing"));
  EXPECT_THAT(fault_places({{"op", "smooth_contrast"}, {"range", {0, 1}}}), ElementsAre("/range"));
  EXPECT_THROW(run_stage({{"op", "smooth_intensity"}, {"spacing", 1e-4}}, ones(oblique_grid({9, 9, 9}))), Error);
}

}  // namespace
}  // namespace volpipe
