// What the ops of a program that need more than the accumulator compute: curves, places, neighbours, fields, random
// draws. Once for both compilers and rounded alike (see program_ops.h).
#pragma once

#include "device/philox.h"
#include "stages/pointwise/program_ops.h"
#include "stages/separable/fold_tap.h"

namespace volpipe {

struct CurveView {
  const double *x, *y;
  double pieces_per_unit;  ///< were they of one length
  std::int32_t count;
  bool extrapolate;
};

struct FieldView {
  const double* coefficients;
  const double* weights[3];
  const std::int32_t* first[3];
  std::int32_t taps[3], count[2];  ///< count: coefficients along x and y
};

/// The constants of a program's ops and where its voxels lie, in memory of the device that runs it; passed by value.
struct PlaceTables {
  std::int64_t size[3], voxels;
  std::int64_t begin;  ///< place of the run's first value on the grid
  std::int64_t first;  ///< and in the volume
  Neighbour neighbours[Program::kMaxNeighbours];
  CurveView curves[Program::kMaxCurves];
  FieldView fields[Program::kMaxFields];
  std::uint64_t keys[Program::kMaxStreams];
};

/// With all pointers into the program's own vectors.
PlaceTables host_tables(const Program& program, const ProgramGrid& grid);

/// Index of a voxel on the grid and the component it is of.
struct Place {
  std::int64_t x, y, z, component;
};

VOLPIPE_HD inline Place place_of(const PlaceTables& tables, std::int64_t value) {
  const std::int64_t at = tables.begin + value, component = at / tables.voxels, voxel = at % tables.voxels;
  const std::int64_t row = voxel / tables.size[0];
  return {voxel % tables.size[0], row % tables.size[1], row / tables.size[1], component};
}

/// The place of the value after.
VOLPIPE_HD inline Place place_after(const PlaceTables& tables, Place place) {
  if (++place.x < tables.size[0]) return place;
  place.x = 0;
  if (++place.y < tables.size[1]) return place;
  place.y = 0;
  if (++place.z < tables.size[2]) return place;
  place.z = 0;
  ++place.component;
  return place;
}

/// Start of the piece [k, k + 1] that v lies in: the last that is not above v. Where pieces are of one length, found at
/// once.
VOLPIPE_HD inline std::int32_t piece_of(const CurveView& curve, double v) {
  const std::int32_t last = curve.count - 2;
  const double guess = (v - curve.x[0]) * curve.pieces_per_unit;
  std::int32_t low = guess >= last ? last : guess > 0 ? std::int32_t(guess) : 0;
  if ((low == 0 || v >= curve.x[low]) && (low == last || v < curve.x[low + 1])) return low;
  low = 0;
  for (std::int32_t high = last + 1; high - low > 1;) {
    const std::int32_t middle = (low + high) / 2;
    if (v >= curve.x[middle]) low = middle;
    else high = middle;
  }
  return low;
}

VOLPIPE_HD inline double curve_at(const CurveView& curve, double v) {
  const std::int32_t last = curve.count - 1;
  if (v != v) return v;
  if (!curve.extrapolate && v <= curve.x[0]) return curve.y[0];
  if (!curve.extrapolate && v >= curve.x[last]) return curve.y[last];
  const std::int32_t low = piece_of(curve, v);
  const double rise = curve.y[low + 1] - curve.y[low];
  const double share = (v - curve.x[low]) / (curve.x[low + 1] - curve.x[low]);
  return rise == 0 ? curve.y[low] : std::fma(share, rise, curve.y[low]);
}

/// What neighbour_element gives for a neighbour that is its fill.
inline constexpr std::int64_t kNoElement = std::numeric_limits<std::int64_t>::min();

/// Element that a neighbour is, from the run's first on: negative before it.
VOLPIPE_HD inline std::int64_t neighbour_element(const PlaceTables& tables, const Neighbour& neighbour,
                                                 const Place& place) {
  const std::int64_t x = fold_tap(place.x + neighbour.offset[0], tables.size[0], neighbour.boundary);
  const std::int64_t y = fold_tap(place.y + neighbour.offset[1], tables.size[1], neighbour.boundary);
  const std::int64_t z = fold_tap(place.z + neighbour.offset[2], tables.size[2], neighbour.boundary);
  if (x < 0 || y < 0 || z < 0) return kNoElement;
  return place.component * tables.voxels + (z * tables.size[1] + y) * tables.size[0] + x - tables.begin;
}

/// The field's coefficient a along x at row (y, z).
VOLPIPE_HD inline double field_row(const FieldView& field, std::int64_t y, std::int64_t z, std::int64_t a) {
  double sum = 0;
  for (std::int32_t c = 0; c < field.taps[2]; ++c) {
    const std::int64_t slice = field.first[2][z] + c;
    double row = 0;
    for (std::int32_t b = 0; b < field.taps[1]; ++b) {
      const std::int64_t line = field.first[1][y] + b;
      row = std::fma(field.weights[1][y * field.taps[1] + b],
                     field.coefficients[(slice * field.count[1] + line) * field.count[0] + a], row);
    }
    sum = std::fma(field.weights[2][z * field.taps[2] + c], row, sum);
  }
  return sum;
}

/// sum over a of X_a(x) row(a)
template <class Row>
VOLPIPE_HD inline double field_at(const FieldView& field, std::int64_t x, Row&& row) {
  double sum = 0;
  for (std::int32_t a = 0; a < field.taps[0]; ++a)
    sum = std::fma(field.weights[0][x * field.taps[0] + a], row(field.first[0][x] + a), sum);
  return sum;
}

// Random draws. Value v of a volume has word v % 4 of Philox block v / 4 under the stream's key, so the draw is the
// same wherever and in whatever pieces the volume is worked on.

VOLPIPE_HD inline PhiloxWords random_block(std::uint64_t key, std::int64_t block) {
  return philox4x32({{std::uint32_t(block), std::uint32_t(std::uint64_t(block) >> 32), 0, 0}}, key);
}

VOLPIPE_HD inline double uniform_from(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

template <class T>
VOLPIPE_HD inline T uniform_of(std::uint32_t word) {
  constexpr T kBelowOne = T(1) - std::numeric_limits<T>::epsilon() / 2;
  const T value = T(uniform_from(word));
  return value < kBelowOne ? value : kBelowOne;
}

/// Box-Muller on words 2n and 2n + 1: the even voxel takes the cosine, the odd one the sine.
VOLPIPE_HD inline double normal_of(std::uint32_t even_word, std::uint32_t odd_word, bool odd) {
  const double radius = std::sqrt(-2.0 * float_math::log(uniform_from(even_word)));
  const float_math::QuarterTurn turn = float_math::quarter_turn(6.283185307179586477 * uniform_from(odd_word));
  return radius * (odd ? float_math::sine_of(turn) : float_math::cosine_of(turn));
}

/// ln(k!) for whole k >= 0: exact products, or Stirling's series.
VOLPIPE_HD inline double log_factorial(double k) {
  if (k < 16) {
    double product = 1;
    for (double factor = 2; factor <= k; ++factor) product *= factor;
    return float_math::log(product);
  }
  const double n = k + 1, inverse = 1 / n;
  const double series = inverse * (1.0 / 12 - inverse * inverse * (1.0 / 360 - inverse * inverse / 1260));
  return std::fma(n - 0.5, float_math::log(n), 0.918938533204672742 - n + series);
}

/// A Poisson draw of that mean: by inversion below 10, by transformed rejection (Hoermann 1993, PTRS) above, from a
/// rounded normal above 1e8.
VOLPIPE_HD inline double poisson_of(std::uint64_t key, std::int64_t value, double mean) {
  if (!(mean > 0)) return mean != mean ? mean : 0;
  if (mean > std::numeric_limits<double>::max()) return mean;
  PhiloxWords counter{{std::uint32_t(value), std::uint32_t(std::uint64_t(value) >> 32), 1, 0}};
  PhiloxWords words = philox4x32(counter, key);
  if (mean > 1e8)
    return std::floor(std::fma(std::sqrt(mean), normal_of(words.word[0], words.word[1], false), mean + 0.5));
  if (mean < 10) {
    const double u = uniform_from(words.word[0], words.word[1]);
    double k = 0, share = float_math::exp(-mean), sum = share;
    while (u > sum && k < 200) {
      share *= mean / ++k;
      sum += share;
    }
    return k;
  }
  const double root = std::sqrt(mean), log_mean = float_math::log(mean);
  const double b = std::fma(2.53, root, 0.931), a = std::fma(0.02483, b, -0.059);
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), easy = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = uniform_from(words.word[0], words.word[1]) - 0.5, v = uniform_from(words.word[2], words.word[3]);
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor(std::fma(2 * a / us + b, u, mean + 0.43));
    if (us >= 0.07 && v <= easy) return k;
    const bool hopeless = k < 0 || (us < 0.013 && v > us);
    if (!hopeless &&
        float_math::log(v * inverse_alpha / (a / (us * us) + b)) <= std::fma(k, log_mean, -mean) - log_factorial(k))
      return k;
    ++counter.word[2];
    words = philox4x32(counter, key);
  }
}

}  // namespace volpipe
