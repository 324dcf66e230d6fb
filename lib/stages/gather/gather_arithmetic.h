// The arithmetic of gathers: coordinates, boundaries, weights, fields. One definition for both devices, rounded step by
// step with explicit fused multiply-adds, so that both find the same voxels: sources that include it are compiled
// without contraction (-ffp-contract=off, -fmad=false).
#pragma once

#include <cmath>
#include <cstdint>

#include "device/host_device.h"
#include "stages/gather/executors.h"
#include "stages/separable/fold_tap.h"

namespace volpipe::gather {

/// Coordinates this close to a voxel, to a tie or to the edge of the image (in voxels) are there.
inline constexpr double kSnap = 1e-9;

struct Point {
  double at[3];
};

/// Row-major 3x4.
struct Map {
  double m[3][4];
};

inline Map map_of(const Affine& affine) {
  Map map;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) map.m[row][column] = affine.linear[row][std::size_t(column)];
    map.m[row][3] = affine.offset[std::size_t(row)];
  }
  return map;
}

/// What a row of target voxels (j and k fixed) shares; then apply_to_row(map, row, i) is map(i, j, k).
VOLPIPE_HD inline Point row_of(const Map& map, double j, double k) {
  Point row;
  for (int a = 0; a < 3; ++a) row.at[a] = std::fma(map.m[a][1], j, std::fma(map.m[a][2], k, map.m[a][3]));
  return row;
}
VOLPIPE_HD inline Point apply_to_row(const Map& map, const Point& row, double i) {
  Point p;
  for (int a = 0; a < 3; ++a) p.at[a] = std::fma(map.m[a][0], i, row.at[a]);
  return p;
}
VOLPIPE_HD inline Point apply(const Map& map, const Point& p) {
  return apply_to_row(map, row_of(map, p.at[1], p.at[2]), p.at[0]);
}

/// SciPy's map_coordinate: where c is looked up on an axis of `size`; false for the fill value. Values that are not
/// finite take the fill value. With grid_constant the coordinate stays and the taps decide. Splines that reach beyond
/// the image (nearest, grid_constant) are sampled on coefficients that were extended.
VOLPIPE_HD inline bool look_up(double& c, std::int64_t size, Boundary boundary) {
  const double last = double(size - 1), n = double(size);
  if (c >= 0 && c <= last) return true;
  if (!(std::fabs(c) <= 1e300)) return false;
  if (c >= -kSnap && c <= last + kSnap) {
    c = c < 0 ? 0 : last;
    return true;
  }
  if (boundary == Boundary::constant) return false;
  if (boundary == Boundary::grid_constant) return c > -8 && c < last + 8;
  if (size == 1) {
    c = 0;
    return true;
  }
  switch (boundary) {
    case Boundary::nearest:
      c = c < 0 ? 0 : last;
      return true;
    case Boundary::mirror: {
      const double folded = std::fmod(std::fabs(c), 2 * last);
      c = folded >= (c < 0 ? last : n) ? 2 * last - folded : folded;
      return true;
    }
    case Boundary::reflect: {
      const double shifted = std::fmod(c, 2 * n);
      if (c < 0) c = shifted < -n ? shifted + 2 * n : -shifted - 1;
      else c = shifted >= n ? 2 * n - shifted - 1 : shifted;
      return true;
    }
    case Boundary::wrap:
      if (std::fabs(c) > 1e14) c = std::fmod(std::fabs(c), last);
      else c = c < 0 ? std::fma(last, std::floor(-c / last) + 1, c) : std::fma(-last, std::floor(c / last), c);
      return true;
    default:
      if (std::fabs(c) > 1e14) c = std::fmod(std::fabs(c), n);
      else c = std::fma(-n, std::floor(c / n), c);
      return true;
  }
}

/// Memory element of index v of an axis, -1 for none. `elements` is null where begin = 0 and end = size.
struct AxisView {
  std::int64_t size, offset, stride, begin, end;
  const std::int64_t* elements;
  VOLPIPE_HD std::int64_t element(std::int64_t v) const {
    return v >= begin && v < end ? offset + stride * v : elements[v];
  }
};

VOLPIPE_HD inline std::int64_t nearest_index(double c) { return std::int64_t(std::floor(c + (0.5 + kSnap))); }

/// Splits c at its lower voxel; what is within kSnap of a voxel is that voxel. `lower` may be a double: loops over many
/// coordinates stay in one type.
template <class Index>
VOLPIPE_HD inline double split(double c, Index& lower) {
  const double floor_c = std::floor(c), t = c - floor_c;
  const bool at_upper = t > 1 - kSnap;
  lower = Index(at_upper ? floor_c + 1 : floor_c);
  return t < kSnap || at_upper ? 0 : t;
}

/// (1 - t) a + t b; t = 0 does not look at b.
template <class A>
VOLPIPE_HD inline A lerp(A a, A b, A t) {
  return t == 0 ? a : std::fma(t, b, (1 - t) * a);
}

/// How many taps an interpolation has along an axis.
VOLPIPE_HD constexpr int tap_count(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::nearest:
      return 1;
    case Interpolation::linear:
    case Interpolation::label_linear:
      return 2;
    case Interpolation::bspline2:
      return 3;
    case Interpolation::cubic:
    case Interpolation::bspline3:
      return 4;
    case Interpolation::bspline4:
      return 5;
    default:
      return 6;
  }
}

/// Where the taps lie whose weights are tap_weights(interpolation, t): t in [-1/2, 1/2) around the middle tap for an
/// odd number of taps, in [0, 1) beyond the lower of the two middle taps for an even one.
template <class Index>
VOLPIPE_HD inline double first_tap(Interpolation interpolation, double c, Index& first) {
  double lower = std::floor(c + 0.5), t = c - lower;
  if (tap_count(interpolation) % 2 == 0) t = split(c, lower);
  first = Index(lower - (tap_count(interpolation) - 1) / 2);
  return t;
}

/// sin(pi x / 3) / (pi / 3) for x in [0, 1].
template <class A>
VOLPIPE_HD inline A lanczos_sine(A x) {
  const A z = A(-1.09662271123215096) * x * x;  // -(pi x / 3)^2
  A sum = A(1.0 / 39916800);                    // 1 / 11!
  if constexpr (sizeof(A) == 8) {
    sum = A(1.0 / 355687428096000);
    sum = std::fma(sum, z, A(1.0 / 1307674368000));
    sum = std::fma(sum, z, A(1.0 / 6227020800));
    sum = std::fma(sum, z, A(1.0 / 39916800));
  }
  sum = std::fma(sum, z, A(1.0 / 362880));
  sum = std::fma(sum, z, A(1.0 / 5040));
  sum = std::fma(sum, z, A(1.0 / 120));
  sum = std::fma(sum, z, A(1.0 / 6));
  return std::fma(sum, z, A(1)) * x;
}

/// Weights of the taps (linear has its own path). Sources: Unser 1999 for the B-splines, Keys 1981 (a = -1/2) for
/// cubic, Duchon 1979 for Lanczos.
template <class A>
VOLPIPE_HD inline void tap_weights(Interpolation interpolation, A t, A* w) {
  const A u = 1 - t;
  switch (interpolation) {
    case Interpolation::cubic:
      w[0] = t * std::fma(t, std::fma(A(-0.5), t, A(1)), A(-0.5));
      w[1] = std::fma(t * t, std::fma(A(1.5), t, A(-2.5)), A(1));
      w[2] = std::fma(u * u, std::fma(A(1.5), u, A(-2.5)), A(1));
      w[3] = u * std::fma(u, std::fma(A(-0.5), u, A(1)), A(-0.5));
      if (t == 0) {
        w[0] = w[2] = w[3] = 0;
        w[1] = 1;
      }
      return;
    case Interpolation::bspline2: {
      const A low = A(0.5) - t, high = A(0.5) + t;
      w[0] = A(0.5) * low * low;
      w[1] = std::fma(-t, t, A(0.75));
      w[2] = A(0.5) * high * high;
      return;
    }
    case Interpolation::bspline3:
      w[0] = u * u * u * A(1.0 / 6);
      w[1] = std::fma(A(-0.5) * t * t, 2 - t, A(2.0 / 3));
      w[2] = std::fma(A(-0.5) * u * u, 2 - u, A(2.0 / 3));
      w[3] = t * t * t * A(1.0 / 6);
      return;
    case Interpolation::bspline4: {
      const A low = A(0.5) - t, high = A(0.5) + t, y = 1 + t, z = 1 - t;
      w[0] = low * low * low * low * A(1.0 / 24);
      w[1] = std::fma(y, std::fma(y, std::fma(y, (5 - y) * A(1.0 / 6), A(-1.25)), A(5.0 / 24)), A(55.0 / 96));
      w[2] = std::fma(t * t, std::fma(t * t, A(0.25), A(-0.625)), A(115.0 / 192));
      w[3] = std::fma(z, std::fma(z, std::fma(z, (5 - z) * A(1.0 / 6), A(-1.25)), A(5.0 / 24)), A(55.0 / 96));
      w[4] = high * high * high * high * A(1.0 / 24);
      return;
    }
    case Interpolation::bspline5: {
      for (int side = 0; side < 2; ++side) {
        const A x = side == 0 ? t : u, x1 = x + 1, far = 1 - x;
        const A near_weight = std::fma(x * x, std::fma(x * x, std::fma(x, A(-1.0 / 12), A(0.25)), A(-0.5)), A(0.55));
        const A next_weight = std::fma(
            x1,
            std::fma(x1, std::fma(x1, std::fma(x1, std::fma(x1, A(1.0 / 24), A(-0.375)), A(1.25)), A(-1.75)), A(0.625)),
            A(0.425));
        w[side == 0 ? 2 : 3] = near_weight;
        w[side == 0 ? 1 : 4] = next_weight;
        w[side == 0 ? 0 : 5] = far * far * far * far * far * A(1.0 / 120);
      }
      return;
    }
    default: {  // lanczos3: sinc(x) sinc(x / 3) but for factors that the normalisation removes
      // (-1)^tap sin(pi / 3 (t + 2 - tap)), folded into the first sixth of a turn
      const A low = lanczos_sine(t), high = lanczos_sine(u), both = low + high;
      const A sines[6] = {high, -both, low, high, -both, low};
      A sum = 0, ratios[6];
      for (int tap = 0; tap < 6; ++tap) {
        const A x = t - A(tap - 2);
        ratios[tap] = sines[tap] / (x * x);
        sum += ratios[tap];
      }
      const A scale = 1 / sum;
      for (int tap = 0; tap < 6; ++tap) {
        w[tap] = ratios[tap] * scale;
        w[tap] = t == 0 ? A(tap == 2) : w[tap];
        w[tap] = t == 1 ? A(tap == 3) : w[tap];  // float rounds t to 1
      }
    }
  }
}

/// The taps first, first + 1, ... at coordinate c, and their weights.
template <class A>
VOLPIPE_HD inline void tap_weights(Interpolation interpolation, double c, std::int64_t& first, A* w) {
  tap_weights(interpolation, A(first_tap(interpolation, c, first)), w);
}

/// A vector field on the device: V is float or double.
template <class V>
struct FieldView {
  const V* vectors;
  std::int64_t size[3];
  std::int64_t component_stride;
  VOLPIPE_HD V vector(int component, std::int64_t x, std::int64_t y, std::int64_t z) const {
    return vectors[component * component_stride + (z * size[1] + y) * size[0] + x];
  }
};

/// Trilinear between the vectors, their edge half a voxel beyond, 0 outside.
template <class V>
VOLPIPE_HD inline void linear_vector(const FieldView<V>& field, const Point& p, V (&v)[3]) {
  std::int64_t lower[3], upper[3];
  V t[3];
  for (int a = 0; a < 3; ++a) {
    const double last = double(field.size[a] - 1);
    if (!(p.at[a] >= -0.5 - kSnap && p.at[a] <= last + 0.5 + kSnap)) {
      v[0] = v[1] = v[2] = 0;
      return;
    }
    t[a] = V(split(p.at[a] < 0 ? 0 : p.at[a] > last ? last : p.at[a], lower[a]));
    upper[a] = lower[a] + 1 < field.size[a] ? lower[a] + 1 : lower[a];
  }
  for (int component = 0; component < 3; ++component) {
    V plane[2];
    for (int dz = 0; dz < 2; ++dz) {
      const std::int64_t z = dz ? upper[2] : lower[2];
      const V low =
          lerp(field.vector(component, lower[0], lower[1], z), field.vector(component, upper[0], lower[1], z), t[0]);
      const V high =
          lerp(field.vector(component, lower[0], upper[1], z), field.vector(component, upper[0], upper[1], z), t[0]);
      plane[dz] = lerp(low, high, t[1]);
    }
    v[component] = lerp(plane[0], plane[1], t[2]);
  }
}

/// One axis of a cubic B-spline field: the first of four coefficients and their weights. False outside [1, size - 2],
/// and where there are not four.
template <class V>
VOLPIPE_HD inline bool spline_taps(double c, std::int64_t size, std::int64_t& first, V (&w)[4]) {
  const double last = double(size - 2);
  if (size < 4 || !(c >= 1 - kSnap && c <= last + kSnap)) return false;
  std::int64_t lower;
  double t = split(c < 1 ? 1 : c > last ? last : c, lower);
  if (lower > size - 3) {  // the upper end: the last cell, at its end
    lower = size - 3;
    t = 1;
  }
  first = lower - 1;
  tap_weights(Interpolation::bspline3, V(t), w);
  return true;
}

/// The coefficients of column x taken through y and z: what a row of voxels along x shares.
template <class V>
VOLPIPE_HD inline V spline_column(const FieldView<V>& field, int component, std::int64_t x, std::int64_t first_y,
                                  std::int64_t first_z, const V (&wy)[4], const V (&wz)[4]) {
  V column = 0;
  for (int dz = 0; dz < 4; ++dz) {
    V line = 0;
    for (int dy = 0; dy < 4; ++dy)
      line = std::fma(wy[dy], field.vector(component, x, first_y + dy, first_z + dz), line);
    column = std::fma(wz[dz], line, column);
  }
  return column;
}

template <class V>
VOLPIPE_HD inline void spline_vector(const FieldView<V>& field, const Point& p, V (&v)[3]) {
  std::int64_t first[3];
  V w[3][4];
  v[0] = v[1] = v[2] = 0;
  for (int a = 0; a < 3; ++a)
    if (!spline_taps(p.at[a], field.size[a], first[a], w[a])) return;
  for (int component = 0; component < 3; ++component)
    for (int dx = 0; dx < 4; ++dx)
      v[component] = std::fma(w[0][dx], spline_column(field, component, first[0] + dx, first[1], first[2], w[1], w[2]),
                              v[component]);
}

/// y + linear * v, in double.
template <class V>
VOLPIPE_HD inline Point moved(const Point& y, const double (&linear)[3][3], const V (&v)[3]) {
  Point result;
  for (int a = 0; a < 3; ++a)
    result.at[a] = std::fma(linear[a][0], double(v[0]),
                            std::fma(linear[a][1], double(v[1]), std::fma(linear[a][2], double(v[2]), y.at[a])));
  return result;
}

/// The label of the eight voxels around a point with the largest sum of linear weights; at a tie the nearest voxel's,
/// if it is one of them, else the first in memory order. `label(dx, dy, dz)` gives the voxels.
template <class T, class Label>
VOLPIPE_HD inline T heaviest_label(const float (&t)[3], const Label& label) {
  T labels[8];
  float weights[8];
  int nearest = 0;
  for (int corner = 0; corner < 8; ++corner) {
    float weight = 1;
    for (int a = 0; a < 3; ++a) weight *= corner >> a & 1 ? t[a] : 1 - t[a];
    const T value = label(corner & 1, corner >> 1 & 1, corner >> 2);
    labels[corner] = value;
    weights[corner] = weight;
  }
  bool all_equal = true;
  for (int corner = 1; corner < 8; ++corner) all_equal &= labels[corner] == labels[0];
  if (all_equal) return labels[0];
  for (int a = 0; a < 3; ++a) nearest |= (t[a] >= 0.5f) << a;
  T best = labels[nearest];
  float most = 0;
  for (int corner = 0; corner < 8; ++corner)
    if (labels[corner] == best) most += weights[corner];
  most *= 1 + 1e-6f;  // rounding does not break a tie
  for (int corner = 0; corner < 8; ++corner) {
    float sum = 0;
    for (int other = 0; other < 8; ++other)
      if (labels[other] == labels[corner]) sum += weights[other];
    if (sum > most) {
      most = sum;
      best = labels[corner];
    }
  }
  return best;
}

}  // namespace volpipe::gather
