// Golden numbers are SciPy's; the spline is also solved for densely, so that the exact reflect start is the measure.
#include "stages/separable/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "volume/error.h"

namespace volpipe {
namespace {

const std::vector<Boundary> kBoundaries{Boundary::constant, Boundary::grid_constant, Boundary::nearest,
                                        Boundary::mirror,   Boundary::reflect,       Boundary::wrap,
                                        Boundary::grid_wrap};

std::vector<double> applied(const AxisMatrix& matrix, const std::vector<double>& input, double fill = 0) {
  std::vector<double> output;
  for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
    double sum = matrix.fill_weights()[std::size_t(j)] * fill;
    for (const auto& tap : matrix.row(j)) sum += tap.weight * input[std::size_t(tap.index)];
    output.push_back(sum);
  }
  return output;
}

std::vector<double> sampled(const std::vector<double>& input, const std::vector<double>& at,
                            Interpolation interpolation, Boundary boundary, double fill = 0) {
  return applied(sample_axis(std::int64_t(input.size()), at, interpolation, boundary), input, fill);
}

std::vector<double> ramp(std::int64_t n) {
  std::vector<double> values;
  for (std::int64_t i = 1; i <= n; ++i) values.push_back(double(i));
  return values;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "at " << i;
}

/// Coefficients of the interpolating cubic B-spline whose coefficients extend by `boundary`: (c[i-1] + 4c[i] + c[i+1])
/// / 6 = x[i].
std::vector<double> solved_coefficients(std::vector<double> x, Boundary boundary) {
  const std::size_t n = x.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (int d = -1; d <= 1; ++d)
      a[i][std::size_t(fold_index(std::int64_t(i) + d, std::int64_t(n), boundary))] += (d == 0 ? 4 : 1) / 6.0;
  for (std::size_t p = 0; p < n; ++p)
    for (std::size_t i = 0; i < n; ++i) {
      if (i == p) continue;
      const double factor = a[i][p] / a[p][p];
      for (std::size_t j = 0; j < n; ++j) a[i][j] -= factor * a[p][j];
      x[i] -= factor * x[p];
    }
  for (std::size_t i = 0; i < n; ++i) x[i] /= a[i][i];
  return x;
}

double cubic_bspline(double t) {
  t = std::abs(t);
  return t >= 2 ? 0 : t < 1 ? (4 - 6 * t * t + 3 * t * t * t) / 6 : (2 - t) * (2 - t) * (2 - t) / 6;
}

TEST(FoldIndex, DrawsThePicturesOfSciPy) {
  const auto picture = [](Boundary boundary) {
    std::string text;
    for (std::int64_t i = -6; i < 10; ++i) {
      const std::int64_t j = fold_index(i, 4, boundary);
      text += j < 0 ? '-' : char('a' + j);
    }
    return text;
  };
  EXPECT_EQ(picture(Boundary::reflect), "cddcbaabcddcbaab");
  EXPECT_EQ(picture(Boundary::mirror), "abcdcbabcdcbabcd");
  EXPECT_EQ(picture(Boundary::nearest), "aaaaaaabcddddddd");
  EXPECT_EQ(picture(Boundary::grid_wrap), "cdabcdabcdabcdab");
  EXPECT_EQ(picture(Boundary::constant), "------abcd------");
  EXPECT_EQ(fold_index(-5, 1, Boundary::mirror), 0);
}

TEST(SampleAxis, NearestTiesGoUp) {
  EXPECT_EQ(sampled(ramp(5), {0.5, 1.5, 2.5, 3.5}, Interpolation::nearest, Boundary::nearest),
            (std::vector<double>{2, 3, 4, 5}));
}

TEST(SampleAxis, ConstantIsWholeAndGridConstantBlends) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3})
    EXPECT_EQ(sampled(ramp(5), {-0.0001, 4.0000001, 9}, interpolation, Boundary::constant, -7),
              (std::vector<double>{-7, -7, -7}));
  expect_near(sampled(ramp(5), {-0.25, 4.5, 6}, Interpolation::linear, Boundary::grid_constant, 10),
              {0.75 + 2.5, 2.5 + 5, 10}, 1e-15);
}

TEST(SampleAxis, WrapHasPeriodNMinusOne) {
  EXPECT_EQ(sampled(ramp(5), {4, 5, 8, -1, -4}, Interpolation::linear, Boundary::wrap),
            (std::vector<double>{5, 2, 1, 4, 5}));
  EXPECT_EQ(sampled(ramp(5), {5, -1, 4.5, 12}, Interpolation::linear, Boundary::grid_wrap),
            (std::vector<double>{1, 5, 3, 3}));
}

TEST(SampleAxis, SplineSolvesTheDenseSystem) {
  for (const Boundary boundary : {Boundary::mirror, Boundary::reflect, Boundary::grid_wrap})
    for (const std::int64_t n : {2, 3, 5, 17}) {
      std::vector<double> x;
      for (std::int64_t i = 0; i < n; ++i) x.push_back(std::sin(1.7 * double(i * i)) + double(i));
      const std::vector<double> c = solved_coefficients(x, boundary);
      std::vector<double> at, expected;
      for (double t = -3.3; t < double(n) + 3; t += 0.37) {
        double sum = 0;
        for (std::int64_t i = std::int64_t(std::floor(t)) - 2; i <= std::int64_t(std::floor(t)) + 3; ++i)
          sum += c[std::size_t(fold_index(i, n, boundary))] * cubic_bspline(t - double(i));
        at.push_back(t);
        expected.push_back(sum);
      }
      expect_near(applied(sample_axis(n, at, Interpolation::bspline3, boundary, 1e-15), x), expected,
                  1e-12 * double(n));
      expect_near(sampled(x, at, Interpolation::bspline3, boundary), expected, 2e-7 * double(n));
    }
}

TEST(SampleAxis, SplineOfTheRampHasTheExactReflectCoefficients) {
  // At voxel 0 of the coefficients 0.8, 2, 3.2: (c0 + 4 c0 + c1) / 6 = 1; between, the spline through them.
  const auto spline = [](const std::vector<double>& c, double t) {
    double sum = 0;
    for (std::int64_t i = -3; i < 7; ++i)
      sum += c[std::size_t(fold_index(i, std::int64_t(c.size()), Boundary::reflect))] * cubic_bspline(t - double(i));
    return sum;
  };
  const AxisMatrix two =
      sample_axis(2, std::vector<double>{0.3, -0.4, 1.2}, Interpolation::bspline3, Boundary::reflect, 1e-15);
  expect_near(applied(two, {1, 2}), {spline({0.75, 2.25}, 0.3), spline({0.75, 2.25}, -0.4), spline({0.75, 2.25}, 1.2)},
              1e-12);
  const AxisMatrix three =
      sample_axis(3, std::vector<double>{0.3, -0.4, 1.2}, Interpolation::bspline3, Boundary::reflect, 1e-15);
  expect_near(applied(three, {1, 2, 3}),
              {spline({0.8, 2, 3.2}, 0.3), spline({0.8, 2, 3.2}, -0.4), spline({0.8, 2, 3.2}, 1.2)}, 1e-12);
}

TEST(SampleAxis, VoxelsAreTheirOwnSamples) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3})
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 17, 33}) {
        std::vector<double> at;
        for (std::int64_t i = 0; i < n; ++i) at.push_back(double(i));
        EXPECT_TRUE(sample_axis(n, at, interpolation, boundary).is_identity())
            << int(interpolation) << int(boundary) << n;
      }
}

TEST(SampleAxis, ConstantsStayAndRampsStayInside) {
  for (const Interpolation interpolation : {Interpolation::linear, Interpolation::bspline3})
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 17, 33}) {
        std::vector<double> at;
        for (double t = -2.7; t < double(n) + 2; t += 0.3) at.push_back(t);
        expect_near(sampled(std::vector<double>(std::size_t(n), 3.0), at, interpolation, boundary, 3),
                    std::vector<double>(at.size(), 3.0), 1e-14);
      }
  std::vector<double> at, expected;
  for (double t = 20; t < 43; t += 0.3) {
    at.push_back(t);
    expected.push_back(t + 1);
  }
  expect_near(sampled(ramp(64), at, Interpolation::bspline3, Boundary::nearest), expected, 1e-6);
}

TEST(SampleAxis, SplineIsTwentySixTapsWide) {
  std::vector<double> at;
  for (int j = 0; j < 384; ++j) at.push_back((j + 0.5) * 512 / 384 - 0.5);
  EXPECT_EQ(sample_axis(512, at, Interpolation::bspline3, Boundary::nearest).taps(), 26);
}

TEST(Gaussian, HasSciPysTaps) {
  expect_near(
      gaussian_kernel(1),
      {0.00013383, 0.00443186, 0.05399113, 0.24197145, 0.39894347, 0.24197145, 0.05399113, 0.00443186, 0.00013383},
      5e-9);
  EXPECT_EQ(gaussian_kernel(0), std::vector<double>{1});
  EXPECT_EQ(gaussian_kernel(2).size(), 17u);
  EXPECT_EQ(gaussian_kernel(1, 0, 2).size(), 5u);
}

TEST(Gaussian, DerivativesOfPolynomials) {
  const auto moment = [](int order, double power) {
    const std::vector<double> kernel = gaussian_kernel(2, order, 8);
    double sum = 0;
    for (std::size_t i = 0; i < kernel.size(); ++i)
      sum += kernel[i] * std::pow(double(i) - double(kernel.size() / 2), power);
    return sum;
  };
  EXPECT_NEAR(moment(1, 1), 1, 1e-9);
  EXPECT_NEAR(moment(2, 2), 2, 1e-9);
  EXPECT_NEAR(moment(3, 3), 6, 1e-8);
  EXPECT_NEAR(moment(1, 0), 0, 1e-12);
  EXPECT_NEAR(moment(2, 0), 0, 1e-9);
}

TEST(CorrelateAxis, FoldsLikeAPaddedAxis) {
  std::vector<double> kernel{0.1, 0.2, 0.3, 0.25, 0.15, 0.35, 0.05};
  for (int t = 0; t < 36; ++t) kernel.push_back(0.1 * std::sin(t));
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  for (const Boundary boundary : kBoundaries)
    for (const std::int64_t n : {1, 2, 3, 17, 33}) {
      std::vector<double> x, expected;
      for (std::int64_t i = 0; i < n; ++i) x.push_back(std::cos(double(i * 3)));
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t t = 0; t < std::int64_t(kernel.size()); ++t) {
          const std::int64_t i = fold_index(j + t - radius, n, boundary);
          sum += kernel[std::size_t(t)] * (i < 0 ? 5.0 : x[std::size_t(i)]);
        }
        expected.push_back(sum);
      }
      expect_near(applied(correlate_axis(n, kernel, boundary), x, 5), expected, 1e-13);
    }
}

TEST(Antialias, IsAnEdgeReplicatedGaussian) {
  const AxisMatrix matrix = antialias_axis(50, 3);
  const std::vector<double> kernel = gaussian_kernel(1);
  EXPECT_EQ(matrix.taps(), 9);
  EXPECT_NEAR(matrix.row(0).front().weight, kernel[0] + kernel[1] + kernel[2] + kernel[3] + kernel[4], 1e-15);
  EXPECT_TRUE(antialias_axis(50, 1).is_identity());
}

TEST(Antialias, OfManyAxisLengthsNeedsNoLongKernel) {
  const double sigma = 20000;  // radius 80000
  const AxisMatrix expected = correlate_axis(5, gaussian_kernel(sigma), Boundary::nearest);
  const AxisMatrix matrix = antialias_axis(5, 2 * sigma + 1);
  for (std::size_t i = 0; i < 25; ++i) EXPECT_NEAR(matrix.weights()[i], expected.weights()[i], 1e-12);
  for (const double factor : {1e6, 1e9, 1e12, 1e300})
    expect_near(applied(antialias_axis(3, factor), {1, 7, 3}, 0), {2, 2, 2}, 1e-4);
}

TEST(CorrelateAxis, RefusesTablesBeyondReason) {
  EXPECT_THROW(correlate_axis(1000000, std::vector<double>(32769, 1.0), Boundary::reflect), Error);
}

TEST(SampleAxis, FarOutsideIsTheExtension) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3})
    for (const Boundary boundary : kBoundaries)
      for (const double c : {-1e300, -1e10, 1e10, 1e300}) {
        const double value =
            applied(sample_axis(4, std::vector<double>{c}, interpolation, boundary), {2, 2, 2, 2}, 2)[0];
        EXPECT_NEAR(value, 2, 1e-12);
      }
}

}  // namespace
}  // namespace volpipe
