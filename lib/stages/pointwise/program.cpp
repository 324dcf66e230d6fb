#include "stages/pointwise/program.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "stages/pointwise/block_evaluator.h"
#include "stages/pointwise/program_backends.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::array kOpNames = std::to_array<std::string_view>({"load",
                                                                 "store",
                                                                 "to_integer",
                                                                 "set",
                                                                 "add",
                                                                 "subtract",
                                                                 "subtract_from",
                                                                 "multiply",
                                                                 "divide",
                                                                 "divide_by",
                                                                 "fma",
                                                                 "minimum",
                                                                 "maximum",
                                                                 "clamp",
                                                                 "abs",
                                                                 "negate",
                                                                 "floor",
                                                                 "ceil",
                                                                 "truncate",
                                                                 "round",
                                                                 "exp",
                                                                 "log",
                                                                 "log10",
                                                                 "sqrt",
                                                                 "power",
                                                                 "signed_power",
                                                                 "less",
                                                                 "less_equal",
                                                                 "greater",
                                                                 "greater_equal",
                                                                 "equal",
                                                                 "not_equal",
                                                                 "logical_and",
                                                                 "logical_or",
                                                                 "logical_not",
                                                                 "select",
                                                                 "keep_at_least",
                                                                 "keep_at_most",
                                                                 "sign",
                                                                 "is_finite",
                                                                 "replace_nonfinite",
                                                                 "keep_nonfinite",
                                                                 "least",
                                                                 "greatest",
                                                                 "choose",
                                                                 "sin",
                                                                 "cos",
                                                                 "tan",
                                                                 "atan2",
                                                                 "modulo",
                                                                 "curve",
                                                                 "coordinate",
                                                                 "neighbour",
                                                                 "field",
                                                                 "random_uniform",
                                                                 "random_normal",
                                                                 "random_poisson"});
static_assert(kOpNames.size() == std::size_t(Op::random_poisson) + 1);

bool is_wide_integer(DataType type) { return !is_floating(type) && !fits_float32(type); }

bool exceeds_float32(const Instruction& i) {
  constexpr double kExact = 1 << 24;
  return i.op == Op::to_integer && (i.a < -kExact || i.b > kExact);
}

std::string number(double value) {
  std::array<char, 32> text;
  return {text.data(), std::size_t(std::snprintf(text.data(), text.size(), "%.9g", value))};
}

std::string number(double value, double other) { return value == other ? number(value) : "?"; }

std::string operand_text(const Instruction& i, const Instruction& other) {
  return i.operand == Operand::immediate ? number(i.a, other.a)
                                         : std::string("r") += std::to_string(int(i.operand) - 1);
}

std::string line(const Instruction& i, const Instruction& other) {
  const std::string name(to_string(i.op));
  switch (i.op) {
    case Op::load:
    case Op::curve:
    case Op::coordinate:
    case Op::neighbour:
    case Op::field:
    case Op::random_uniform:
    case Op::random_normal:
    case Op::random_poisson:
      return name + " " + std::to_string(i.index);
    case Op::choose:
      return name + " " + operand_text(i, other) + " r" + std::to_string(i.index);
    case Op::store:
      return name + " r" + std::to_string(i.index);
    case Op::to_integer:
      return name + " " + number(i.a, other.a) + " " + number(i.b, other.b);
    case Op::fma:
    case Op::clamp:
    case Op::select:
    case Op::keep_at_least:
    case Op::keep_at_most:
      return name + " " + operand_text(i, other) + " " + number(i.b, other.b);
    default:
      return is_unary(i.op) ? name : name + " " + operand_text(i, other);
  }
}

std::string line(const Instruction& i) { return line(i, i); }

}  // namespace

std::string_view to_string(Op op) { return kOpNames[std::size_t(op)]; }

Program& Program::add(const Instruction& instruction) {
  if (instructions_.size() == kMaxInstructions)
    throw Error(ErrorCode::internal, "a program holds at most " + std::to_string(kMaxInstructions) + " instructions");
  if (int(instruction.index) >= index_limit(instruction.op) || int(instruction.operand) > kRegisters)
    throw Error(ErrorCode::internal, "no such input, register or constant in '" + line(instruction) + "'");
  Instruction& added = instructions_.emplace_back(instruction);
  if (!reads_operand(added.op)) added.operand = Operand::immediate;
  return *this;
}

bool Program::is_identity() const {
  return empty() || (size() == 1 && instructions_[0].op == Op::load && instructions_[0].index == 0);
}

int Program::register_count() const {
  int count = 0;
  for (const Instruction& i : instructions_) {
    const bool named = i.op == Op::store || i.op == Op::choose;
    count = std::max({count, int(i.operand), named ? i.index + 1 : 0});
  }
  return count;
}

bool Program::is_general() const {
  return register_count() > kPlainRegisters ||
         std::any_of(instructions_.begin(), instructions_.end(),
                     [](const Instruction& i) { return volpipe::is_general(i.op); });
}

bool Program::asks_for_place() const {
  return std::any_of(instructions_.begin(), instructions_.end(),
                     [](const Instruction& i) { return volpipe::asks_for_place(i.op); });
}

int Program::index_limit(Op op) const {
  switch (op) {
    case Op::load:
      return kMaxInputs;
    case Op::store:
    case Op::choose:
      return kRegisters;
    case Op::curve:
      return int(curves_.size());
    case Op::coordinate:
      return 3;
    case Op::neighbour:
      return int(neighbours_.size());
    case Op::field:
      return int(fields_.size());
    case Op::random_uniform:
    case Op::random_normal:
    case Op::random_poisson:
      return int(keys_.size());
    default:
      return 256;
  }
}

template <class T>
std::uint8_t Program::number_of(std::vector<T>& list, T entry, int limit) {
  if (int(list.size()) == limit)
    throw Error(ErrorCode::internal, "a program holds at most " + std::to_string(limit) + " constants of a kind");
  list.push_back(std::move(entry));
  return std::uint8_t(list.size() - 1);
}

Program& Program::neighbour(const Neighbour& neighbour) {
  const auto known = std::find(neighbours_.begin(), neighbours_.end(), neighbour);
  const auto index = known != neighbours_.end() ? std::uint8_t(known - neighbours_.begin())
                                                : number_of(neighbours_, neighbour, kMaxNeighbours);
  return add({Op::neighbour, Operand::immediate, index});
}

Program& Program::curve(Curve curve) {
  if (curve.x.size() < 2 || curve.x.size() != curve.y.size())
    throw Error(ErrorCode::internal, "a curve needs at least two points");
  return add({Op::curve, Operand::immediate, number_of(curves_, std::move(curve), kMaxCurves)});
}

Program& Program::field(std::shared_ptr<const Field> field) {
  return add({Op::field, Operand::immediate, number_of(fields_, std::move(field), kMaxFields)});
}

Program& Program::random(Op op, std::uint64_t key) {
  return add({op, Operand::immediate, number_of(keys_, key, kMaxStreams)});
}

std::string Program::listing() const {
  std::string text;
  for (const Instruction& i : instructions_) text += line(i) + "\n";
  return text;
}

std::vector<std::string> common_lines(const Program& program, const Program& other) {
  const auto instructions = program.instructions(), others = other.instructions();
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < instructions.size(); ++i)
    lines.push_back(line(instructions[i], others[i < others.size() ? i : others.size() - 1]));
  return lines;
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
  for (const Neighbour& neighbour : program.neighbours()) missing = missing || neighbour.input >= inputs.size();
  if (missing) throw Error(ErrorCode::internal, "a program loads an input that was not given");
}

PlaceTables host_tables(const Program& program, const ProgramGrid& grid) {
  PlaceTables tables{};
  for (std::size_t axis = 0; axis < 3; ++axis) tables.size[axis] = grid.size[axis];
  tables.voxels = grid.size[0] * grid.size[1] * grid.size[2];
  tables.begin = grid.begin;
  tables.first = grid.first + grid.begin;
  std::copy(program.neighbours().begin(), program.neighbours().end(), tables.neighbours);
  std::copy(program.keys().begin(), program.keys().end(), tables.keys);
  for (std::size_t i = 0; i < program.curves().size(); ++i) {
    const Curve& curve = program.curves()[i];
    tables.curves[i] = {curve.x.data(), curve.y.data(), double(curve.x.size() - 1) / (curve.x.back() - curve.x.front()),
                        std::int32_t(curve.x.size()), curve.extrapolate};
  }
  for (std::size_t i = 0; i < program.fields().size(); ++i) {
    const Field& field = *program.fields()[i];
    FieldView& view = tables.fields[i];
    view.coefficients = field.coefficients.data();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      view.weights[axis] = field.axes[axis].weights.data();
      view.first[axis] = field.axes[axis].first.data();
      view.taps[axis] = field.axes[axis].taps;
      if (axis < 2) view.count[axis] = std::int32_t(field.axes[axis].count);
    }
  }
  return tables;
}

void check_grid(const Program& program, const ProgramGrid& grid, std::int64_t count) {
  const std::int64_t voxels = grid.size[0] * grid.size[1] * grid.size[2];
  const bool whole = grid.begin == 0 && voxels > 0 && count % voxels == 0;
  const bool part = grid.begin >= 0 && count <= voxels - grid.begin;
  if (program.asks_for_place() && (voxels <= 0 || !(whole || part) || grid.first % voxels != 0))
    throw Error(ErrorCode::internal, "a program asks for the place of its voxels and has no grid");
}

ConversionCounts run_program(DeviceContext& context, const Program& program, std::span<const ProgramInput> inputs,
                             void* result, DataType result_type, std::int64_t count, Precision precision,
                             const ProgramGrid& grid) {
  check_inputs(program, inputs);
  if (count <= 0) return {};
  check_grid(program, grid, count);
  const Precision needed = needed_precision(program, inputs, result_type, precision);
  const ProgramRun run{program, inputs, result, result_type, count, needed, grid};
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
  const PlaceTables tables = host_tables(run.program, run.grid);
  std::atomic<std::int64_t> saturated{0}, nan{0};
  context.parallel(run.count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    BlockEvaluator<T> evaluator(program, run.inputs, tables);
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
