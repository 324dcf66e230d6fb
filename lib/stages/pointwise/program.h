// The register machine of the pointwise stages: a short program that every voxel runs, on either device, without a
// compiler at run time. Consecutive stages append to one program, so a chain costs one pass over memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/context.h"
#include "volume/volume.h"

namespace volpipe {

/// acc is the accumulator, x the operand (the immediate `a`, or register r0 .. r3), a and b the immediates.
/// Comparisons give 1 or 0; false, for and/or/not/select, is 0.
enum class Op : std::uint8_t {
  load,        ///< acc = voxel of input `source`
  set,         ///< acc = x
  store,       ///< r[source] = acc
  add, subtract, subtract_from,  ///< acc + x, acc - x, x - acc
  multiply, divide, divide_by,   ///< acc * x, acc / x, x / acc
  fma,         ///< acc * a + b, rounded once
  minimum, maximum,              ///< NaN only where acc is NaN
  clamp,       ///< min(max(acc, a), b)
  abs, negate, floor, ceil, round,  ///< round: half away from zero
  exp, log, log10, sqrt,
  power,       ///< acc ^ x
  signed_power,///< sign(acc) |acc| ^ x
  less, less_equal, greater, greater_equal, equal, not_equal,  ///< acc ? x
  logical_and, logical_or, logical_not,
  select,      ///< r[source] != 0 ? acc : a
  sign, is_finite,
  replace_nonfinite,  ///< finite acc stays, else a
  keep_nonfinite,     ///< acc where r[source] is finite, else r[source]
};

/// Where an instruction's operand x comes from.
enum class Operand : std::uint8_t { immediate, r0, r1, r2, r3 };

struct Instruction {
  Op op;
  Operand source = Operand::immediate;  ///< for load: the input's number is in `index`
  std::uint8_t index = 0;
  double a = 0, b = 0;
};

/// Instructions in order; starts with acc = voxel of input 0, ends with the result in acc.
class Program {
 public:
  static constexpr int kRegisters = 4;
  static constexpr int kMaxInstructions = 96;  ///< fits a kernel parameter in either precision
  static constexpr int kMaxInputs = 4;

  Program& add(Op op, double a = 0, double b = 0) { return add({op, Operand::immediate, 0, a, b}); }
  Program& add(Op op, Operand source, double a = 0) { return add({op, source, 0, a, 0}); }
  Program& add(const Instruction& instruction);  ///< throws Error(internal) when full
  bool empty() const { return instructions_.empty(); }
  std::size_t size() const { return instructions_.size(); }
  std::span<const Instruction> instructions() const { return instructions_; }
  /// One line an instruction, for `volpipe plan`.
  std::string listing() const;

 private:
  std::vector<Instruction> instructions_;
};

/// What a program runs in: float32, or float64 for 32-bit integers (exact up to 2^53) and where asked.
enum class Precision : std::uint8_t { single, double_ };

/// One or more volumes of one grid on one device, read voxel by voxel; only the component range is visited.
struct ProgramInput {
  const void* data;
  DataType dtype;
};

/// result[i] = program(inputs[.][i]) for i in [0, count), converted to the result's type: integers round half away from
/// zero and saturate (NaN gives 0). Returns the number of voxels that saturated (0 for floating results).
std::int64_t run_program(DeviceContext& context, const Program& program, std::span<const ProgramInput> inputs,
                         void* result, DataType result_type, std::int64_t count, Precision precision);

}  // namespace volpipe
