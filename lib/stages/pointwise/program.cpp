#include "stages/pointwise/program.h"

#include <array>
#include <atomic>
#include <cstdio>

#include "stages/pointwise/block_evaluator.h"
#include "stages/pointwise/program_backends.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::array kOpNames = std::to_array<std::string_view>({"load",          "store",        "to_integer",
                                                                 "set",           "add",          "subtract",
                                                                 "subtract_from", "multiply",     "divide",
                                                                 "divide_by",     "fma",          "minimum",
                                                                 "maximum",       "clamp",        "abs",
                                                                 "negate",        "floor",        "ceil",
                                                                 "truncate",      "round",        "exp",
                                                                 "log",           "log10",        "sqrt",
                                                                 "power",         "signed_power", "less",
                                                                 "less_equal",    "greater",      "greater_equal",
                                                                 "equal",         "not_equal",    "logical_and",
                                                                 "logical_or",    "logical_not",  "select",
                                                                 "sign",          "is_finite",    "replace_nonfinite",
                                                                 "keep_nonfinite"});
static_assert(kOpNames.size() == std::size_t(Op::keep_nonfinite) + 1);

bool is_wide_integer(DataType type) { return !is_floating(type) && !fits_float32(type); }

bool exceeds_float32(const Instruction& i) {
  constexpr double kExact = 1 << 24;
  return i.op == Op::to_integer && (i.a < -kExact || i.b > kExact);
}

std::string number(double value) {
  std::array<char, 32> text;
  return {text.data(), std::size_t(std::snprintf(text.data(), text.size(), "%.9g", value))};
}

std::string operand_text(const Instruction& i) {
  return i.operand == Operand::immediate ? number(i.a) : std::string("r") += std::to_string(int(i.operand) - 1);
}

std::string line(const Instruction& i) {
  const std::string name(to_string(i.op));
  switch (i.op) {
    case Op::load:
      return name + " " + std::to_string(i.index);
    case Op::store:
      return name + " r" + std::to_string(i.index);
    case Op::to_integer:
      return name + " " + number(i.a) + " " + number(i.b);
    case Op::fma:
    case Op::clamp:
    case Op::select:
      return name + " " + operand_text(i) + " " + number(i.b);
    default:
      return is_unary(i.op) ? name : name + " " + operand_text(i);
  }
}

}  // namespace

std::string_view to_string(Op op) { return kOpNames[std::size_t(op)]; }

Program& Program::add(const Instruction& instruction) {
  if (instructions_.size() == kMaxInstructions)
    throw Error(ErrorCode::internal, "a program holds at most " + std::to_string(kMaxInstructions) + " instructions");
  const int limit = instruction.op == Op::load ? kMaxInputs : instruction.op == Op::store ? kRegisters : 256;
  if (instruction.index >= limit || int(instruction.operand) > kRegisters)
    throw Error(ErrorCode::internal, "no such input or register in '" + line(instruction) + "'");
  Instruction& added = instructions_.emplace_back(instruction);
  if (!reads_operand(added.op)) added.operand = Operand::immediate;
  return *this;
}

bool Program::is_identity() const {
  return empty() || (size() == 1 && instructions_[0].op == Op::load && instructions_[0].index == 0);
}

bool Program::uses_registers() const {
  for (const Instruction& i : instructions_)
    if (i.op == Op::store || i.operand != Operand::immediate) return true;
  return false;
}

std::string Program::listing() const {
  std::string text;
  for (const Instruction& i : instructions_) text += line(i) + "\n";
  return text;
}

Precision needed_precision(const Program& program, std::span<const ProgramInput> inputs, DataType result_type,
                           Precision asked) {
  bool wide = is_wide_integer(result_type);
  for (const ProgramInput& input : inputs) wide = wide || is_wide_integer(input.dtype);
  for (const Instruction& i : program.instructions()) wide = wide || exceeds_float32(i);
  return wide ? Precision::double_ : asked;
}

void check_inputs(const Program& program, std::span<const ProgramInput> inputs) {
  bool missing = inputs.empty() || inputs.size() > Program::kMaxInputs;
  for (const Instruction& i : program.instructions())
    missing = missing || (i.op == Op::load && i.index >= inputs.size());
  if (missing) throw Error(ErrorCode::internal, "a program loads an input that was not given");
}

ConversionCounts run_program(DeviceContext& context, const Program& program, std::span<const ProgramInput> inputs,
                             void* result, DataType result_type, std::int64_t count, Precision precision) {
  check_inputs(program, inputs);
  if (count <= 0) return {};
  const ProgramRun run{program,     inputs, result,
                       result_type, count,  needed_precision(program, inputs, result_type, precision)};
  return run_on(context, cpu::run_program, cuda::run_program, run);
}

namespace cpu {

namespace {

/// Integers are already rounded and in range.
template <class R, class T>
void write_block(const T* values, std::int64_t count, R* result) {
  using Intermediate = std::conditional_t<std::is_floating_point_v<R>, R,
                                          std::conditional_t<(sizeof(R) < 4), std::int32_t, std::int64_t>>;
  for (std::int64_t i = 0; i < count; ++i) result[i] = R(Intermediate(values[i]));
}

template <class T>
ConversionCounts run(const DeviceContext& context, const ProgramRun& run) {
  constexpr std::int64_t kPiece = 256 * kBlockVoxels;
  const auto program = make_executable<T>(run.program, run.result_type);
  std::atomic<std::int64_t> saturated{0}, nan{0};
  context.parallel(run.count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    BlockEvaluator<T> evaluator(program, run.inputs);
    for (std::int64_t i = begin; i < end; i += kBlockVoxels) {
      const std::int64_t count = std::min(kBlockVoxels, end - i);
      const T* values = evaluator.evaluate(i, count);
      visit(run.result_type,
            [&](auto tag) { write_block(values, count, static_cast<typename decltype(tag)::type*>(run.result) + i); });
    }
    saturated += evaluator.counts().saturated;
    nan += evaluator.counts().nan;
  });
  return {saturated, nan};
}

}  // namespace

ConversionCounts run_program(DeviceContext& context, const ProgramRun& arguments) {
  return visit_precision(arguments.precision, [&](auto zero) { return run<decltype(zero)>(context, arguments); });
}

}  // namespace cpu

}  // namespace volpipe
