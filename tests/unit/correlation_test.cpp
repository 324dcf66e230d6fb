#include "stages/separable/correlation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stages/separable/sampling.h"

namespace volpipe {
namespace {

const std::vector<double> kKernel{0.25, 0.5, 0.125};

std::vector<std::int32_t> ends_of(Boundary boundary) {
  const auto found = as_correlation(correlate_axis(9, kKernel, boundary));
  if (!found) return {};
  EXPECT_EQ(found->offset, -1);
  EXPECT_EQ(found->weights, std::vector<float>(kKernel.begin(), kKernel.end()));
  EXPECT_EQ(found->source.size(), 11u);
  for (std::size_t v = 1; v < 10; ++v) EXPECT_EQ(found->source[v], std::int32_t(v) - 1);
  return {found->source.front(), found->source.back()};
}

TEST(Correlation, ExtendsTheAxisAsTheBoundaryDoes) {
  EXPECT_EQ(ends_of(Boundary::nearest), (std::vector<std::int32_t>{0, 8}));
  EXPECT_EQ(ends_of(Boundary::reflect), (std::vector<std::int32_t>{0, 8}));
  EXPECT_EQ(ends_of(Boundary::mirror), (std::vector<std::int32_t>{1, 7}));
  EXPECT_EQ(ends_of(Boundary::grid_wrap), (std::vector<std::int32_t>{8, 0}));
  EXPECT_EQ(ends_of(Boundary::grid_constant), (std::vector<std::int32_t>{-1, -1}));
}

TEST(Correlation, SurvivesACrop) {
  const AxisMatrix crop = AxisMatrix::lattice(20, {5, 6, 7, 8});
  const auto product = AxisMatrix::compose(crop, correlate_axis(20, kKernel, Boundary::reflect));
  ASSERT_TRUE(product);
  const auto found = as_correlation(*product);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset, 4);
  EXPECT_EQ(found->source, (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9}));
}

TEST(Correlation, TakesThePrefilterOfEveryBoundary) {
  for (const Boundary boundary : {Boundary::constant, Boundary::grid_constant, Boundary::nearest, Boundary::mirror,
                                  Boundary::reflect, Boundary::wrap, Boundary::grid_wrap})
    for (const std::int64_t size : {27, 28, 64, 513}) {
      const std::int64_t pad = spline_pad(Interpolation::bspline3, boundary);
      const AxisMatrix matrix = prefilter_axis(size, Interpolation::bspline3, boundary, pad);
      const auto found = as_correlation(matrix);
      ASSERT_TRUE(found) << int(boundary) << " of " << size;
      EXPECT_EQ(found->weights.size(), 27u);
      EXPECT_EQ(found->offset, -13 - pad);
      for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
        std::vector<double> difference(std::size_t(size) + 1);
        std::vector<bool> touched(difference.size());
        for (std::size_t t = 0; t < 27; ++t) {
          const auto at = std::size_t(found->source[std::size_t(j) + t] + 1);
          difference[at] += double(found->weights[t]);
          touched[at] = true;
        }
        EXPECT_EQ(touched[0], matrix.fill_weights()[std::size_t(j)] != 0);
        difference[0] -= matrix.fill_weights()[std::size_t(j)];
        std::ptrdiff_t voxels = 0;
        for (const auto& tap : matrix.row(j)) {
          difference[std::size_t(tap.index) + 1] -= tap.weight;
          EXPECT_TRUE(touched[std::size_t(tap.index) + 1]);
          ++voxels;
        }
        EXPECT_EQ(std::count(touched.begin() + 1, touched.end(), true), voxels);
        for (const double d : difference) EXPECT_NEAR(d, 0, 2e-7);
      }
    }
}

TEST(Correlation, RefusesOtherMatrices) {
  EXPECT_FALSE(as_correlation(AxisMatrix::lattice(3, {-1, -1, -1})));
  EXPECT_FALSE(as_correlation(AxisMatrix::lattice(5, {4, 3, 2, 1, 0})));
  EXPECT_FALSE(as_correlation(correlate_axis(9, std::vector<double>{-1, 3, 1}, Boundary::mirror)));
  EXPECT_FALSE(as_correlation(correlate_axis(9, std::vector<double>{-2, 2, 3}, Boundary::reflect)));
  EXPECT_FALSE(as_correlation(correlate_axis(9, std::vector<double>{1, 0, 1}, Boundary::nearest)));
  const std::vector<double> halves{0.5, 1.5, 2.5, 3.5};
  EXPECT_FALSE(as_correlation(sample_axis(9, halves, Interpolation::bspline3, Boundary::mirror)));
}

}  // namespace
}  // namespace volpipe
