// Golden numbers are SciPy's; the spline is also solved for densely, so that the exact reflect start is the measure.
#include "stages/separable/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

const std::vector<Interpolation> kSplines{Interpolation::bspline2, Interpolation::bspline3, Interpolation::bspline4,
                                          Interpolation::bspline5};
const std::vector<Interpolation> kInterpolations{
    Interpolation::nearest,  Interpolation::linear,   Interpolation::cubic,    Interpolation::bspline2,
    Interpolation::bspline3, Interpolation::bspline4, Interpolation::bspline5, Interpolation::lanczos3};

bool is_flat(Boundary boundary) { return boundary == Boundary::nearest || boundary == Boundary::grid_constant; }

/// How the samples extend where values between them are found.
Boundary extension(Boundary boundary) {
  return boundary == Boundary::constant || boundary == Boundary::wrap ? Boundary::mirror : boundary;
}

double extended(const std::vector<double>& x, std::int64_t i, Boundary boundary, double fill) {
  const std::int64_t at = fold_index(i, std::int64_t(x.size()), extension(boundary));
  return at < 0 ? fill : x[std::size_t(at)];
}

double bspline(int order, double x) {
  if (order == 0) return x >= -0.5 && x < 0.5 ? 1 : 0;
  const double half = (order + 1) / 2.0;
  return ((half + x) * bspline(order - 1, x + 0.5) + (half - x) * bspline(order - 1, x - 0.5)) / order;
}

double cubic(double x) {
  x = std::abs(x);
  return x >= 2 ? 0 : x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2;
}

double lanczos(double x) {
  if (x == 0 || std::abs(x) >= 3) return x == 0 ? 1 : 0;
  const double u = std::acos(-1.0) * x;
  return 3 * std::sin(u) * std::sin(u / 3) / (u * u);
}

std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> x) {
  const std::size_t n = x.size();
  for (std::size_t p = 0; p < n; ++p)
    for (std::size_t i = 0; i < n; ++i) {
      if (i == p) continue;
      const double factor = a[i][p] / a[p][p];
      for (std::size_t j = p; j < n; ++j) a[i][j] -= factor * a[p][j];
      x[i] -= factor * x[p];
    }
  for (std::size_t i = 0; i < n; ++i) x[i] /= a[i][i];
  return x;
}

/// The interpolating spline by solving for coefficients that extend as the samples do: sum_i b(t - i) c[i] = x[t]. Flat
/// extensions are 60 voxels long, beyond which nothing is felt inside.
struct DenseSpline {
  int order;
  Boundary folding;
  std::int64_t pad;
  std::vector<double> coefficients;

  DenseSpline(const std::vector<double>& x, int order_, Boundary boundary, double fill)
      : order(order_),
        folding(is_flat(boundary) ? Boundary::mirror : extension(boundary)),
        pad(is_flat(boundary) ? 60 : 0) {
    const std::int64_t n = std::int64_t(x.size()) + 2 * pad;
    std::vector<double> samples;
    std::vector<std::vector<double>> a(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(n)));
    for (std::int64_t i = 0; i < n; ++i) {
      samples.push_back(extended(x, i - pad, boundary, fill));
      for (int d = -2; d <= 2; ++d) a[std::size_t(i)][std::size_t(fold_index(i + d, n, folding))] += bspline(order, d);
    }
    coefficients = solved(std::move(a), std::move(samples));
  }

  double coefficient(std::int64_t i) const {
    return coefficients[std::size_t(fold_index(i + pad, std::int64_t(coefficients.size()), folding))];
  }
  double at(double t) const {
    double sum = 0;
    for (std::int64_t i = std::int64_t(std::floor(t)) - 3; i <= std::int64_t(std::floor(t)) + 4; ++i)
      sum += coefficient(i) * bspline(order, t - double(i));
    return sum;
  }
};

std::vector<double> rough_values(std::int64_t n) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(std::sin(1.7 * double(i * i) + 1));
  return x;
}

/// Coordinates a few voxels beyond the axis; on it where what lies outside is another rule's.
std::vector<double> coordinates_around(std::int64_t n, Boundary boundary) {
  std::vector<double> at;
  const bool inside = boundary == Boundary::constant || boundary == Boundary::wrap;
  for (double t = -3.3; t < double(n) + 3; t += 0.37)
    if (!inside || (t >= 0 && t <= double(n - 1))) at.push_back(t);
  return at;
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
  for (const Interpolation interpolation : kInterpolations)
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

TEST(SampleAxis, SplinesSolveTheDenseSystem) {
  for (const Interpolation spline : kSplines)
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 5, 17}) {
        SCOPED_TRACE(testing::Message() << "order " << spline_order(spline) << ", boundary " << int(boundary)
                                        << ", size " << n);
        const std::vector<double> x = rough_values(n), at = coordinates_around(n, boundary);
        const DenseSpline dense(x, spline_order(spline), boundary, -1.5);
        std::vector<double> expected;
        for (const double t : at) expected.push_back(dense.at(t));
        expect_near(applied(sample_axis(n, at, spline, boundary, 1e-15), x, -1.5), expected, 1e-13);
        expect_near(sampled(x, at, spline, boundary, -1.5), expected, 2e-7);
      }
}

TEST(SampleAxis, KernelsReachOverTheExtension) {
  for (const auto& [interpolation, kernel] :
       {std::pair{Interpolation::cubic, &cubic}, std::pair{Interpolation::lanczos3, &lanczos}})
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 5, 17}) {
        const std::vector<double> x = rough_values(n), at = coordinates_around(n, boundary);
        std::vector<double> expected;
        for (const double t : at) {
          const double c = boundary == Boundary::nearest ? std::clamp(t, 0.0, double(n - 1)) : t;
          double sum = 0, weights = 0;
          for (std::int64_t i = std::int64_t(std::floor(c)) - 3; i <= std::int64_t(std::floor(c)) + 4; ++i) {
            sum += kernel(c - double(i)) * extended(x, i, boundary, -1.5);
            weights += kernel(c - double(i));
          }
          expected.push_back(sum / weights);
        }
        expect_near(sampled(x, at, interpolation, boundary, -1.5), expected, 1e-13);
      }
}

TEST(SampleAxis, ImpulsesAreSymmetric) {
  std::vector<double> impulse(65);
  impulse[32] = 1;
  for (const Interpolation interpolation : kInterpolations) {
    if (interpolation == Interpolation::nearest) continue;  // ties go up
    for (double d = 0; d < 30; d += 0.173) {
      const std::vector<double> pair = sampled(impulse, {32 - d, 32 + d}, interpolation, Boundary::mirror);
      EXPECT_NEAR(pair[0], pair[1], 1e-13) << int(interpolation) << " at " << d;
    }
  }
}

TEST(SampleAxis, TheEndsAreOnTheAxis) {
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      EXPECT_EQ(sampled(ramp(5), {-9e-10, 4 + 9e-10}, interpolation, boundary, -7), (std::vector<double>{1, 5}))
          << int(interpolation) << int(boundary);
}

TEST(SampleAxis, KnowsNoLabels) {
  EXPECT_THROW(sample_axis(3, std::vector<double>{0.5}, Interpolation::label_linear, Boundary::nearest), Error);
}

TEST(SampleAxis, VoxelsAreTheirOwnSamples) {
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 17, 33}) {
        std::vector<double> at;
        for (std::int64_t i = 0; i < n; ++i) at.push_back(double(i));
        EXPECT_TRUE(sample_axis(n, at, interpolation, boundary).is_identity())
            << int(interpolation) << int(boundary) << n;
      }
}

TEST(SampleAxis, ConstantsStayAndRampsStayInside) {
  for (const Interpolation interpolation : kInterpolations)
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
  for (const Interpolation interpolation : kInterpolations)
    if (interpolation != Interpolation::nearest && interpolation != Interpolation::lanczos3)
      expect_near(sampled(ramp(64), at, interpolation, Boundary::nearest), expected, 4e-6);
}

TEST(SampleAxis, SplinesAreNoWiderThanFloat32Needs) {
  std::vector<double> at;
  for (int j = 0; j < 384; ++j) at.push_back((j + 0.5) * 512 / 384 - 0.5);
  std::vector<int> taps;
  for (const Interpolation spline : kSplines) taps.push_back(sample_axis(512, at, spline, Boundary::nearest).taps());
  EXPECT_EQ(taps, (std::vector<int>{20, 26, 34, 40}));
}

TEST(PrefilterAxis, SolvesTheDenseSystem) {
  for (const Interpolation spline : kSplines)
    for (const Boundary boundary : kBoundaries)
      for (const std::int64_t n : {1, 2, 3, 5, 17})
        for (const std::int64_t pad : {std::int64_t(0), std::int64_t(3), spline_pad(spline, boundary)}) {
          SCOPED_TRACE(testing::Message() << "order " << spline_order(spline) << ", boundary " << int(boundary)
                                          << ", size " << n << ", pad " << pad);
          const std::vector<double> x = rough_values(n);
          const DenseSpline dense(x, spline_order(spline), boundary, -1.5);
          std::vector<double> expected;
          for (std::int64_t j = 0; j < n + 2 * pad; ++j) expected.push_back(dense.coefficient(j - pad));
          expect_near(applied(prefilter_axis(n, spline, boundary, pad, 1e-15), x, -1.5), expected, 1e-13);
          expect_near(applied(prefilter_axis(n, spline, boundary, pad), x, -1.5), expected, 4e-7);
        }
}

TEST(PrefilterAxis, HasSciPysCoefficients) {
  const auto coefficients = [](std::int64_t n, Interpolation spline, Boundary boundary) {
    return applied(prefilter_axis(n, spline, boundary, 0, 1e-15), ramp(n));
  };
  expect_near(coefficients(5, Interpolation::bspline3, Boundary::mirror), {3.0 / 7, 15.0 / 7, 3, 27.0 / 7, 39.0 / 7},
              1e-14);
  expect_near(coefficients(5, Interpolation::bspline3, Boundary::grid_wrap), {-0.81818, 2.45455, 3, 3.54545, 6.81818},
              5e-6);
  expect_near(coefficients(5, Interpolation::bspline5, Boundary::mirror), {-0.195739, 2.440746, 3, 3.559254, 6.195739},
              5e-7);
  // Reflect is the exact one, where SciPy before 1.18 starts with a value that it has changed (issue 24550).
  expect_near(coefficients(2, Interpolation::bspline3, Boundary::reflect), {0.75, 2.25}, 1e-14);
  expect_near(coefficients(3, Interpolation::bspline3, Boundary::reflect), {0.8, 2, 3.2}, 1e-14);
  expect_near(coefficients(2, Interpolation::bspline5, Boundary::reflect), {0.5625, 2.4375}, 1e-14);
  expect_near(coefficients(3, Interpolation::bspline5, Boundary::reflect), {0.681319, 2, 3.318681}, 5e-7);
}

TEST(PrefilterAxis, KeepsConstantsAndSingleVoxels) {
  for (const Interpolation spline : kSplines)
    for (const Boundary boundary : kBoundaries) {
      const AxisMatrix matrix = prefilter_axis(17, spline, boundary, 12);
      expect_near(applied(matrix, std::vector<double>(17, 3.0), 3), std::vector<double>(41, 3.0), 1e-14);
      EXPECT_EQ(prefilter_axis(1, spline, boundary, 0).copies(), boundary != Boundary::grid_constant);
    }
}

TEST(PrefilterAxis, SplinesOfFlatExtensionsNeedPlacesOutside) {
  EXPECT_EQ(spline_pad(Interpolation::bspline2, Boundary::nearest), 12);
  EXPECT_EQ(spline_pad(Interpolation::bspline5, Boundary::grid_constant), 12);
  EXPECT_EQ(spline_pad(Interpolation::bspline3, Boundary::constant), 0);
  EXPECT_EQ(spline_pad(Interpolation::cubic, Boundary::nearest), 0);
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
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      for (const double c : {-1e300, -1e10, 1e10, 1e300}) {
        const double value =
            applied(sample_axis(4, std::vector<double>{c}, interpolation, boundary), {2, 2, 2, 2}, 2)[0];
        EXPECT_NEAR(value, 2, 1e-12);
      }
}

}  // namespace
}  // namespace volpipe
