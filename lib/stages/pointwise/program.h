// The register machine of the pointwise stages: a short program that every voxel runs, on either device, without a
// compiler at run time. Consecutive stages append to one program, so a chain costs one pass over memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/context.h"
#include "stages/separable/sampling.h"
#include "volume/volume.h"

namespace volpipe {

/// What one instruction does to the accumulator acc. x is the instruction's operand (its immediate `a`, or a register),
/// b its second immediate. Comparisons give 1 or 0; for and/or/not/select 0 is false and all else, NaN too, is true.
enum class Op : std::uint8_t {
  load,               ///< acc = voxel of input `index`
  store,              ///< register `index` = acc
  to_integer,         ///< rounded half away from zero, saturated to [a, b], NaN gives 0; both are counted
  set,                ///< x
  add,                ///< acc + x
  subtract,           ///< acc - x
  subtract_from,      ///< x - acc
  multiply,           ///< acc * x
  divide,             ///< acc / x
  divide_by,          ///< x / acc
  fma,                ///< acc * x + b, rounded once
  minimum,            ///< NaN only where acc is NaN
  maximum,            ///< NaN only where acc is NaN
  clamp,              ///< min(max(acc, x), b); NaN stays
  abs,                ///< |acc|
  negate,             ///< -acc
  floor,              ///< towards -infinity
  ceil,               ///< towards infinity
  truncate,           ///< towards zero
  round,              ///< to the nearest, half away from zero
  exp,                ///< e ^ acc
  log,                ///< natural
  log10,              ///< decimal
  sqrt,               ///< NaN below zero
  power,              ///< acc ^ x, as C's pow
  signed_power,       ///< sign(acc) |acc| ^ x; NaN counts as positive
  less,               ///< acc < x
  less_equal,         ///< acc <= x
  greater,            ///< acc > x
  greater_equal,      ///< acc >= x
  equal,              ///< acc == x
  not_equal,          ///< acc != x
  logical_and,        ///< acc and x
  logical_or,         ///< acc or x
  logical_not,        ///< not acc
  select,             ///< x != 0 ? acc : b
  keep_at_least,      ///< acc >= x ? acc : b
  keep_at_most,       ///< acc <= x ? acc : b
  sign,               ///< -1, 0 or 1; NaN stays
  is_finite,          ///< 1 or 0
  replace_nonfinite,  ///< finite acc stays, else x
  keep_nonfinite,     ///< acc where x is finite, else x
  least,              ///< the lower of acc and x, NaN where either is
  greatest,           ///< the higher of acc and x, NaN where either is
  choose,             ///< x != 0 ? acc : register `index`
  // Ops of the general machine: those below need more of a processor than plain chains do.
  sin,     ///< of radians
  cos,     ///< of radians
  tan,     ///< of radians
  atan2,   ///< angle of the point (x, acc), radians
  modulo,  ///< acc - x floor(acc / x), without rounding before the last: the sign of x
  curve,   ///< curve `index` at acc
  // Ops that give acc a value of their own, for the voxel at hand.
  coordinate,      ///< voxel index along axis `index`
  neighbour,       ///< voxel of neighbour `index`
  field,           ///< field `index` here
  random_uniform,  ///< in (0, 1), from stream `index`
  random_normal,   ///< mean 0, standard deviation 1, from stream `index`
  random_poisson,  ///< of mean acc (0 where acc <= 0; NaN stays), from stream `index`
};

/// The word for an op in listings: its name in this header.
std::string_view to_string(Op op);

/// Where an instruction's operand x comes from.
enum class Operand : std::uint8_t { immediate, r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15 };

/// r0, r1, ... by number.
constexpr Operand register_number(int number) { return Operand(number + 1); }

struct Instruction {
  Op op;
  Operand operand = Operand::immediate;
  std::uint8_t index = 0;  ///< load: the input's number; store, choose: the register's; else of what the op names
  double a = 0, b = 0;
};

/// A voxel beside the one at hand, of the same component. `boundary` is one of the filters': fill (grid_constant),
/// nearest, mirror, reflect or grid_wrap.
struct Neighbour {
  std::array<std::int16_t, 3> offset{};
  std::uint8_t input = 0;
  Boundary boundary = Boundary::reflect;
  double fill = 0;
  bool operator==(const Neighbour&) const = default;
};

/// Straight pieces between the points (x[k], y[k]), x ascending, at least two. Beyond the ends it is level, or goes on
/// as the last piece does; NaN stays.
struct Curve {
  std::vector<double> x, y;
  bool extrapolate = false;
};

/// A smooth function of the voxel's index: sum over a, b, c of coefficients[c][b][a] X_a(i) Y_b(j) Z_c(k). An axis has
/// `count` coefficients, of which `taps` count at a voxel: those from first[i] on, with weights[i * taps + ...].
struct Field {
  struct Axis {
    std::int64_t count = 1;
    int taps = 1;
    std::vector<std::int32_t> first{};
    std::vector<double> weights{};
  };
  std::array<Axis, 3> axes{};
  std::vector<double> coefficients{};  ///< x fastest
};

/// Instructions in order. The accumulator starts as the voxel of input 0 and the registers as 0; what the accumulator
/// holds at the end is the result, so the empty program is the identity.
class Program {
 public:
  static constexpr int kRegisters = 16, kPlainRegisters = 4;
  static constexpr int kMaxInstructions = 96;  ///< fits a kernel parameter in either precision
  static constexpr int kMaxInputs = 8;
  static constexpr int kMaxNeighbours = 32, kMaxCurves = 8, kMaxFields = 4, kMaxStreams = 8;

  Program& load(int input) { return add({Op::load, Operand::immediate, std::uint8_t(input)}); }
  /// Keeps the accumulator in a register.
  Program& store(Operand target) { return add({Op::store, Operand::immediate, std::uint8_t(int(target) - 1)}); }
  Program& add(Op op, double a = 0, double b = 0) { return add({op, Operand::immediate, 0, a, b}); }
  Program& add(Op op, Operand x, double b = 0) { return add({op, x, 0, 0, b}); }
  /// An operand that the op does not read is dropped. Throws Error(internal) when the program is full or the
  /// instruction names an input, register or constant that does not exist.
  Program& add(const Instruction& instruction);

  Program& choose(Operand condition, Operand otherwise) {
    return add({Op::choose, condition, std::uint8_t(int(otherwise) - 1)});
  }
  Program& coordinate(int axis) { return add({Op::coordinate, Operand::immediate, std::uint8_t(axis)}); }
  /// These add what the instruction names. Throw Error(internal) when there are too many of it.
  Program& neighbour(const Neighbour& neighbour);
  Program& curve(Curve curve);
  Program& field(std::shared_ptr<const Field> field);
  Program& random(Op op, std::uint64_t key);  ///< a stream of draws: one voxel, one key, one draw

  bool empty() const { return instructions_.empty(); }
  std::size_t size() const { return instructions_.size(); }
  std::span<const Instruction> instructions() const { return instructions_; }
  const std::vector<Neighbour>& neighbours() const { return neighbours_; }
  const std::vector<Curve>& curves() const { return curves_; }
  const std::vector<std::shared_ptr<const Field>>& fields() const { return fields_; }
  const std::vector<std::uint64_t>& keys() const { return keys_; }
  bool is_identity() const;    ///< nothing but, at most, the first load
  int register_count() const;  ///< registers r0, r1, ... used
  bool is_general() const;     ///< has an op of the general machine, or more than kPlainRegisters registers
  bool asks_for_place() const;
  /// One line an instruction.
  std::string listing() const;

 private:
  int index_limit(Op op) const;
  template <class T>
  static std::uint8_t number_of(std::vector<T>& list, T entry, int limit);

  std::vector<Instruction> instructions_;
  std::vector<Neighbour> neighbours_;
  std::vector<Curve> curves_;
  std::vector<std::shared_ptr<const Field>> fields_;
  std::vector<std::uint64_t> keys_;
};

/// One line an instruction of `program`; constants that `other`, the same instructions over other statistics, has
/// otherwise are "?".
std::vector<std::string> common_lines(const Program& program, const Program& other);

/// What a program runs in: float32, or float64 for 32-bit integers (exact up to 2^53) and where asked.
enum class Precision : std::uint8_t { single, double_ };

/// A volume of the grid, or one of its components, on the context's device; any alignment that suits its type.
struct ProgramInput {
  const void* data;
  DataType dtype;
};

/// Where a program's values lie: value p of a run is value first + p of the volume, which has whole grids one after
/// another. Only ops that ask for the voxel's place look at it.
struct ProgramGrid {
  std::array<std::int64_t, 3> size{};  ///< voxels an axis
  std::int64_t first = 0;              ///< a multiple of the grid's voxels
  /// A run over part of one grid: the place of its first value there. Neighbours lie where they would lie were the
  /// whole grid in memory, before and after the run's own values.
  std::int64_t begin = 0;
};

/// `asked`, raised to double_ when an input, the result or a to_integer is a 32-bit integer. run_program and the
/// statistics raise it themselves.
Precision needed_precision(const Program& program, std::span<const ProgramInput> inputs, DataType result_type,
                           Precision asked);

/// Voxels that conversions to integers changed beyond rounding.
struct ConversionCounts {
  std::int64_t saturated = 0;  ///< beyond the type's range, infinities among them
  std::int64_t nan = 0;        ///< became 0
  bool operator==(const ConversionCounts&) const = default;
};

/// result[i] = program(inputs[.][i]) for i in [0, count), converted to the result's type: integers round half away from
/// zero and saturate, NaN gives 0, and the counts say how often. `result` may be one of the inputs when the types have
/// one size and no neighbours are read. A program that asks for places needs `grid`. On CUDA the call waits for the
/// counts only when something is converted to an integer. The devices agree to 4 ulp in double and to the bit in
/// float32.
ConversionCounts run_program(DeviceContext& context, const Program& program, std::span<const ProgramInput> inputs,
                             void* result, DataType result_type, std::int64_t count, Precision precision,
                             const ProgramGrid& grid = {});

}  // namespace volpipe
