// What every op of a program computes, once for both compilers. One rounding an operation: these files are compiled
// without contraction of a * b + c (see CMakeLists.txt), fma is always explicit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "device/host_device.h"
#include "stages/pointwise/program.h"

namespace volpipe {

/// exp, log and pow of float32 by way of double: within 0.51 ulp, the same bits on both devices, and without calls or
/// branches, so that loops over them vectorise. Double goes to the device's own library.
namespace float_math {

inline constexpr double kLn2 = 0.693147180559945309417232;
inline constexpr double kLog10E = 0.434294481903251827651129;

/// exp(x) in double to 1e-11 relative, for what float32 can tell from 0 and infinity; beyond that it stays at the ends.
VOLPIPE_HD inline double exp(double x) {
  const double bounded = x < -110.0 ? -110.0 : x > 100.0 ? 100.0 : x;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer held in the low bits
  const double shifted = std::fma(bounded, 1.0 / kLn2, kShift);
  const double r = std::fma(shifted - kShift, -kLn2, bounded);
  double p = 1.0 / 362880;
  p = std::fma(p, r, 1.0 / 40320);
  p = std::fma(p, r, 1.0 / 5040);
  p = std::fma(p, r, 1.0 / 720);
  p = std::fma(p, r, 1.0 / 120);
  p = std::fma(p, r, 1.0 / 24);
  p = std::fma(p, r, 1.0 / 6);
  p = std::fma(p, r, 0.5);
  p = std::fma(p, r, 1.0);
  p = std::fma(p, r, 1.0);
  const double scaled =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52));
  return x != x ? x : scaled;
}

/// log(x) in double to 1e-13 relative for a normal x: 2 atanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
VOLPIPE_HD inline double log(double x) {
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr std::uint64_t kBias = 512;  // keeps the exponent positive, so that the shift may be unsigned
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t exponent = (bits - kRootHalf + (kBias << 52)) >> 52;
  const double m = std::bit_cast<double>(bits - ((exponent - kBias) << 52));
  const double e = std::bit_cast<double>(exponent | 0x4330000000000000) - (4503599627370496.0 + double(kBias));
  const double s = (m - 1.0) / (m + 1.0);
  const double t = s * s;
  double p = 1.0 / 19;
  p = std::fma(p, t, 1.0 / 17);
  p = std::fma(p, t, 1.0 / 15);
  p = std::fma(p, t, 1.0 / 13);
  p = std::fma(p, t, 1.0 / 11);
  p = std::fma(p, t, 1.0 / 9);
  p = std::fma(p, t, 1.0 / 7);
  p = std::fma(p, t, 1.0 / 5);
  p = std::fma(p, t, 1.0 / 3);
  p = std::fma(p, t, 1.0);
  const double finite = std::fma(e, kLn2, 2.0 * s * p);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double special = x == 0.0 ? -kInfinity : x == kInfinity ? x : std::numeric_limits<double>::quiet_NaN();
  return x > 0.0 && x < kInfinity ? finite : special;
}

/// Inlined, or else loops over them do not vectorise. Sine and cosine of the rest of x after quarter turns, in double
/// to 1e-11 relative, and the turns in the low bits. |x| is at most kMostTurned, so that the turns fit and pi / 2 in
/// two parts leaves the rest exact enough.
inline constexpr float kMostTurned = 134217728.0f;
struct QuarterTurn {
  double sine, cosine;
  std::uint64_t turns;
};

[[gnu::always_inline]] VOLPIPE_HD inline QuarterTurn quarter_turn(double x) {
  constexpr double kShift = 6755399441055744.0;  // as in exp
  constexpr double kHalfPi = 1.57079632679489655800, kHalfPiRest = 6.12323399573676603587e-17;
  const double shifted = std::fma(x, 0.636619772367581343076, kShift);
  const double turns = shifted - kShift;
  const double r = std::fma(turns, -kHalfPiRest, std::fma(turns, -kHalfPi, x));
  const double t = r * r;
  double s = -1.0 / 39916800;
  s = std::fma(s, t, 1.0 / 362880);
  s = std::fma(s, t, -1.0 / 5040);
  s = std::fma(s, t, 1.0 / 120);
  s = std::fma(s, t, -1.0 / 6);
  double c = 1.0 / 479001600;
  c = std::fma(c, t, -1.0 / 3628800);
  c = std::fma(c, t, 1.0 / 40320);
  c = std::fma(c, t, -1.0 / 720);
  c = std::fma(c, t, 1.0 / 24);
  c = std::fma(c, t, -0.5);
  return {r * std::fma(s, t, 1.0), std::fma(c, t, 1.0), std::bit_cast<std::uint64_t>(shifted)};
}

/// By masks instead of branches, so that loops vectorise.
[[gnu::always_inline]] VOLPIPE_HD inline double sine_of(const QuarterTurn& turn) {
  const std::uint64_t odd = std::uint64_t(0) - (turn.turns & 1), sign = (turn.turns & 2) << 62;
  const std::uint64_t size =
      (std::bit_cast<std::uint64_t>(turn.cosine) & odd) | (std::bit_cast<std::uint64_t>(turn.sine) & ~odd);
  return std::bit_cast<double>(size ^ sign);
}
[[gnu::always_inline]] VOLPIPE_HD inline double cosine_of(QuarterTurn turn) {
  ++turn.turns;
  return sine_of(turn);
}

/// sin, cos and tan where |x| is at most kMostTurned; anything elsewhere.
[[gnu::always_inline]] VOLPIPE_HD inline float sin_near(float x) { return float(sine_of(quarter_turn(x))); }
VOLPIPE_HD inline float cos_near(float x) { return float(cosine_of(quarter_turn(x))); }
VOLPIPE_HD inline float tan_near(float x) {
  const QuarterTurn turn = quarter_turn(x);
  return float(sine_of(turn) / cosine_of(turn));
}

/// C's pow, its special cases included. What depends on y alone is made into factors and masks, so that loops over x
/// with one y vectorise.
VOLPIPE_HD inline float pow(float x, float y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const bool whole = std::floor(y) == y;
  const bool odd = whole & (std::floor(y * 0.5f) != y * 0.5f);
  const std::uint32_t sign_mask = odd ? 0x80000000u : 0u;
  const float below_zero = whole ? 1.0f : kNan;
  const float of_nan = y == 0.0f ? 1.0f : kNan;
  const float limit_one = std::fabs(y) == kInfinity ? 1.0f : -1.0f;  // (-1) ^ infinity is 1

  const float magnitude = std::fabs(x);
  const float power = float(exp(double(y) * log(magnitude)));
  const float with_sign =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) | (std::bit_cast<std::uint32_t>(x) & sign_mask));
  const float number = ((x < 0.0f) & (magnitude < kInfinity)) ? with_sign * below_zero : with_sign;
  const float result = ((y == 0.0f) | (magnitude == limit_one) | (x == 1.0f)) ? 1.0f : number;
  return x != x ? of_nan : result;
}

}  // namespace float_math

namespace detail {

template <class T>
VOLPIPE_HD bool finite(T v) {
  return std::fabs(v) <= std::numeric_limits<T>::max();
}

template <class T>
VOLPIPE_HD T exponential(T v) {
  if constexpr (std::is_same_v<T, float>) return float(float_math::exp(v));
  else return std::exp(v);
}

template <class T>
VOLPIPE_HD T logarithm(T v) {
  if constexpr (std::is_same_v<T, float>) return float(float_math::log(v));
  else return std::log(v);
}

template <class T>
VOLPIPE_HD T logarithm10(T v) {
  if constexpr (std::is_same_v<T, float>) return float(float_math::log(v) * float_math::kLog10E);
  else return std::log10(v);
}

template <class T>
VOLPIPE_HD T raised(T v, T exponent) {
  if constexpr (std::is_same_v<T, float>) return float_math::pow(v, exponent);
  else return std::pow(v, exponent);
}

template <class T>
VOLPIPE_HD T sine(T v) {
  if constexpr (std::is_same_v<T, float>)
    return std::fabs(v) <= float_math::kMostTurned ? float_math::sin_near(v) : float(std::sin(double(v)));
  else return std::sin(v);
}

template <class T>
VOLPIPE_HD T cosine(T v) {
  if constexpr (std::is_same_v<T, float>)
    return std::fabs(v) <= float_math::kMostTurned ? float_math::cos_near(v) : float(std::cos(double(v)));
  else return std::cos(v);
}

template <class T>
VOLPIPE_HD T tangent(T v) {
  if constexpr (std::is_same_v<T, float>)
    return std::fabs(v) <= float_math::kMostTurned ? float_math::tan_near(v) : float(std::tan(double(v)));
  else return std::tan(v);
}

/// The rest of v after whole multiples of `divisor`, with the divisor's sign.
template <class T>
VOLPIPE_HD T floored_modulo(T v, T divisor) {
  const T rest = std::fmod(v, divisor);
  if (rest == T(0)) return std::copysign(rest, divisor);
  return (rest < T(0)) != (divisor < T(0)) ? rest + divisor : rest;
}

/// `magnitude` with v's sign; NaN has none, for the devices make NaN of different signs.
template <class T>
VOLPIPE_HD T with_sign_of(T v, T magnitude) {
  return v != v ? magnitude : std::copysign(magnitude, v);
}

template <class T>
VOLPIPE_HD T at_least(T v, T low) {
  return v <= low ? low : v;
}

template <class T>
VOLPIPE_HD T at_most(T v, T high) {
  return v > high ? high : v;
}

template <class T>
VOLPIPE_HD T round_half_away(T v) {
  const T whole = std::trunc(v);
  return std::fabs(v - whole) >= T(0.5) ? whole + std::copysign(T(1), v) : whole;
}

}  // namespace detail

/// One op on one voxel, for the ops that need nothing but the accumulator, an operand and b.
template <Op kOp, class T>
VOLPIPE_HD inline T apply(T acc, T x, T b) {
  using namespace detail;
  if constexpr (kOp == Op::set) return x;
  else if constexpr (kOp == Op::add) return acc + x;
  else if constexpr (kOp == Op::subtract) return acc - x;
  else if constexpr (kOp == Op::subtract_from) return x - acc;
  else if constexpr (kOp == Op::multiply) return acc * x;
  else if constexpr (kOp == Op::divide) return acc / x;
  else if constexpr (kOp == Op::divide_by) return x / acc;
  else if constexpr (kOp == Op::fma) return std::fma(acc, x, b);
  else if constexpr (kOp == Op::minimum) return at_most(acc, x);
  else if constexpr (kOp == Op::maximum) return at_least(acc, x);
  else if constexpr (kOp == Op::clamp) return at_most(at_least(acc, x), b);
  else if constexpr (kOp == Op::abs) return std::fabs(acc);
  else if constexpr (kOp == Op::negate) return -acc;
  else if constexpr (kOp == Op::floor) return std::floor(acc);
  else if constexpr (kOp == Op::ceil) return std::ceil(acc);
  else if constexpr (kOp == Op::truncate) return std::trunc(acc);
  else if constexpr (kOp == Op::round) return round_half_away(acc);
  else if constexpr (kOp == Op::exp) return exponential(acc);
  else if constexpr (kOp == Op::log) return logarithm(acc);
  else if constexpr (kOp == Op::log10) return logarithm10(acc);
  else if constexpr (kOp == Op::sqrt) return std::sqrt(acc);
  else if constexpr (kOp == Op::power) return raised(acc, x);
  else if constexpr (kOp == Op::signed_power) return with_sign_of(acc, raised(std::fabs(acc), x));
  else if constexpr (kOp == Op::less) return acc < x ? T(1) : T(0);
  else if constexpr (kOp == Op::less_equal) return acc <= x ? T(1) : T(0);
  else if constexpr (kOp == Op::greater) return acc > x ? T(1) : T(0);
  else if constexpr (kOp == Op::greater_equal) return acc >= x ? T(1) : T(0);
  else if constexpr (kOp == Op::equal) return acc == x ? T(1) : T(0);
  else if constexpr (kOp == Op::not_equal) return acc != x ? T(1) : T(0);
  else if constexpr (kOp == Op::logical_and) return ((acc != T(0)) & (x != T(0))) ? T(1) : T(0);
  else if constexpr (kOp == Op::logical_or) return ((acc != T(0)) | (x != T(0))) ? T(1) : T(0);
  else if constexpr (kOp == Op::logical_not) return acc == T(0) ? T(1) : T(0);
  else if constexpr (kOp == Op::select) return x != T(0) ? acc : b;
  else if constexpr (kOp == Op::keep_at_least) return acc >= x ? acc : b;
  else if constexpr (kOp == Op::keep_at_most) return acc <= x ? acc : b;
  else if constexpr (kOp == Op::sign) return acc > T(0) ? T(1) : acc < T(0) ? T(-1) : acc == T(0) ? T(0) : acc;
  else if constexpr (kOp == Op::is_finite) return finite(acc) ? T(1) : T(0);
  else if constexpr (kOp == Op::replace_nonfinite) return finite(acc) ? acc : x;
  else if constexpr (kOp == Op::keep_nonfinite) return finite(x) ? acc : x;
  else if constexpr (kOp == Op::least) return x != x ? x : at_most(acc, x);
  else if constexpr (kOp == Op::greatest) return x != x ? x : at_least(acc, x);
  else if constexpr (kOp == Op::sin) return sine(acc);
  else if constexpr (kOp == Op::cos) return cosine(acc);
  else if constexpr (kOp == Op::tan) return tangent(acc);
  else if constexpr (kOp == Op::atan2) return T(std::atan2(double(acc), double(x)));
  else if constexpr (kOp == Op::modulo) return floored_modulo(acc, x);
  else static_assert(kOp == Op::set, "an op without arithmetic");
}

/// True for ops that read no operand: what they do depends on acc alone.
constexpr VOLPIPE_HD bool is_unary(Op op) {
  return (op >= Op::abs && op <= Op::sqrt) || op == Op::logical_not || op == Op::sign || op == Op::is_finite ||
         (op >= Op::sin && op <= Op::tan);
}

/// True for ops that only the general machine has.
constexpr VOLPIPE_HD bool is_general(Op op) { return op >= Op::sin; }

/// True for ops that depend on the voxel's place.
constexpr VOLPIPE_HD bool asks_for_place(Op op) { return op >= Op::coordinate; }

/// True for ops with an operand x.
constexpr VOLPIPE_HD bool reads_operand(Op op) { return op > Op::to_integer && op < Op::curve && !is_unary(op); }

/// True for ops that take many instructions of a processor.
constexpr VOLPIPE_HD bool is_slow(Op op) {
  return (op >= Op::exp && op <= Op::signed_power) || op == Op::divide || op == Op::divide_by || is_general(op);
}

/// A value as an integer in [low, high], held in T, and whether it had to be changed beyond rounding.
template <class T>
struct IntegerValue {
  T value;
  bool saturated, nan;
};

template <class T>
VOLPIPE_HD inline IntegerValue<T> to_integer(T acc, T low, T high) {
  const T rounded = detail::round_half_away(acc);
  const bool nan = acc != acc;
  const T bounded = rounded < low ? low : rounded > high ? high : rounded;
  return {nan ? T(0) : bounded + T(0), bool((rounded < low) | (rounded > high)), nan};  // integers have no -0
}

template <Op kOp>
struct OpTag {
  static constexpr Op value = kOp;
};

/// visitor(OpTag<op>{}) for the ops that apply() knows; nothing for the others.
template <class Visitor>
VOLPIPE_HD inline void visit_op(Op op, Visitor&& visitor) {
#define VOLPIPE_CASE(name)      \
  case Op::name:                \
    visitor(OpTag<Op::name>{}); \
    break;
  switch (op) {
    VOLPIPE_CASE(set)
    VOLPIPE_CASE(add)
    VOLPIPE_CASE(subtract)
    VOLPIPE_CASE(subtract_from)
    VOLPIPE_CASE(multiply)
    VOLPIPE_CASE(divide)
    VOLPIPE_CASE(divide_by)
    VOLPIPE_CASE(fma)
    VOLPIPE_CASE(minimum)
    VOLPIPE_CASE(maximum)
    VOLPIPE_CASE(clamp)
    VOLPIPE_CASE(abs)
    VOLPIPE_CASE(negate)
    VOLPIPE_CASE(floor)
    VOLPIPE_CASE(ceil)
    VOLPIPE_CASE(truncate)
    VOLPIPE_CASE(round)
    VOLPIPE_CASE(exp)
    VOLPIPE_CASE(log)
    VOLPIPE_CASE(log10)
    VOLPIPE_CASE(sqrt)
    VOLPIPE_CASE(power)
    VOLPIPE_CASE(signed_power)
    VOLPIPE_CASE(less)
    VOLPIPE_CASE(less_equal)
    VOLPIPE_CASE(greater)
    VOLPIPE_CASE(greater_equal)
    VOLPIPE_CASE(equal)
    VOLPIPE_CASE(not_equal)
    VOLPIPE_CASE(logical_and)
    VOLPIPE_CASE(logical_or)
    VOLPIPE_CASE(logical_not)
    VOLPIPE_CASE(select)
    VOLPIPE_CASE(keep_at_least)
    VOLPIPE_CASE(keep_at_most)
    VOLPIPE_CASE(sign)
    VOLPIPE_CASE(is_finite)
    VOLPIPE_CASE(replace_nonfinite)
    VOLPIPE_CASE(keep_nonfinite)
    VOLPIPE_CASE(least)
    VOLPIPE_CASE(greatest)
    VOLPIPE_CASE(sin)
    VOLPIPE_CASE(cos)
    VOLPIPE_CASE(tan)
    VOLPIPE_CASE(atan2)
    VOLPIPE_CASE(modulo)
    default:
      break;
  }
#undef VOLPIPE_CASE
}

/// A program as an executor runs it: constants in its precision, the first load and the conversion to the result's type
/// written out. Passed to kernels by value.
template <class T>
struct ExecutableProgram {
  struct Step {
    Op op;
    Operand operand;
    std::uint8_t index;
    T a, b;
  };
  int size = 0;
  int registers = 0;                            ///< used
  Step steps[Program::kMaxInstructions + 3]{};  // the first load, the last conversion, a load that ends the program

  void append(Op op, Operand operand, int index, double a, double b) {
    const bool bounds = op == Op::clamp || op == Op::minimum || op == Op::maximum || op == Op::least ||
                        op == Op::greatest;  // of 0 mean +0, on either device
    steps[size++] = {op, operand, std::uint8_t(index), T(bounds ? a + 0.0 : a), T(bounds ? b + 0.0 : b)};
  }
};

template <class T>
ExecutableProgram<T> make_executable(const Program& program, DataType result_type) {
  ExecutableProgram<T> result;
  result.registers = program.register_count();
  const auto instructions = program.instructions();
  if (instructions.empty() || instructions[0].op != Op::load) result.append(Op::load, Operand::immediate, 0, 0, 0);
  for (const Instruction& i : instructions) result.append(i.op, i.operand, i.index, i.a, i.b);
  if (const IntegerRange range = integer_range(result_type); !is_floating(result_type))
    result.append(Op::to_integer, Operand::immediate, 0, range.lowest, range.highest);
  return result;
}

template <class T>
bool converts_to_integer(const ExecutableProgram<T>& program) {
  for (int i = 0; i < program.size; ++i)
    if (program.steps[i].op == Op::to_integer) return true;
  return false;
}

}  // namespace volpipe
