#include "pipeline/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace volpipe {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
Volume volume_of(const std::vector<T>& values, const Index3& size, const Vec3& origin = {}) {
  VolumeInfo info{.geometry = Geometry::from_spacing(size, {1, 1, 1}, origin), .dtype = data_type_of<T>()};
  info.components = std::int64_t(values.size()) / info.geometry.voxel_count();
  Buffer buffer = Buffer::host(info.bytes());
  std::copy(values.begin(), values.end(), static_cast<T*>(buffer.data()));
  return {info, std::move(buffer)};
}

Comparison compare(const Volume& a, const Volume& b, const Tolerance& tolerance = {}) {
  return compare_volumes(*make_context(Device::cpu(), 2), a, b, tolerance);
}

TEST(Compare, EqualVolumes) {
  const auto a = volume_of<float>({1, 2, 3, 4}, {2, 2, 1});
  const Comparison result = compare(a, a);
  EXPECT_TRUE(result.equal());
  EXPECT_EQ(result.values, 4);
  EXPECT_EQ(result.max_absolute, 0);
}

TEST(Compare, FindsTheLargestDifference) {
  const Comparison result = compare(volume_of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 1}),
                                    volume_of<float>({1, 1, 3, 4, 5, 6, 4, 8}, {2, 2, 1}));
  EXPECT_FALSE(result.equal());
  EXPECT_EQ(result.differing, 2);
  EXPECT_EQ(result.max_absolute, 3);
  EXPECT_EQ(result.max_absolute_at.index, (Index3{0, 1, 0}));
  EXPECT_EQ(result.max_absolute_at.component, 1);
  EXPECT_EQ(result.max_absolute_at.b, 4);
  EXPECT_EQ(result.max_relative, 1);
  EXPECT_EQ(result.max_relative_at.index, (Index3{1, 0, 0}));
}

TEST(Compare, ToleranceIsRelativeToTheSecond) {
  const auto a = volume_of<double>({110}, {1, 1, 1}), b = volume_of<double>({100}, {1, 1, 1});
  EXPECT_TRUE(compare(a, b, {.relative = 0.1}).equal());
  EXPECT_FALSE(compare(a, b, {.relative = 0.099}).equal());
  EXPECT_TRUE(compare(a, b, {.absolute = 10}).equal());
  EXPECT_TRUE(compare(a, b, {.absolute = 5, .relative = 0.05}).equal());
}

TEST(Compare, NonFiniteValuesAgreeOnlyWithThemselves) {
  const auto a = volume_of<double>({kNan, kInfinity, -kInfinity, 1}, {4, 1, 1});
  EXPECT_TRUE(compare(a, a).equal());
  const auto b = volume_of<double>({0, -kInfinity, kNan, kInfinity}, {4, 1, 1});
  const Comparison result = compare(a, b, {.absolute = 1e300});
  EXPECT_EQ(result.differing, 4);
  EXPECT_EQ(result.non_finite_mismatches, 4);
  EXPECT_EQ(result.max_absolute, 0);
}

TEST(Compare, LargeIntegersAreExact) {
  EXPECT_FALSE(
      compare(volume_of<std::int32_t>({16777217}, {1, 1, 1}), volume_of<std::int32_t>({16777216}, {1, 1, 1})).equal());
  EXPECT_FALSE(
      compare(volume_of<std::uint32_t>({4294967295u}, {1, 1, 1}), volume_of<std::int32_t>({-1}, {1, 1, 1})).equal());
}

TEST(Compare, PixelTypeAloneIsNoDifference) {
  EXPECT_TRUE(compare(volume_of<std::uint8_t>({7}, {1, 1, 1}), volume_of<double>({7}, {1, 1, 1})).equal());
}

TEST(Compare, SizeComponentsAndGrid) {
  const auto a = volume_of<float>({1, 2}, {2, 1, 1});
  EXPECT_FALSE(compare(a, volume_of<float>({1, 2}, {1, 2, 1})).same_size);
  EXPECT_FALSE(compare(a, volume_of<float>({1, 2, 3, 4}, {2, 1, 1})).same_components);
  const Comparison moved = compare(a, volume_of<float>({1, 2}, {2, 1, 1}, {0, 3, 4}));
  EXPECT_FALSE(moved.equal());
  EXPECT_EQ(moved.differing, 0);
  EXPECT_DOUBLE_EQ(moved.corner_distance_mm, 5);
  EXPECT_TRUE(compare(a, volume_of<float>({1, 2}, {2, 1, 1}, {5e-4, 0, 0})).equal());
}

TEST(Compare, ManyPiecesGiveTheFirstOfEqualMaxima) {
  std::vector<float> zeros(300000), some(300000);
  some[70000] = some[200000] = 2;
  const Comparison result = compare(volume_of(some, {300000, 1, 1}), volume_of(zeros, {300000, 1, 1}));
  EXPECT_EQ(result.differing, 2);
  EXPECT_EQ(result.max_absolute_at.index[0], 70000);
}

}  // namespace
}  // namespace volpipe
