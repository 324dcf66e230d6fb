#include "stages/separable/sampling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>

#include "stages/separable/bspline.h"
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

/// Coordinates computed twice differ by less; whether they are on the axis should not.
constexpr double kOnTheEdge = 1e-9;
/// Splines taper off within 72 voxels; what lies this far outside is the extension alone.
constexpr double kFarOutside = 80;
/// Beyond this many voxels a coordinate has no digits left that would say where in a period it lies.
constexpr double kPreciseTurns = 1e14;

/// SciPy's map_coordinate: where c is looked up; empty for the fill value. The edge-extended spline is not constant
/// just outside, so there c stays.
std::optional<double> map_coordinate(double c, std::int64_t size, Interpolation interpolation, Boundary boundary) {
  const double last = double(size - 1);
  if (c > -kOnTheEdge && c < last + kOnTheEdge) return std::clamp(c, 0.0, last);
  const double near = std::clamp(c, -kFarOutside, last + kFarOutside);
  if (boundary == Boundary::grid_constant) return near;
  if (boundary == Boundary::constant) return std::nullopt;
  if (size == 1) return 0.0;
  switch (boundary) {
    case Boundary::nearest:
      return is_bspline(interpolation) ? near : std::clamp(c, 0.0, last);
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

/// Catmull-Rom (a = -1/2) at t of the way from voxel `first` to the next.
AxisMatrix::Row cubic_taps(std::int64_t first, double t) {
  return {{first - 1, t * (-1 + t * (2 - t)) / 2},
          {first, 1 + t * t * (3 * t - 5) / 2},
          {first + 1, t * (1 + t * (4 - 3 * t)) / 2},
          {first + 2, t * t * (t - 1) / 2}};
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

void normalize(AxisMatrix::Row& row) {
  double sum = 0;
  for (const auto& tap : row) sum += tap.weight;
  for (auto& tap : row) tap.weight /= sum;
}

AxisMatrix::Row lanczos_taps(std::int64_t first, double t) {
  AxisMatrix::Row row;
  for (std::int64_t i = -2; i <= 3; ++i) row.push_back({first + i, sinc(t - double(i)) * sinc((t - double(i)) / 3)});
  normalize(row);
  return row;
}

/// The cardinal spline's weights around c: the basis at c, each of its coefficients as the filter finds it.
AxisMatrix::Row spline_taps(double c, int order, std::span<const double> filter, double tolerance) {
  const auto [start, basis] = bspline_weights(order, c);
  const auto reach = std::int64_t(filter.size()) - 1;
  AxisMatrix::Row row;
  for (std::int64_t i = start - reach; i <= start + order + reach; ++i) {
    double weight = 0;
    for (std::int64_t m = 0; m <= order; ++m)
      if (const std::int64_t k = std::abs(start + m - i); k <= reach)
        weight += basis[std::size_t(m)] * filter[std::size_t(k)];
    if (std::abs(weight) >= tolerance) row.push_back({i, weight});
  }
  normalize(row);
  return row;
}

/// The weights of one interpolation around any coordinate, before they are folded.
class TapRule {
 public:
  TapRule(Interpolation interpolation, double tolerance) : interpolation_(interpolation), tolerance_(tolerance) {
    if (interpolation == Interpolation::label_linear)
      throw Error(ErrorCode::internal, "label_linear has no weights that serve every label");
    if (is_bspline(interpolation)) filter_ = inverse_bspline(spline_order(interpolation), kSpare * tolerance);
  }

  AxisMatrix::Row at(double c) const {
    const auto first = std::int64_t(std::floor(c));
    const double t = c - double(first);
    if (t == 0) return {{first, 1.0}};
    switch (interpolation_) {
      case Interpolation::nearest:
        return {{std::int64_t(std::floor(c + 0.5)), 1.0}};
      case Interpolation::linear:
        return {{first, 1 - t}, {first + 1, t}};
      case Interpolation::cubic:
        return cubic_taps(first, t);
      case Interpolation::lanczos3:
        return lanczos_taps(first, t);
      default:
        return spline_taps(c, spline_order(interpolation_), filter_, tolerance_);
    }
  }

 private:
  static constexpr double kSpare = 1e-2;  // so that cutting the filter does not show in the weights that stay

  Interpolation interpolation_;
  double tolerance_;
  std::vector<double> filter_;
};

/// Row j correlates `kernel` around voxel j - pad.
std::vector<AxisMatrix::Row> correlation_rows(std::int64_t size, std::span<const double> kernel, Boundary boundary,
                                              std::int64_t pad) {
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  std::vector<AxisMatrix::Row> rows(std::size_t(size + 2 * pad));
  for (std::int64_t j = 0; j < std::int64_t(rows.size()); ++j)
    for (std::int64_t t = 0; t < std::int64_t(kernel.size()); ++t)
      rows[std::size_t(j)].push_back({fold_index(j - pad + t - radius, size, boundary), kernel[std::size_t(t)]});
  return rows;
}

/// The whole filter that inverse_bspline has half of, its sum 1.
std::vector<double> prefilter_kernel(int order, double tolerance) {
  const std::vector<double> half = inverse_bspline(order, tolerance);
  std::vector<double> kernel(half.rbegin(), half.rend());
  kernel.insert(kernel.end(), half.begin() + 1, half.end());
  const double sum = std::accumulate(kernel.begin(), kernel.end(), 0.0);
  for (double& weight : kernel) weight /= sum;
  return kernel;
}

}  // namespace

bool is_bspline(Interpolation interpolation) {
  return interpolation >= Interpolation::bspline2 && interpolation <= Interpolation::bspline5;
}

bool moves_voxels(Interpolation interpolation) {
  return interpolation == Interpolation::nearest || interpolation == Interpolation::label_linear;
}

bool has_fill(Boundary boundary) { return boundary == Boundary::constant || boundary == Boundary::grid_constant; }

int spline_order(Interpolation spline) { return 2 + int(spline) - int(Interpolation::bspline2); }

std::int64_t spline_pad(Interpolation interpolation, Boundary boundary) {
  const bool flat = boundary == Boundary::nearest || boundary == Boundary::grid_constant;
  return flat && is_bspline(interpolation) ? 12 : 0;
}

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
  const TapRule rule(interpolation, tolerance);
  std::vector<AxisMatrix::Row> rows;
  rows.reserve(coordinates.size());
  for (const double c : coordinates) {
    const auto mapped = map_coordinate(c, size, interpolation, boundary);
    if (!mapped) {
      rows.push_back({{-1, 1.0}});
      continue;
    }
    rows.push_back(rule.at(*mapped));
    for (auto& tap : rows.back()) tap.index = fold_index(tap.index, size, tap_boundary(boundary));
  }
  return AxisMatrix::from_rows(size, rows, boundary == Boundary::grid_wrap);
}

AxisMatrix prefilter_axis(std::int64_t size, Interpolation spline, Boundary boundary, std::int64_t pad,
                          double tolerance) {
  const Boundary extension = tap_boundary(boundary);
  if (size == 1 && extension != Boundary::grid_constant)
    return AxisMatrix::lattice(1, std::vector<std::int64_t>(std::size_t(1 + 2 * pad), 0));
  return AxisMatrix::from_rows(
      size, correlation_rows(size, prefilter_kernel(spline_order(spline), tolerance), extension, pad),
      extension == Boundary::grid_wrap);
}

AxisMatrix correlate_axis(std::int64_t size, std::span<const double> wide_kernel, Boundary boundary) {
  const std::vector<double> kernel = fold_kernel(wide_kernel, size, boundary);
  if (double(size) * double(kernel.size()) > kMostWeights)
    throw Error(ErrorCode::unsupported, "a filter that reaches over " + std::to_string(kernel.size()) +
                                            " voxels is too wide for an axis of " + std::to_string(size) +
                                            " voxels: filter less, or in steps");
  return AxisMatrix::from_rows(size, correlation_rows(size, kernel, boundary, 0), is_periodic(boundary));
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
