// How the CPU takes voxels at points: one by one by the rules of gather_arithmetic.h wherever they lie, and in vectors
// where all taps are inside. For gather_cpu.cpp alone.
#pragma once

#ifdef __FMA__
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stages/gather/gather_arithmetic.h"

namespace volpipe::cpu {

namespace {

using gather::Point;

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kChunk = 64;  // target voxels of a row whose positions are found together

/// 32 bytes of values.
template <class A>
struct Vector;
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(32)));
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(32)));
};
template <class A>
constexpr int kVectorLanes = int(32 / sizeof(A));

/// sum += a * b, rounded once. Compilers make one instruction of the loop, but not everywhere.
template <class V>
[[gnu::always_inline]] inline void add_product(const V& a, const V& b, V& sum) {
  using A = std::remove_cvref_t<decltype(sum[0])>;
#ifdef __FMA__
  if constexpr (std::is_same_v<A, float> && sizeof(V) == 16) {
    sum = (V)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)sum);
    return;
  } else if constexpr (std::is_same_v<A, float> && sizeof(V) == 32) {
    sum = (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
    return;
  } else if constexpr (std::is_same_v<A, double> && sizeof(V) == 32) {
    sum = (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)sum);
    return;
  }
#endif
  for (int lane = 0; lane < int(sizeof(V) / sizeof(A)); ++lane) sum[lane] = std::fma(a[lane], b[lane], sum[lane]);
}

template <class V>
[[gnu::always_inline]] inline V lerp_lanes(const V& a, const V& b, const V& t) {
  V between = (1 - t) * a;
  add_product(t, b, between);
  return t == 0 ? a : between;
}

/// Voxels first[lane] and first[lane] + 1 for each lane.
template <class T, class A>
void load_pairs(const T* voxels, const std::int64_t* first, typename Vector<A>::type& low,
                typename Vector<A>::type& high) {
  for (int lane = 0; lane < kVectorLanes<A>; ++lane) {
    low[lane] = A(voxels[first[lane]]);
    high[lane] = A(voxels[first[lane] + 1]);
  }
}

typedef double Words __attribute__((vector_size(32)));
typedef std::int32_t Integers __attribute__((vector_size(32)));

template <class Word>
Word word_at(const void* voxels) {
  Word word;
  std::memcpy(&word, voxels, sizeof word);
  return word;
}

/// A pair in one load.
template <class T>
requires(sizeof(T) == 4) void load_pairs(const T* voxels, const std::int64_t* first, Vector<float>::type& low,
                                         Vector<float>::type& high) {
  typedef T Lanes __attribute__((vector_size(32)));
  const auto pair = [&](int lane) { return word_at<double>(voxels + first[lane]); };
  const auto even = (Lanes)Words{pair(0), pair(1), pair(4), pair(5)};
  const auto odd = (Lanes)Words{pair(2), pair(3), pair(6), pair(7)};
  low = __builtin_convertvector(__builtin_shufflevector(even, odd, 0, 2, 8, 10, 4, 6, 12, 14), Vector<float>::type);
  high = __builtin_convertvector(__builtin_shufflevector(even, odd, 1, 3, 9, 11, 5, 7, 13, 15), Vector<float>::type);
}
template <class T>
requires(sizeof(T) < 4) void load_pairs(const T* voxels, const std::int64_t* first, Vector<float>::type& low,
                                        Vector<float>::type& high) {
  constexpr int kBits = 8 * sizeof(T);
  const auto pair = [&](int lane) {
    return std::int32_t(
        word_at<std::conditional_t<sizeof(T) == 1, std::uint16_t, std::uint32_t>>(voxels + first[lane]));
  };
  const Integers both{pair(0), pair(1), pair(2), pair(3), pair(4), pair(5), pair(6), pair(7)};
  Integers lower = both, upper = both >> kBits;
  if constexpr (std::is_signed_v<T>) {
    lower = (both << (32 - kBits)) >> (32 - kBits);
    upper = (both << (32 - 2 * kBits)) >> (32 - kBits);
  } else {
    lower &= (1 << kBits) - 1;
    upper &= (1 << kBits) - 1;
  }
  low = __builtin_convertvector(lower, Vector<float>::type);
  high = __builtin_convertvector(upper, Vector<float>::type);
}

struct Interval {
  std::int64_t begin, end;
  bool empty() const { return begin >= end; }
  Interval within(const Interval& other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

/// Closed on both sides.
struct Range {
  double low, high;
  bool has(double c) const { return c >= low && c <= high; }
};

/// The indices i of `all` whose coordinate fma(slope, i, start) lies in `range`; it never falls, or never rises.
/// `inverse_slope` need not be exact.
Interval indices_within(const Range& range, double slope, double inverse_slope, double start, const Interval& all) {
  const auto inside = [&](std::int64_t i) { return range.has(std::fma(slope, double(i), start)); };
  Interval found = all;
  const double one = (range.low - start) * inverse_slope, other = (range.high - start) * inverse_slope;
  if (std::isfinite(one + other)) {
    const double least = double(all.begin), most = double(all.end);
    found = {std::int64_t(std::clamp(std::floor(std::min(one, other)), least, most)),
             std::int64_t(std::clamp(std::ceil(std::max(one, other)) + 1, least, most))};
  }
  while (!found.empty() && !inside(found.begin)) ++found.begin;
  while (!found.empty() && !inside(found.end - 1)) --found.end;
  if (found.empty()) return {all.begin, all.begin};
  while (found.begin > all.begin && inside(found.begin - 1)) --found.begin;
  while (found.end < all.end && inside(found.end)) ++found.end;
  return found;
}

constexpr int kMostTaps = 6;

/// Where the taps of a stretch of target voxels lie: at base + sum of scale * first + tap[a][t], `first` being the
/// first tap's voxel and t counting from it.
struct Reach {
  double base = 0, scale[3];
  std::int64_t tap[3][kMostTaps];
};

/// How an interpolation meets the image: which coordinates have all their taps inside, and what the others get.
class Source {
 public:
  static constexpr std::int64_t kOutside = -2;  ///< beside the view's -1

  /// `window` taps are read, of which the interpolation uses as many as it has.
  Source(const GatherWork& work, int window)
      : interpolation_(work.interpolation), taps_(gather::tap_count(work.interpolation)), boundary_(work.boundary) {
    const int below = (taps_ - 1) / 2;
    for (std::size_t a = 0; a < 3; ++a) {
      const SourceAxis& axis = work.source[a];
      axis_[a] = {axis.size, axis.offset, axis.stride, axis.begin, axis.end, axis.elements.data()};
      const double rounds = taps_ % 2 ? 0.5 : 0;
      // A coordinate may be taken for a voxel that is kSnap away.
      inside_[a] = {std::max(0.0, double(axis.begin + below) - rounds),
                    std::min(double(axis.size - 1), double(axis.end - window + below + 1) - rounds - 1e-6)};
      reach_.scale[a] = double(axis.stride);
      reach_.base += double(axis.offset);
      for (int tap = 0; tap < kMostTaps; ++tap) reach_.tap[a][tap] = tap * axis.stride;
    }
  }

  Boundary boundary() const { return boundary_; }
  const gather::AxisView& axis(int a) const { return axis_[a]; }
  const Range& inside(int a) const { return inside_[a]; }
  const Reach& reach() const { return reach_; }

  /// Elements of the taps at a coordinate that was looked up; kOutside, or the view's -1, where there is none.
  void elements(int a, std::int64_t first, int taps, std::int64_t* result) const {
    for (int tap = 0; tap < taps; ++tap) {
      const std::int64_t v = fold_tap(first + tap, axis_[a].size, boundary_);
      result[tap] = v < 0 ? kOutside : axis_[a].element(v);
    }
  }

  /// Lets `reach` hold the taps of an axis whose coordinate is c for a whole row, c being changed to what is looked up;
  /// false when some of them are fill values, or c is.
  bool fix_axis(int a, double& c, Reach& reach) const {
    if (!gather::look_up(c, axis_[a].size, boundary_)) return false;
    std::int64_t first;
    if (interpolation_ == Interpolation::nearest) first = gather::nearest_index(c);
    else gather::first_tap(interpolation_, c, first);
    std::int64_t found[kMostTaps];
    elements(a, first, taps_, found);
    for (int tap = 0; tap < taps_; ++tap) {
      if (found[tap] < 0) return false;
      reach.tap[a][tap] = found[tap];
    }
    reach.base -= double(axis_[a].offset);
    reach.scale[a] = 0;
    return true;
  }

 private:
  Interpolation interpolation_;
  int taps_;
  Boundary boundary_;
  gather::AxisView axis_[3];
  Range inside_[3];
  Reach reach_;
};

/// first[l] = sum[l]: doubles below 2^51 hold their integer in the low bits once 1.5 * 2^52 is added.
inline void round_to_integers(const double* sum, std::int64_t count, std::int64_t* first) {
  constexpr double kShift = 6755399441055744.0;
  for (std::int64_t l = 0; l < count; ++l)
    first[l] = std::bit_cast<std::int64_t>(sum[l] + kShift) - std::bit_cast<std::int64_t>(kShift);
}

/// On the bits, because compilers leave loops alone that would compare floating numbers.
template <class A>
bool any_zero(const A* values, std::int64_t count) {
  using Word = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
  Word any = 0;
  for (std::int64_t l = 0; l < count; ++l) any |= Word(Word(std::bit_cast<Word>(values[l]) << 1) == 0);
  return any != 0;
}

/// What the fill values are in a voxel type: rounded and saturated for integers.
template <class T>
T voxel_of(double value) {
  if constexpr (std::is_integral_v<T>) {
    const double rounded = std::isnan(value) ? 0.0 : std::round(value);
    return T(std::clamp(rounded, double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max())));
  } else {
    return T(value);
  }
}

template <std::size_t Bytes>
using Bits = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <class Word>
Word fill_bits(double value, DataType type) {
  Word bits = 0;
  visit(type, [&]<class Tag>(Tag) {
    const auto voxel = voxel_of<typename Tag::type>(value);
    std::memcpy(&bits, &voxel, std::min(sizeof bits, sizeof voxel));
  });
  return bits;
}

/// What lies between eight voxels: along x, then y, then z. `voxel(dx, dy, dz)` gives them.
template <class A, class Voxel>
A linear_sum(const A (&t)[3], const Voxel& voxel) {
  A plane[2];
  for (int dz = 0; dz < 2; ++dz) {
    A line[2];
    for (int dy = 0; dy < 2; ++dy) line[dy] = gather::lerp(A(voxel(0, dy, dz)), A(voxel(1, dy, dz)), t[0]);
    plane[dz] = gather::lerp(line[0], line[1], t[1]);
  }
  return gather::lerp(plane[0], plane[1], t[2]);
}

/// The sum over Taps^3 voxels: columns of x taken through y and z, then along x. Voxels with a weight of exactly 0 do
/// not count, whatever they hold.
template <int Taps, class A, class Voxel>
A weighted_sum(const A (&wx)[Taps], const A (&wy)[Taps], const A (&wz)[Taps], const Voxel& voxel) {
  A columns[Taps] = {};
  for (int dz = 0; dz < Taps; ++dz) {
    if (wz[dz] == 0) continue;
    A line[Taps] = {};
    for (int dy = 0; dy < Taps; ++dy) {
      if (wy[dy] == 0) continue;
      for (int dx = 0; dx < Taps; ++dx) line[dx] = std::fma(wy[dy], A(voxel(dx, dy, dz)), line[dx]);
    }
    for (int dx = 0; dx < Taps; ++dx) columns[dx] = std::fma(wz[dz], line[dx], columns[dx]);
  }
  A sum = 0;
  for (int dx = 0; dx < Taps; ++dx)
    if (wx[dx] != 0) sum = std::fma(wx[dx], columns[dx], sum);
  return sum;
}

// A sampler has
//   In, Out             types of the voxels it reads and writes
//   kWindow             taps along an axis that are read
//   at(point, voxels)   any point, by the rules of gather_arithmetic.h
//   positions(...)      what a chunk of points whose taps are inside shares over the components
//   take<Step>(...)     their values; Step is the distance of taps along x, 0 for Reach's table

template <class Word>
class NearestSampler {
 public:
  using In = Word;
  using Out = Word;
  static constexpr int kWindow = 1;
  struct Positions {
    std::int64_t first[kChunk];
  };

  explicit NearestSampler(const GatherWork& work)
      : fill(fill_bits<Word>(work.fill, work.output_type)),
        window_fill(fill_bits<Word>(work.window_fill, work.output_type)),
        view_fill_(fill_bits<Word>(work.view_fill, work.output_type)),
        source_(work, kWindow) {}

  const Source& source() const { return source_; }

  Word at(Point p, const Word* voxels) const {
    std::int64_t element = 0;
    bool no_voxel = false;
    for (int a = 0; a < 3; ++a) {
      if (!gather::look_up(p.at[a], source_.axis(a).size, source_.boundary())) return fill;
      std::int64_t found;
      source_.elements(a, gather::nearest_index(p.at[a]), 1, &found);
      if (found == Source::kOutside) return fill;
      no_voxel |= found < 0;
      element += found;
    }
    return no_voxel ? view_fill_ : voxels[element];
  }

  void positions(const double (*at)[kChunk], std::int64_t count, const Reach& reach, Positions& positions) const {
    const double base = reach.base + double(reach.tap[0][0] + reach.tap[1][0] + reach.tap[2][0]);
    double sum[kChunk];
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l)
        sum[l] = std::fma(std::floor(at[a][l] + (0.5 + gather::kSnap)), reach.scale[a], a == 0 ? base : sum[l]);
    round_to_integers(sum, count, positions.first);
  }

  template <int Step>
  void take(const Positions& positions, std::int64_t count, const Reach&, const Word* voxels, Word* out) const {
    for (std::int64_t l = 0; l < count; ++l) out[l] = voxels[positions.first[l]];
  }

  Word fill, window_fill;

 private:
  Word view_fill_;
  Source source_;
};

/// What linear and label_linear share: the eight voxels around a point.
template <class Voxel>
class Corners {
 public:
  Corners(const GatherWork& work, Voxel fill, Voxel view_fill) : source_(work, 2), fill_(fill), view_fill_(view_fill) {}
  const Source& source() const { return source_; }

  /// False for the fill value.
  template <class A>
  bool find(Point p, A (&t)[3], std::int64_t (&elements)[3][2]) const {
    for (int a = 0; a < 3; ++a) {
      if (!gather::look_up(p.at[a], source_.axis(a).size, source_.boundary())) return false;
      std::int64_t lower;
      t[a] = A(gather::split(p.at[a], lower));
      source_.elements(a, lower, 2, elements[a]);
    }
    return true;
  }
  template <class In>
  Voxel voxel(const In* voxels, const std::int64_t (&elements)[3][2], int dx, int dy, int dz) const {
    const std::int64_t x = elements[0][dx], y = elements[1][dy], z = elements[2][dz];
    const std::int64_t least = std::min({x, y, z});
    if (least < 0) return least == Source::kOutside ? fill_ : view_fill_;
    return Voxel(voxels[x + y + z]);
  }

 private:
  Source source_;
  Voxel fill_, view_fill_;
};

template <class A>
struct CornerPositions {
  std::int64_t first[kChunk];
  A t[3][kChunk];

  void find(const double (*at)[kChunk], std::int64_t count, const Reach& reach) {
    double sum[kChunk];
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l) {
        double lower;
        t[a][l] = A(gather::split(at[a][l], lower));
        sum[l] = std::fma(lower, reach.scale[a], a == 0 ? reach.base : sum[l]);
      }
    round_to_integers(sum, count, first);
  }
};

template <class T, class A>
class LinearSampler {
 public:
  using In = T;
  using Out = A;
  static constexpr int kWindow = 2;
  using Positions = CornerPositions<A>;

  explicit LinearSampler(const GatherWork& work)
      : fill(A(work.fill)), window_fill(A(work.window_fill)), corners_(work, A(work.fill), A(work.view_fill)) {}

  const Source& source() const { return corners_.source(); }

  A at(const Point& p, const T* voxels) const {
    A t[3];
    std::int64_t elements[3][2];
    if (!corners_.find(p, t, elements)) return fill;
    return linear_sum(t, [&](int dx, int dy, int dz) { return corners_.voxel(voxels, elements, dx, dy, dz); });
  }

  void positions(const double (*at)[kChunk], std::int64_t count, const Reach& reach, Positions& positions) const {
    positions.find(at, count, reach);
  }

  template <int Step>
  void take(const Positions& positions, std::int64_t count, const Reach& reach, const T* voxels, A* out) const {
    using V = typename Vector<A>::type;
    constexpr std::int64_t kWide = kVectorLanes<A>;
    for (std::int64_t piece = 0; piece < count; piece += kWide) {
      const std::int64_t l = std::min(piece, count - kWide);
      const std::int64_t* first = positions.first + l;
      const V tx = word_at<V>(positions.t[0] + l), ty = word_at<V>(positions.t[1] + l),
              tz = word_at<V>(positions.t[2] + l);
      V line[2][2];
      for (int dz = 0; dz < 2; ++dz)
        for (int dy = 0; dy < 2; ++dy) {
          const T* row = voxels + reach.tap[1][dy] + reach.tap[2][dz];
          V low, high;
          if constexpr (Step == 1) {
            load(row, first, low, high);
          } else if constexpr (Step == -1) {
            load(row - 1, first, high, low);
          } else {
            for (int lane = 0; lane < kWide; ++lane) {
              low[lane] = A(row[first[lane] + reach.tap[0][0]]);
              high[lane] = A(row[first[lane] + reach.tap[0][1]]);
            }
          }
          line[dz][dy] = lerp_lanes(low, high, tx);
        }
      const V values = lerp_lanes(lerp_lanes(line[0][0], line[0][1], ty), lerp_lanes(line[1][0], line[1][1], ty), tz);
      std::memcpy(out + l, &values, sizeof values);
    }
  }

  A fill, window_fill;

 private:
  template <class V>
  static void load(const T* voxels, const std::int64_t* first, V& low, V& high) {
    if constexpr (std::is_same_v<A, float> && sizeof(T) <= 4) load_pairs<T>(voxels, first, low, high);
    else load_pairs<T, A>(voxels, first, low, high);
  }

  Corners<A> corners_;
};

template <class Word>
class LabelSampler {
 public:
  using In = Word;
  using Out = Word;
  static constexpr int kWindow = 2;
  using Positions = CornerPositions<float>;

  explicit LabelSampler(const GatherWork& work)
      : fill(fill_bits<Word>(work.fill, work.output_type)),
        window_fill(fill_bits<Word>(work.window_fill, work.output_type)),
        corners_(work, fill, fill_bits<Word>(work.view_fill, work.output_type)) {}

  const Source& source() const { return corners_.source(); }

  Word at(const Point& p, const Word* voxels) const {
    float t[3];
    std::int64_t elements[3][2];
    if (!corners_.find(p, t, elements)) return fill;
    return gather::heaviest_label<Word>(
        t, [&](int dx, int dy, int dz) { return corners_.voxel(voxels, elements, dx, dy, dz); });
  }

  void positions(const double (*at)[kChunk], std::int64_t count, const Reach& reach, Positions& positions) const {
    positions.find(at, count, reach);
  }

  template <int Step>
  void take(const Positions& positions, std::int64_t count, const Reach& reach, const Word* voxels, Word* out) const {
    const std::int64_t step = Step != 0 ? Step : reach.tap[0][1] - reach.tap[0][0];
    const std::int64_t start = Step != 0 ? 0 : reach.tap[0][0];
    const std::int64_t rows[4] = {start + reach.tap[1][0] + reach.tap[2][0], start + reach.tap[1][1] + reach.tap[2][0],
                                  start + reach.tap[1][0] + reach.tap[2][1], start + reach.tap[1][1] + reach.tap[2][1]};
    for (std::int64_t l = 0; l < count; ++l) {
      const Word* first = voxels + positions.first[l];
      const Word label = first[rows[0]];
      Word other = 0;
      for (const std::int64_t row : rows) other |= (first[row] ^ label) | (first[row + step] ^ label);
      if (other == 0) {
        out[l] = label;
        continue;
      }
      const float t[3] = {positions.t[0][l], positions.t[1][l], positions.t[2][l]};
      out[l] = gather::heaviest_label<Word>(
          t, [&](int dx, int dy, int dz) { return first[rows[dz * 2 + dy] + (dx ? step : 0)]; });
    }
  }

  Word fill, window_fill;

 private:
  Corners<Word> corners_;
};

/// Cubic, B-splines, Lanczos: Taps^3 weighted voxels.
template <Interpolation kInterpolation, class T, class A>
class TapSampler {
 public:
  using In = T;
  using Out = A;
  static constexpr int kTaps = gather::tap_count(kInterpolation);
  static constexpr int kWindow = kTaps <= 4 ? 4 : 8;
  struct Positions {
    std::int64_t first[kChunk];
    bool zeros;  ///< some weight is 0
    alignas(64) A weights[3][kTaps][kChunk];
  };

  explicit TapSampler(const GatherWork& work)
      : fill(A(work.fill)), window_fill(A(work.window_fill)), view_fill_(A(work.view_fill)), source_(work, kWindow) {}

  const Source& source() const { return source_; }

  A at(Point p, const T* voxels) const {
    A w[3][kTaps];
    std::int64_t elements[3][kTaps];
    for (int a = 0; a < 3; ++a) {
      if (!gather::look_up(p.at[a], source_.axis(a).size, source_.boundary())) return fill;
      std::int64_t first;
      gather::tap_weights(kInterpolation, p.at[a], first, w[a]);
      source_.elements(a, first, kTaps, elements[a]);
    }
    std::int64_t least = 0;
    for (const auto& axis : elements) least = std::min(least, *std::min_element(axis, axis + kTaps));
    if (least >= 0)
      return weighted_sum<kTaps, A>(w[0], w[1], w[2], [&](int dx, int dy, int dz) {
        return A(voxels[elements[2][dz] + elements[1][dy] + elements[0][dx]]);
      });
    return weighted_sum<kTaps, A>(w[0], w[1], w[2], [&](int dx, int dy, int dz) {
      const std::int64_t x = elements[0][dx], y = elements[1][dy], z = elements[2][dz];
      const std::int64_t lowest = std::min({x, y, z});
      if (lowest < 0) return lowest == Source::kOutside ? fill : view_fill_;
      return A(voxels[x + y + z]);
    });
  }

  [[gnu::flatten]] void positions(const double (*at)[kChunk], std::int64_t count, const Reach& reach,
                                  Positions& positions) const {
    double sum[kChunk];
    bool zeros = false;
    for (int a = 0; a < 3; ++a) {
      alignas(64) A t[kChunk];
      for (std::int64_t l = 0; l < count; ++l) {
        double first;
        t[l] = A(gather::first_tap(kInterpolation, at[a][l], first));
        sum[l] = std::fma(first, reach.scale[a], a == 0 ? reach.base : sum[l]);
      }
      for (std::int64_t l = 0; l < count; ++l) {
        A w[kTaps];
        gather::tap_weights(kInterpolation, t[l], w);
        for (int tap = 0; tap < kTaps; ++tap) positions.weights[a][tap][l] = w[tap];
      }
      for (int tap = 0; tap < kTaps; ++tap) zeros |= any_zero(positions.weights[a][tap], count);
    }
    positions.zeros = zeros;
    round_to_integers(sum, count, positions.first);
  }

  template <int Step>
  void take(const Positions& positions, std::int64_t count, const Reach& reach, const T* voxels, A* out) const {
    if (positions.zeros) take_voxels<Step, true>(positions, count, reach, voxels, out);
    else take_voxels<Step, false>(positions, count, reach, voxels, out);
  }

  A fill, window_fill;

 private:
  typedef A Lanes __attribute__((vector_size(kWindow * sizeof(A))));

  /// kWindow voxels from `row` on, in the order of the taps.
  template <int Step>
  static void load(const T* row, const std::int64_t (&tap)[kMostTaps], Lanes& lanes) {
    if constexpr (Step != 0) {
      typedef T Loaded __attribute__((vector_size(kWindow * sizeof(T))));
      Loaded loaded;
      std::memcpy(&loaded, Step < 0 ? row - (kWindow - 1) : row, sizeof loaded);
      if constexpr (Step < 0) {
        if constexpr (kWindow == 4) loaded = __builtin_shufflevector(loaded, loaded, 3, 2, 1, 0);
        else loaded = __builtin_shufflevector(loaded, loaded, 7, 6, 5, 4, 3, 2, 1, 0);
      }
      lanes = __builtin_convertvector(loaded, Lanes);
    } else {
      for (int dx = 0; dx < kTaps; ++dx) lanes[dx] = A(row[tap[dx]]);
    }
  }

  template <int Step, bool Zeros>
  void take_voxels(const Positions& positions, std::int64_t count, const Reach& reach, const T* voxels, A* out) const {
    const Reach taps = reach;
    alignas(64) A columns[kChunk][kWindow];
    for (std::int64_t l = 0; l < count; ++l) {
      const T* first = voxels + positions.first[l];
      Lanes wy[kTaps], sum{};
      for (int dy = 0; dy < kTaps; ++dy) wy[dy] = positions.weights[1][dy][l] - Lanes{};
      for (int dz = 0; dz < kTaps; ++dz) {
        if (Zeros && positions.weights[2][dz][l] == 0) continue;
        const T* plane = first + taps.tap[2][dz];
        Lanes line{};
        for (int dy = 0; dy < kTaps; ++dy) {
          if (Zeros && positions.weights[1][dy][l] == 0) continue;
          Lanes row{};
          load<Step>(plane + taps.tap[1][dy], taps.tap[0], row);
          add_product(wy[dy], row, line);
        }
        const Lanes wz = positions.weights[2][dz][l] - Lanes{};
        add_product(wz, line, sum);
      }
      std::memcpy(columns[l], &sum, sizeof sum);
    }
    for (std::int64_t l = 0; l < count; ++l) {
      A sum = 0;
      for (int dx = 0; dx < kTaps; ++dx) {
        const A wx = positions.weights[0][dx][l], with = std::fma(wx, columns[l][dx], sum);
        sum = Zeros && wx == 0 ? sum : with;
      }
      out[l] = sum;
    }
  }

  A view_fill_;
  Source source_;
};

/// Calls inside(begin, count, points) for stretches of kLanes points or more whose taps are all inside, each(l) for
/// every other point.
template <class Inside, class Each>
void split_chunk(const Source& source, const double (*at)[kChunk], std::int64_t count, const Inside& inside,
                 const Each& each) {
  bool is_inside[kChunk];
  for (std::int64_t l = 0; l < count; ++l)
    is_inside[l] = source.inside(0).has(at[0][l]) && source.inside(1).has(at[1][l]) && source.inside(2).has(at[2][l]);
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && is_inside[end] == is_inside[begin]) ++end;
    if (!is_inside[begin] || end - begin < kLanes) {
      for (std::int64_t l = begin; l < end; ++l) each(l);
    } else if (begin == 0) {
      inside(begin, end - begin, at);
    } else {
      double points[3][kChunk];
      for (int a = 0; a < 3; ++a) std::copy(at[a] + begin, at[a] + end, points[a]);
      inside(begin, end - begin, points);
    }
  }
}

}  // namespace

}  // namespace volpipe::cpu
