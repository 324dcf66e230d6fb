#include "stages/separable/sampling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kMostWeights = 268435456;  // 2^28: the rows of a filter take 16 bytes a weight

std::int64_t modulo(std::int64_t i, std::int64_t n) {
  const std::int64_t rest = i % n;
  return rest < 0 ? rest + n : rest;
}

/// After how many voxels a mirroring extension repeats.
std::int64_t fold_period(std::int64_t size, Boundary boundary) {
  return boundary == Boundary::reflect ? 2 * size : std::max<std::int64_t>(2 * size - 2, 1);
}

/// Splines taper off within 61 voxels; what lies this far outside is the extension alone.
constexpr double kFarOutside = 64;
/// Beyond this many voxels a coordinate has no digits left that would say where in a period it lies.
constexpr double kPreciseTurns = 1e14;

/// SciPy's map_coordinate: where c is looked up; empty for the fill value. The edge-extended spline is not constant
/// just outside, so there c stays.
std::optional<double> map_coordinate(double c, std::int64_t size, Interpolation interpolation, Boundary boundary) {
  const double last = double(size - 1);
  if (c >= 0 && c <= last) return c;
  const double near = std::clamp(c, -kFarOutside, last + kFarOutside);
  if (boundary == Boundary::grid_constant) return near;
  if (boundary == Boundary::constant) return std::nullopt;
  if (size == 1) return 0.0;
  switch (boundary) {
    case Boundary::nearest:
      return interpolation == Interpolation::bspline3 ? near : std::clamp(c, 0.0, last);
    case Boundary::mirror: {
      const double folded = std::fmod(std::abs(c), 2 * last);
      const double turns_at = c < 0 ? last : double(size);  // SciPy's, which decides ties of order 0
      return folded >= turns_at ? 2 * last - folded : folded;
    }
    case Boundary::reflect: {
      const double period = 2.0 * double(size);
      if (c < 0) {
        const double shifted = std::fmod(c, period);
        return shifted < -double(size) ? shifted + period : -shifted - 1;
      }
      const double shifted = std::fmod(c, period);
      return shifted >= double(size) ? period - shifted - 1 : shifted;
    }
    case Boundary::wrap:
      if (std::abs(c) > kPreciseTurns) return std::fmod(std::abs(c), last);
      return c < 0 ? c + last * (std::floor(-c / last) + 1) : c - last * std::floor(c / last);
    default:
      if (std::abs(c) > kPreciseTurns) return std::fmod(std::abs(c), double(size));
      return c - double(size) * std::floor(c / double(size));
  }
}

/// How the taps of one coordinate are folded: those of wrap and constant never leave the image except by mirroring.
Boundary tap_boundary(Boundary boundary) {
  return boundary == Boundary::constant || boundary == Boundary::wrap ? Boundary::mirror : boundary;
}

double cubic_bspline(double x) {
  x = std::abs(x);
  if (x >= 2) return 0;
  return x < 1 ? 2.0 / 3 - x * x * (2 - x) / 2 : (2 - x) * (2 - x) * (2 - x) / 6;
}

/// The cubic spline that is 1 at 0 and 0 at every other integer (Unser 1999, eq. 17).
double cardinal_cubic_spline(double x) {
  static const std::vector<double> coefficients = [] {
    constexpr double pole = std::numbers::sqrt3 - 2;
    std::vector<double> powers{-6 * pole / (1 - pole * pole)};
    for (int k = 1; k < 64; ++k) powers.push_back(powers.back() * pole);
    return powers;
  }();
  const int floor_x = int(std::floor(x));
  double sum = 0;
  for (int k = floor_x - 1; k <= floor_x + 2; ++k)
    if (std::abs(k) < 64) sum += coefficients[std::size_t(std::abs(k))] * cubic_bspline(x - k);
  return sum;
}

bool is_periodic(Boundary boundary) { return boundary == Boundary::wrap || boundary == Boundary::grid_wrap; }

/// A kernel that does the same to `size` voxels under the boundary and is no wider than their extension: what lies
/// beyond a repeating extension's period is added to its place in the period, beyond a constant one's to the outermost
/// tap.
std::vector<double> fold_kernel(std::span<const double> kernel, std::int64_t size, Boundary boundary) {
  const bool mirrors = boundary == Boundary::mirror || boundary == Boundary::reflect;
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  const std::int64_t period = mirrors ? fold_period(size, boundary) : size;
  const std::int64_t reach = mirrors || is_periodic(boundary) ? period / 2 : size;
  if (radius <= std::max(reach, size)) return {kernel.begin(), kernel.end()};
  std::vector<double> folded(std::size_t(2 * reach + 1));
  for (std::int64_t t = -radius; t <= radius; ++t) {
    const bool repeats = mirrors || is_periodic(boundary);
    const std::int64_t at = repeats ? modulo(t + reach, period) - reach : std::clamp(t, -reach, reach);
    folded[std::size_t(at + reach)] += kernel[std::size_t(t + radius)];
  }
  return folded;
}

/// A Gaussian over an edge-replicated axis of `size` voxels when its radius is many axes: the taps beyond the axis are
/// one at either end. The sum over the whole radius is its integral and the trapezoid's ends (Euler-Maclaurin; what is
/// left falls with 1 / sigma^2).
std::vector<double> wide_gaussian_kernel(double sigma, std::int64_t size, double radius) {
  const double sum = sigma * std::sqrt(2 * std::numbers::pi) * std::erf(radius / (sigma * std::numbers::sqrt2)) +
                     std::exp(-0.5 * std::pow(radius / sigma, 2));
  std::vector<double> kernel;
  double inside = 0;
  for (std::int64_t x = -size; x <= size; ++x) {
    kernel.push_back(std::exp(-0.5 * std::pow(double(x) / sigma, 2)) / sum);
    if (std::abs(x) < size) inside += kernel.back();
  }
  kernel.front() = kernel.back() = (1 - inside) / 2;
  return kernel;
}

AxisMatrix::Row taps_at(double c, Interpolation interpolation, double tolerance) {
  const double floor_c = std::floor(c);
  const std::int64_t first = std::int64_t(floor_c);
  if (interpolation == Interpolation::nearest) return {{std::int64_t(std::floor(c + 0.5)), 1.0}};
  if (interpolation == Interpolation::linear) return {{first, 1 - (c - floor_c)}, {first + 1, c - floor_c}};
  const auto reach =
      std::clamp<std::int64_t>(std::int64_t(std::log(tolerance) / std::log(2 - std::numbers::sqrt3)) + 2, 2, 60);
  AxisMatrix::Row row;
  double sum = 0;
  for (std::int64_t i = first - reach; i <= first + reach + 1; ++i) {
    const double weight = cardinal_cubic_spline(c - double(i));
    if (std::abs(weight) < tolerance) continue;
    row.push_back({i, weight});
    sum += weight;
  }
  for (auto& tap : row) tap.weight /= sum;
  return row;
}

}  // namespace

std::int64_t fold_index(std::int64_t i, std::int64_t size, Boundary boundary) {
  if (i >= 0 && i < size) return i;
  switch (boundary) {
    case Boundary::constant:
    case Boundary::grid_constant:
      return -1;
    case Boundary::nearest:
      return i < 0 ? 0 : size - 1;
    case Boundary::mirror: {
      if (size == 1) return 0;
      const std::int64_t folded = modulo(i, 2 * size - 2);
      return std::min(folded, 2 * size - 2 - folded);
    }
    case Boundary::reflect: {
      const std::int64_t folded = modulo(i, 2 * size);
      return std::min(folded, 2 * size - 1 - folded);
    }
    default:
      return modulo(i, size);
  }
}

AxisMatrix sample_axis(std::int64_t size, std::span<const double> coordinates, Interpolation interpolation,
                       Boundary boundary, double tolerance) {
  std::vector<AxisMatrix::Row> rows;
  rows.reserve(coordinates.size());
  for (const double c : coordinates) {
    const auto mapped = map_coordinate(c, size, interpolation, boundary);
    if (!mapped) {
      rows.push_back({{-1, 1.0}});
      continue;
    }
    rows.push_back(taps_at(*mapped, interpolation, tolerance));
    for (auto& tap : rows.back()) tap.index = fold_index(tap.index, size, tap_boundary(boundary));
  }
  return AxisMatrix::from_rows(size, rows, boundary == Boundary::grid_wrap);
}

AxisMatrix correlate_axis(std::int64_t size, std::span<const double> wide_kernel, Boundary boundary) {
  const std::vector<double> kernel = fold_kernel(wide_kernel, size, boundary);
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  if (double(size) * double(kernel.size()) > kMostWeights)
    throw Error(ErrorCode::unsupported, "a filter that reaches over " + std::to_string(kernel.size()) +
                                            " voxels is too wide for an axis of " + std::to_string(size) +
                                            " voxels: filter less, or in steps");
  std::vector<AxisMatrix::Row> rows(static_cast<std::size_t>(size));
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t t = 0; t < std::int64_t(kernel.size()); ++t)
      rows[std::size_t(j)].push_back({fold_index(j + t - radius, size, boundary), kernel[std::size_t(t)]});
  return AxisMatrix::from_rows(size, rows, is_periodic(boundary));
}

std::vector<double> gaussian_kernel(double sigma, int order, double truncate) {
  if (sigma < 1e-15) return {1.0};
  const int radius = int(truncate * sigma + 0.5);
  const double variance = sigma * sigma;
  std::vector<double> kernel;
  double sum = 0;
  for (int x = -radius; x <= radius; ++x) {
    kernel.push_back(std::exp(-0.5 * x * x / variance));
    sum += kernel.back();
  }
  for (int x = -radius; x <= radius; ++x) {
    const double u = x / variance;
    const double factors[] = {1.0, u, u * u - 1 / variance, u * u * u - 3 * u / variance};
    kernel[std::size_t(x + radius)] *= factors[order] / sum;
  }
  return kernel;
}

AxisMatrix antialias_axis(std::int64_t size, double factor) {
  constexpr double kTruncate = 4, kManyTaps = 65536;
  const double sigma = std::max(0.0, (factor - 1) / 2);
  const double radius = std::floor(kTruncate * sigma + 0.5);
  if (radius <= kManyTaps || radius <= double(size))
    return correlate_axis(size, gaussian_kernel(sigma, 0, kTruncate), Boundary::nearest);
  return correlate_axis(size, wide_gaussian_kernel(sigma, size, radius), Boundary::nearest);
}

}  // namespace volpipe
