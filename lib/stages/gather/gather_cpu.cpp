#ifdef __FMA__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "stages/gather/gather_arithmetic.h"
#include "stages/gather/point_map.h"

namespace volpipe::cpu {

namespace {

using gather::Point;

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kChunk = 64;  // target voxels of a row whose positions are found together
// What a tile of the target reads stays in the second-level cache however the source is turned.
constexpr Index3 kTile{256, 8, 8};

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
  static constexpr std::int64_t kOutside = -2;

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

  /// Elements of the taps at a coordinate that was looked up; kOutside, or -1 for no voxel (AxisView).
  void elements(int a, std::int64_t first, int taps, std::int64_t* result) const {
    for (int tap = 0; tap < taps; ++tap) {
      const std::int64_t v = gather::fold_tap(first + tap, axis_[a].size, boundary_);
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

/// One field, applied to the points of a chunk.
template <class V>
class Field {
 public:
  explicit Field(const FieldWork& work) : work_(work), to_grid_(gather::map_of(work.to_grid)) {
    view_.vectors = static_cast<const V*>(work.vectors);
    std::copy_n(work.size.data(), 3, view_.size);
    view_.component_stride = work.size[0] * work.size[1] * work.size[2];
    const double sign = work.use == FieldWork::Use::undo ? -1 : 1;
    for (int row = 0; row < 3; ++row)
      for (int column = 0; column < 3; ++column) linear_[row][column] = sign * work.linear[row][std::size_t(column)];
    along_rows_ = work.from_target && work.bspline && to_grid_.m[1][0] == 0 && to_grid_.m[2][0] == 0;
  }

  /// Moves the points of target voxels (i, j, k), (i + 1, j, k), ...
  void move(std::int64_t i, double j, double k, std::int64_t count, double (*at)[kChunk]) const {
    if (along_rows_ && move_along_row(i, j, k, count, at)) return;
    if (work_.use == FieldWork::Use::undo) {
      for (std::int64_t l = 0; l < count; ++l) {
        const Point moved = undone({{at[0][l], at[1][l], at[2][l]}});
        for (int a = 0; a < 3; ++a) at[a][l] = moved.at[a];
      }
      return;
    }
    double grid[3][kChunk];
    find_in_grid(i, j, k, count, at, grid);
    V vectors[3][kChunk];
    if (work_.bspline) {
      for (std::int64_t l = 0; l < count; ++l) {
        V v[3];
        gather::spline_vector(view_, {{grid[0][l], grid[1][l], grid[2][l]}}, v);
        for (int a = 0; a < 3; ++a) vectors[a][l] = v[a];
      }
    } else {
      linear_vectors(grid, count, vectors);
    }
    add_vectors(vectors, count, at);
  }

 private:
  using Lanes = typename Vector<V>::type;

  void find_in_grid(std::int64_t i, double j, double k, std::int64_t count, const double (*at)[kChunk],
                    double (*grid)[kChunk]) const {
    if (work_.from_target) {
      const Point row = gather::row_of(to_grid_, j, k);
      const double first = double(i);
      for (int a = 0; a < 3; ++a)
        for (int l = 0; l < int(count); ++l) grid[a][l] = std::fma(to_grid_.m[a][0], first + l, row.at[a]);
    } else {
      for (std::int64_t l = 0; l < count; ++l) {
        const Point p = gather::apply(to_grid_, {{at[0][l], at[1][l], at[2][l]}});
        for (int a = 0; a < 3; ++a) grid[a][l] = p.at[a];
      }
    }
  }

  /// gather::moved for a chunk.
  void add_vectors(const V (*vectors)[kChunk], std::int64_t count, double (*at)[kChunk]) const {
    if (work_.use == FieldWork::Use::replace)
      for (int a = 0; a < 3; ++a) std::fill_n(at[a], count, work_.offset[std::size_t(a)]);
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l)
        at[a][l] = std::fma(
            linear_[a][0], double(vectors[0][l]),
            std::fma(linear_[a][1], double(vectors[1][l]), std::fma(linear_[a][2], double(vectors[2][l]), at[a][l])));
  }

  /// gather::linear_vector for a chunk.
  void linear_vectors(const double (*grid)[kChunk], std::int64_t count, V (*vectors)[kChunk]) const {
    const std::int64_t stride[3] = {1, view_.size[0], view_.size[0] * view_.size[1]};
    const std::int64_t padded = (count + kLanes - 1) / kLanes * kLanes;  // to whole vectors
    V t[3][kChunk];
    double sum[kChunk] = {}, inside[kChunk];
    std::int64_t first[kChunk], step[3][kChunk];
    bool between[3] = {};  // some point does not lie at vectors of this axis
    std::fill_n(inside, padded, 1);
    for (int a = 0; a < 3; ++a) {
      const double last = double(view_.size[a] - 1), scale = double(stride[a]);
      double upper[kChunk] = {};
      bool off = false;
      for (std::int64_t l = 0; l < count; ++l) {
        const double c = grid[a][l];
        const bool has = c >= -0.5 - gather::kSnap && c <= last + 0.5 + gather::kSnap;
        const double within = !has || c < 0 ? 0 : c > last ? last : c;
        double lower;
        t[a][l] = V(gather::split(within, lower));
        off |= t[a][l] != 0;
        inside[l] = has ? inside[l] : 0;
        upper[l] = lower < last ? scale : 0;
        sum[l] = std::fma(lower, scale, sum[l]);
      }
      std::fill(t[a] + count, t[a] + padded, V(0));
      between[a] = off;
      round_to_integers(upper, padded, step[a]);
    }
    round_to_integers(sum, padded, first);
    const bool any_between = between[0] || between[1] || between[2];
    for (int component = 0; component < 3; ++component) {
      const V* field = view_.vectors + component * view_.component_stride;
      if (any_between) {
        for (std::int64_t l = 0; l < padded; l += kVectorLanes<V>)
          between_vectors(field, first + l, {step[0] + l, step[1] + l, step[2] + l}, {t[0] + l, t[1] + l, t[2] + l},
                          vectors[component] + l);
      } else {
        for (std::int64_t l = 0; l < count; ++l) vectors[component][l] = field[first[l]];
      }
      for (std::int64_t l = 0; l < count; ++l) vectors[component][l] = inside[l] != 0 ? vectors[component][l] : 0;
    }
  }

  /// Trilinear for one vector of points.
  static void between_vectors(const V* field, const std::int64_t* first, const std::array<const std::int64_t*, 3>& step,
                              const std::array<const V*, 3>& t, V* values) {
    const Lanes tx = word_at<Lanes>(t[0]), ty = word_at<Lanes>(t[1]), tz = word_at<Lanes>(t[2]);
    Lanes plane[2];
    for (int dz = 0; dz < 2; ++dz) {
      Lanes line[2];
      for (int dy = 0; dy < 2; ++dy) {
        Lanes low, high;
        for (int lane = 0; lane < kVectorLanes<V>; ++lane) {
          const V* voxel = field + first[lane] + dy * step[1][lane] + dz * step[2][lane];
          low[lane] = voxel[0];
          high[lane] = voxel[step[0][lane]];
        }
        line[dy] = lerp_lanes(low, high, tx);
      }
      plane[dz] = lerp_lanes(line[0], line[1], ty);
    }
    const Lanes sum = lerp_lanes(plane[0], plane[1], tz);
    std::memcpy(values, &sum, sizeof sum);
  }

  void vector(const Point& grid, V (&v)[3]) const {
    if (work_.bspline) gather::spline_vector(view_, grid, v);
    else gather::linear_vector(view_, grid, v);
  }

  Point origin(const Point& p) const {
    return work_.use == FieldWork::Use::replace ? Point{{work_.offset[0], work_.offset[1], work_.offset[2]}} : p;
  }

  /// Once a step changes nothing the steps that are left would not either.
  Point undone(const Point& p) const {
    Point q = p;
    for (int step = 0; step < FieldStep::kUndoIterations; ++step) {
      V v[3];
      vector(gather::apply(to_grid_, q), v);
      const Point next = gather::moved(p, linear_, v);
      const bool stays = next.at[0] == q.at[0] && next.at[1] == q.at[1] && next.at[2] == q.at[2];
      q = next;
      if (stays) break;
    }
    return q;
  }

  /// The columns of coefficients that a row shares are taken through y and z once. False when the row crosses more of
  /// them than it has voxels.
  bool move_along_row(std::int64_t i, double j, double k, std::int64_t count, double (*at)[kChunk]) const {
    constexpr std::int64_t kMostColumns = kChunk + 8;
    const Point row = gather::row_of(to_grid_, j, k);
    std::int64_t first_y, first_z, first[kChunk], lowest = view_.size[0], highest = -1;
    V wy[4], wz[4], w[kChunk][4];
    const bool inside = gather::spline_taps(row.at[1], view_.size[1], first_y, wy) &&
                        gather::spline_taps(row.at[2], view_.size[2], first_z, wz);
    for (std::int64_t l = 0; l < count; ++l) {
      const double x = std::fma(to_grid_.m[0][0], double(i + l), row.at[0]);
      if (!inside || !gather::spline_taps(x, view_.size[0], first[l], w[l])) {
        first[l] = -1;
        continue;
      }
      lowest = std::min(lowest, first[l]);
      highest = std::max(highest, first[l] + 4);
    }
    if (highest - lowest > kMostColumns) return false;
    V columns[3][kMostColumns];
    for (int component = 0; component < 3 && highest > lowest; ++component)
      take_columns(component, lowest, highest - lowest, first_y, first_z, wy, wz, columns[component]);
    for (std::int64_t l = 0; l < count; ++l) {
      V v[3] = {0, 0, 0};
      if (first[l] >= 0)
        for (int component = 0; component < 3; ++component)
          for (int dx = 0; dx < 4; ++dx)
            v[component] = std::fma(w[l][dx], columns[component][first[l] - lowest + dx], v[component]);
      const Point moved = gather::moved(origin({{at[0][l], at[1][l], at[2][l]}}), linear_, v);
      for (int a = 0; a < 3; ++a) at[a][l] = moved.at[a];
    }
    return true;
  }

  /// gather::spline_column for `count` columns.
  void take_columns(int component, std::int64_t x, std::int64_t count, std::int64_t first_y, std::int64_t first_z,
                    const V (&wy)[4], const V (&wz)[4], V* columns) const {
    std::fill_n(columns, count, V(0));
    for (int dz = 0; dz < 4; ++dz) {
      const V* rows[4];
      for (int dy = 0; dy < 4; ++dy)
        rows[dy] = view_.vectors + component * view_.component_stride +
                   ((first_z + dz) * view_.size[1] + first_y + dy) * view_.size[0] + x;
      for (std::int64_t c = 0; c < count; ++c) {
        V line = 0;
        for (int dy = 0; dy < 4; ++dy) line = std::fma(wy[dy], rows[dy][c], line);
        columns[c] = std::fma(wz[dz], line, columns[c]);
      }
    }
  }

  const FieldWork& work_;
  gather::Map to_grid_;
  gather::FieldView<V> view_;
  double linear_[3][3];
  bool along_rows_;
};

template <class Sampler>
class Gather {
 public:
  using In = typename Sampler::In;
  using Out = typename Sampler::Out;

  Gather(const GatherWork& work, const void* input, void* output)
      : work_(work),
        sampler_(work),
        start_(gather::map_of(work.start)),
        input_(static_cast<const In*>(input)),
        output_(static_cast<Out*>(output)),
        target_voxels_(work.target_size[0] * work.target_size[1] * work.target_size[2]) {
    for (int a = 0; a < 3; ++a) inverse_slope_[a] = 1 / start_.m[a][0];
    const std::int64_t stride = work.source[0].stride;
    step_ = stride == 1 || stride == -1 ? int(stride) : 0;
  }

  void run(DeviceContext& context) const {
    Index3 tiles;
    for (std::size_t a = 0; a < 3; ++a) tiles[a] = (work_.target_size[a] + kTile[a] - 1) / kTile[a];
    context.parallel(tiles[0] * tiles[1] * tiles[2], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile)
        gather_tile({tile % tiles[0], tile / tiles[0] % tiles[1], tile / (tiles[0] * tiles[1])});
    });
  }

 private:
  void gather_tile(const Index3& tile) const {
    Interval part[3];
    for (std::size_t a = 0; a < 3; ++a)
      part[a] = {tile[a] * kTile[a], std::min((tile[a] + 1) * kTile[a], work_.target_size[a])};
    const Interval window = Interval{work_.window_begin[0], work_.window_end[0]}.within(part[0]);
    for (std::int64_t k = part[2].begin; k < part[2].end; ++k)
      for (std::int64_t j = part[1].begin; j < part[1].end; ++j) {
        Out* row = output_ + (k * work_.target_size[1] + j) * work_.target_size[0];
        const bool in_window = !window.empty() && j >= work_.window_begin[1] && j < work_.window_end[1] &&
                               k >= work_.window_begin[2] && k < work_.window_end[2];
        if (!in_window) {
          fill(row, part[0], sampler_.window_fill);
          continue;
        }
        fill(row, {part[0].begin, window.begin}, sampler_.window_fill);
        fill(row, {window.end, part[0].end}, sampler_.window_fill);
        if (work_.fields.empty()) gather_affine_row(row, window, double(j), double(k));
        else gather_moved_row(row, window, double(j), double(k));
      }
  }

  void fill(Out* row, const Interval& part, Out value) const {
    if (part.empty()) return;
    for (std::int64_t c = 0; c < work_.components; ++c)
      std::fill_n(row + c * target_voxels_ + part.begin, part.end - part.begin, value);
  }

  /// Which coordinates may be looked up at all.
  Range image_range(int a) const {
    const double last = double(sampler_.source().axis(a).size - 1);
    switch (work_.boundary) {
      case Boundary::constant:
        return {-gather::kSnap, last + gather::kSnap};
      case Boundary::grid_constant:
        return {-8, last + 8};
      default:
        return {-1e300, 1e300};
    }
  }

  void gather_affine_row(Out* out, const Interval& window, double j, double k) const {
    const Source& source = sampler_.source();
    const Point row = gather::row_of(start_, j, k);
    Interval image = window;
    for (int a = 0; a < 3 && !image.empty(); ++a)
      image = indices_within(image_range(a), start_.m[a][0], inverse_slope_[a], row.at[a], image);
    fill(out, {window.begin, image.empty() ? window.end : image.begin}, sampler_.fill);
    if (image.empty()) return;
    fill(out, {image.end, window.end}, sampler_.fill);

    Interval inner = image;
    Reach reach = source.reach();
    Point looked_up = row;
    int step = step_;
    for (int a = 0; a < 3 && !inner.empty(); ++a) {
      const double slope = start_.m[a][0];
      if (slope != 0 || source.inside(a).has(row.at[a])) {
        inner = indices_within(source.inside(a), slope, inverse_slope_[a], row.at[a], inner);
      } else if (source.fix_axis(a, looked_up.at[a], reach)) {
        if (a == 0) step = 0;
      } else {
        inner.end = inner.begin;
      }
    }
    if (inner.end - inner.begin < kLanes) inner = {image.end, image.end};
    gather_edge(out, {image.begin, inner.begin}, row);
    gather_edge(out, {inner.end, image.end}, row);
    double at[3][kChunk];
    for (std::int64_t i = inner.begin; i < inner.end; i += kChunk) {
      i = std::min(i, inner.end - kLanes);
      const std::int64_t count = std::min(inner.end - i, kChunk);
      find_points(looked_up, i, count, at);
      gather_inside(out + i, at, count, reach, step);
    }
  }

  void find_points(const Point& row, std::int64_t i, std::int64_t count, double (*at)[kChunk]) const {
    const double first = double(i);
    for (int a = 0; a < 3; ++a)
      for (int l = 0; l < int(count); ++l) at[a][l] = std::fma(start_.m[a][0], first + l, row.at[a]);
  }

  void gather_edge(Out* out, const Interval& part, const Point& row) const {
    for (std::int64_t i = part.begin; i < part.end; ++i)
      gather_anywhere(out + i, gather::apply_to_row(start_, row, double(i)));
  }

  void gather_moved_row(Out* out, const Interval& window, double j, double k) const {
    const Point row = gather::row_of(start_, j, k);
    double at[3][kChunk];
    for (std::int64_t i = window.begin; i < window.end; i += kChunk) {
      const std::int64_t count = std::min(window.end - i, kChunk);
      find_points(row, i, count, at);
      for (const FieldWork& field : work_.fields) {
        if (field.type == DataType::float64) Field<double>(field).move(i, j, k, count, at);
        else Field<float>(field).move(i, j, k, count, at);
      }
      gather_chunk(out + i, at, count);
    }
  }

  /// Points of which it is not known where they lie.
  void gather_chunk(Out* out, const double (*at)[kChunk], std::int64_t count) const {
    const Source& source = sampler_.source();
    bool inside[kChunk];
    std::fill_n(inside, count, true);
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l) inside[l] &= source.inside(a).has(at[a][l]);
    for (std::int64_t l = 0; l < count;) {
      std::int64_t end = l;
      while (end < count && inside[end] == inside[l]) ++end;
      if (inside[l] && end - l >= kLanes) {
        double stretch[3][kChunk];
        const double(*points)[kChunk] = at;
        if (l > 0) {
          for (int a = 0; a < 3; ++a) std::copy(at[a] + l, at[a] + end, stretch[a]);
          points = stretch;
        }
        gather_inside(out + l, points, end - l, source.reach(), step_);
      } else {
        for (std::int64_t each = l; each < end; ++each)
          gather_anywhere(out + each, {{at[0][each], at[1][each], at[2][each]}});
      }
      l = end;
    }
  }

  void gather_anywhere(Out* out, const Point& p) const {
    for (std::int64_t c = 0; c < work_.components; ++c)
      out[c * target_voxels_] = sampler_.at(p, input_ + c * work_.component_stride);
  }

  /// At least kLanes points, every tap of which is a voxel.
  void gather_inside(Out* out, const double (*at)[kChunk], std::int64_t count, const Reach& reach, int step) const {
    typename Sampler::Positions positions;
    sampler_.positions(at, count, reach, positions);
    for (std::int64_t c = 0; c < work_.components; ++c) {
      const In* voxels = input_ + c * work_.component_stride;
      Out* values = out + c * target_voxels_;
      if (step > 0) sampler_.template take<1>(positions, count, reach, voxels, values);
      else if (step < 0) sampler_.template take<-1>(positions, count, reach, voxels, values);
      else sampler_.template take<0>(positions, count, reach, voxels, values);
    }
  }

  const GatherWork& work_;
  Sampler sampler_;
  gather::Map start_;
  double inverse_slope_[3];
  const In* input_;
  Out* output_;
  std::int64_t target_voxels_;
  int step_;
};

template <template <class> class Sampler>
void gather_bits(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  switch (size_of(work.output_type)) {
    case 1:
      return Gather<Sampler<std::uint8_t>>(work, input, output).run(context);
    case 2:
      return Gather<Sampler<std::uint16_t>>(work, input, output).run(context);
    case 4:
      return Gather<Sampler<std::uint32_t>>(work, input, output).run(context);
    default:
      return Gather<Sampler<std::uint64_t>>(work, input, output).run(context);
  }
}

void gather_linear(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  visit(work.input_type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if (work.output_type == DataType::float64) Gather<LinearSampler<T, double>>(work, input, output).run(context);
    else Gather<LinearSampler<T, float>>(work, input, output).run(context);
  });
}

template <Interpolation kInterpolation>
void gather_taps(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  const bool from_double = work.input_type == DataType::float64, to_double = work.output_type == DataType::float64;
  if (from_double && to_double) Gather<TapSampler<kInterpolation, double, double>>(work, input, output).run(context);
  else if (from_double) Gather<TapSampler<kInterpolation, double, float>>(work, input, output).run(context);
  else if (to_double) Gather<TapSampler<kInterpolation, float, double>>(work, input, output).run(context);
  else Gather<TapSampler<kInterpolation, float, float>>(work, input, output).run(context);
}

}  // namespace

void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  switch (work.interpolation) {
    case Interpolation::nearest:
      return gather_bits<NearestSampler>(context, work, input, output);
    case Interpolation::label_linear:
      return gather_bits<LabelSampler>(context, work, input, output);
    case Interpolation::linear:
      return gather_linear(context, work, input, output);
    case Interpolation::cubic:
      return gather_taps<Interpolation::cubic>(context, work, input, output);
    case Interpolation::bspline2:
      return gather_taps<Interpolation::bspline2>(context, work, input, output);
    case Interpolation::bspline3:
      return gather_taps<Interpolation::bspline3>(context, work, input, output);
    case Interpolation::bspline4:
      return gather_taps<Interpolation::bspline4>(context, work, input, output);
    case Interpolation::bspline5:
      return gather_taps<Interpolation::bspline5>(context, work, input, output);
    case Interpolation::lanczos3:
      return gather_taps<Interpolation::lanczos3>(context, work, input, output);
  }
}

}  // namespace volpipe::cpu
