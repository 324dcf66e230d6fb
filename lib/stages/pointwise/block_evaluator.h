// Runs a program on the CPU over blocks that stay in the first-level cache, one vectorised loop an instruction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "stages/pointwise/program_ops.h"

namespace volpipe {

inline constexpr std::int64_t kBlockVoxels = 1024;

/// The accumulator and registers of one block; one evaluator a piece of work, used for block after block.
template <class T>
class BlockEvaluator {
 public:
  BlockEvaluator(const ExecutableProgram<T>& program, std::span<const ProgramInput> inputs)
      : program_(program), inputs_(inputs) {}

  /// The program's values of voxels [begin, begin + count), count at most kBlockVoxels; valid until the next call.
  const T* evaluate(std::int64_t begin, std::int64_t count) {
    if (program_.uses_registers) std::fill_n(&registers_[0][0], Program::kRegisters * kBlockVoxels, T(0));
    for (int i = 0; i < program_.size; ++i) run_step(program_.steps[i], begin, count);
    return acc_;
  }
  const ConversionCounts& counts() const { return counts_; }

 private:
  using Step = typename ExecutableProgram<T>::Step;

  void run_step(const Step& step, std::int64_t begin, std::int64_t count) {
    switch (step.op) {
      case Op::load:
        load(inputs_[step.index], begin, count);
        break;
      case Op::store:
        std::copy_n(acc_, count, registers_[step.index]);
        break;
      case Op::to_integer:
        convert(step, count);
        break;
      default:
        step.operand == Operand::immediate ? run_immediate(step, count) : run_register(step, count);
    }
  }

  void load(const ProgramInput& input, std::int64_t begin, std::int64_t count) {
    visit(input.dtype, [&](auto tag) {
      const auto* source = static_cast<const typename decltype(tag)::type*>(input.data) + begin;
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = T(source[i]);
    });
  }

  void convert(const Step& step, std::int64_t count) {
    const T low = step.a, high = step.b;
    int saturated = 0, nan = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const IntegerValue<T> integer = to_integer(acc_[i], low, high);
      acc_[i] = integer.value;
      saturated += integer.saturated;
      nan += integer.nan;
    }
    counts_.saturated += saturated;
    counts_.nan += nan;
  }

  void run_immediate(const Step& step, std::int64_t count) {
    visit_op(step.op, [&, x = step.a, b = step.b](auto op) {
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = apply<decltype(op)::value>(acc_[i], x, b);
    });
  }

  void run_register(const Step& step, std::int64_t count) {
    const T* x = registers_[int(step.operand) - 1];
    visit_op(step.op, [&, x, b = step.b](auto op) {
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = apply<decltype(op)::value>(acc_[i], x[i], b);
    });
  }

  const ExecutableProgram<T>& program_;
  std::span<const ProgramInput> inputs_;
  ConversionCounts counts_;
  alignas(64) T acc_[kBlockVoxels];
  alignas(64) T registers_[Program::kRegisters][kBlockVoxels];
};

/// visitor(T{}) with the arithmetic type of a precision.
template <class Visitor>
decltype(auto) visit_precision(Precision precision, Visitor&& visitor) {
  return precision == Precision::single ? visitor(float{}) : visitor(double{});
}

}  // namespace volpipe
