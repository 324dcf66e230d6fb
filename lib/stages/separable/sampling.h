// Interpolation and boundary rules along one axis, with SciPy's names and meaning, as rows of an AxisMatrix.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/parameters.h"
#include "stages/separable/axis_matrix.h"

namespace volpipe {

enum class Interpolation : std::uint8_t {
  nearest,
  linear,
  cubic,  ///< Catmull-Rom: interpolating, 4 taps
  bspline2,
  bspline3,
  bspline4,
  bspline5,
  lanczos3,     ///< windowed sinc of 6 taps, weights normalised to sum 1
  label_linear  ///< linear weights for each label, the largest wins
};
enum class Boundary : std::uint8_t { constant, grid_constant, nearest, mirror, reflect, wrap, grid_wrap };

template <>
struct EnumNames<Interpolation> {
  static constexpr std::array names{"nearest",  "linear",   "cubic",    "bspline2",    "bspline3",
                                    "bspline4", "bspline5", "lanczos3", "label_linear"};
};
template <>
struct EnumNames<Boundary> {
  static constexpr std::array names{"constant", "grid-constant", "nearest", "mirror", "reflect", "wrap", "grid-wrap"};
};

bool is_bspline(Interpolation interpolation);
int spline_order(Interpolation spline);  ///< 2 to 5
/// Gives voxels that were there, bit for bit: nearest and label_linear.
bool moves_voxels(Interpolation interpolation);
/// The fill value lies outside: constant and grid_constant.
bool has_fill(Boundary boundary);

/// Where weights are cut when voxels are float32: about 1e-7 of the range, whatever the order.
inline constexpr double kSplineTolerance = 3e-8;

/// Where out-of-range index i lies under a filter's boundary rule (SciPy 1.1: reflect d c b a | a b c d | d c b a,
/// ...); -1 for the fill value.
std::int64_t fold_index(std::int64_t i, std::int64_t size, Boundary boundary);

/// Samples an axis of `size` voxels at the given coordinates (in voxels, 0 = centre of the first). Semantics of
/// scipy.ndimage.map_coordinates, prefilter included, with the exact reflect start (SciPy 24550); cubic and lanczos3
/// look up coordinates as linear does. Splines are cardinal ones (Unser 1999) cut where their weights fall below
/// `tolerance` and renormalised to sum 1: 20, 26, 34, 40 taps for orders 2 to 5 at the default; 1e-15 is for float64. A
/// coordinate within 1e-9 outside the axis is its end; one that is a whole number is that voxel alone. Coordinates are
/// finite.
AxisMatrix sample_axis(std::int64_t size, std::span<const double> coordinates, Interpolation interpolation,
                       Boundary boundary, double tolerance = kSplineTolerance);

/// Coefficients of the B-spline through the samples and their infinite extension by `boundary` (constant and wrap:
/// mirror), for the axis and `pad` places beyond either end: size + 2 pad of them. Rows are cut as in sample_axis and
/// sum to 1: 21, 27, 35, 43 taps for orders 2 to 5 at the default, errors of 2e-7 of the range.
AxisMatrix prefilter_axis(std::int64_t size, Interpolation spline, Boundary boundary, std::int64_t pad,
                          double tolerance = kSplineTolerance);

/// The `pad` with which the coefficients, extended by `boundary` in their turn, give the spline of the extended samples
/// as SciPy does: 12 where coefficients of a flat extension are not flat, else 0.
std::int64_t spline_pad(Interpolation interpolation, Boundary boundary);

/// Correlates an axis with `kernel` (odd length, centred) under a filter's boundary rule. Taps that reach beyond the
/// extension's period, or far outside, are folded first, so a row never holds more than about two axis lengths. Throws
/// Error(unsupported) when the rows hold more than 2^28 weights.
AxisMatrix correlate_axis(std::int64_t size, std::span<const double> kernel, Boundary boundary);

/// Gaussian taps exp(-x^2 / 2 sigma^2), radius int(truncate * sigma + 0.5), sum 1 (scipy.ndimage.gaussian_filter1d);
/// derivative orders 1 to 3 by the Hermite factor, in correlation order (a rising ramp has a positive first derivative,
/// per voxel). sigma in voxels, truncate * sigma < 2^31; sigma < 1e-15 gives the identity {1}.
std::vector<double> gaussian_kernel(double sigma, int order = 0, double truncate = 4.0);

/// Anti-aliasing before reducing an axis by `factor` > 1: Gaussian of sigma (factor - 1) / 2 voxels, edge-replicated.
/// Any finite factor.
AxisMatrix antialias_axis(std::int64_t size, double factor);

}  // namespace volpipe
