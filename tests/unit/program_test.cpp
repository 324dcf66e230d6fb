// The register machine on the CPU: every op against a scalar reference in long double, conversions, limits.
#include <gtest/gtest.h>

#include <functional>

#include "support/pointwise_data.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

class ProgramTest : public testing::Test {
 protected:
  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

long double round_half_away(long double v) {
  return std::isfinite(v) ? std::copysign(std::floor(std::fabs(v) + 0.5L), v) : v;
}

/// What the header says an op gives, without rounding.
long double reference(Op op, long double acc, long double x, long double b) {
  switch (op) {
    case Op::set:
      return x;
    case Op::add:
      return acc + x;
    case Op::subtract:
      return acc - x;
    case Op::subtract_from:
      return x - acc;
    case Op::multiply:
      return acc * x;
    case Op::divide:
      return acc / x;
    case Op::divide_by:
      return x / acc;
    case Op::minimum:
      return std::isnan(acc) ? acc : std::fmin(acc, x);
    case Op::maximum:
      return std::isnan(acc) ? acc : std::fmax(acc, x);
    case Op::clamp:
      return std::isnan(acc) ? acc : std::fmin(std::fmax(acc, x), b);
    case Op::abs:
      return std::fabs(acc);
    case Op::negate:
      return -acc;
    case Op::floor:
      return std::floor(acc);
    case Op::ceil:
      return std::ceil(acc);
    case Op::truncate:
      return std::trunc(acc);
    case Op::round:
      return round_half_away(acc);
    case Op::exp:
      return std::exp(acc);
    case Op::log:
      return std::log(acc);
    case Op::log10:
      return std::log10(acc);
    case Op::sqrt:
      return std::sqrt(acc);
    case Op::power:
      return std::pow(acc, x);
    case Op::signed_power:
      return std::isnan(acc) ? std::pow(acc, x) : std::copysign(std::pow(std::fabs(acc), x), acc);
    case Op::less:
      return acc < x;
    case Op::less_equal:
      return acc <= x;
    case Op::greater:
      return acc > x;
    case Op::greater_equal:
      return acc >= x;
    case Op::equal:
      return acc == x;
    case Op::not_equal:
      return acc != x;
    case Op::logical_and:
      return acc != 0 && x != 0;
    case Op::logical_or:
      return acc != 0 || x != 0;
    case Op::logical_not:
      return acc == 0;
    case Op::select:
      return x != 0 ? acc : b;
    case Op::keep_at_least:
      return acc >= x ? acc : b;
    case Op::keep_at_most:
      return acc <= x ? acc : b;
    case Op::least:
      return std::isnan(acc) || std::isnan(x) ? std::nan("") : std::fmin(acc, x);
    case Op::greatest:
      return std::isnan(acc) || std::isnan(x) ? std::nan("") : std::fmax(acc, x);
    case Op::sign:
      return acc > 0 ? 1 : acc < 0 ? -1 : acc == 0 ? 0 : acc;
    case Op::is_finite:
      return std::isfinite(acc);
    case Op::replace_nonfinite:
      return std::isfinite(acc) ? acc : x;
    case Op::keep_nonfinite:
      return std::isfinite(x) ? acc : x;
    default:
      ADD_FAILURE() << to_string(op);
      return 0;
  }
}

/// Largest distance allowed from the reference, which rounds a double twice.
double tolerance(Op op, DataType type) {
  const bool transcendental = (op >= Op::exp && op <= Op::log10) || op == Op::power || op == Op::signed_power;
  const double rounding = type == DataType::float32 ? 0 : 1;
  return transcendental ? 1 + rounding : rounding;
}

template <class T>
void expect_reference(DeviceContext& context, Op op, bool from_register) {
  const DataType type = data_type_of<T>();
  const Precision precision = type == DataType::float32 ? Precision::single : Precision::double_;
  const Row values = random_row(type, 5003, 1, true), others = random_row(type, 5003, 2, true);
  for (const double a : {0.0, 2.0, -1.5, 0.3, 3.0, -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const double b = 2.75;
    Program program;
    if (from_register) program.load(1).store(Operand::r1).load(0).add(op, Operand::r1, b);
    else program.add(op, a, b);
    const ProgramResult result = run_rows(context, program, {values, others}, type, precision);
    EXPECT_TRUE(result.guards_intact);
    int shown = 0;
    for (std::int64_t i = 0; i < values.count && shown < 3; ++i) {
      const T acc = values.as<T>()[i], x = from_register ? others.as<T>()[i] : T(a), found = result.voxels.as<T>()[i];
      const T expected = op == Op::fma ? std::fma(acc, x, T(b)) : T(reference(op, acc, x, T(b)));
      if (ulps(found, expected) > tolerance(op, type)) {
        ADD_FAILURE() << to_string(op) << " of " << acc << ", " << x << ": " << found << ", expected " << expected;
        ++shown;
      }
    }
    if (from_register) return;
  }
}

TEST_F(ProgramTest, EveryOpFollowsItsDefinition) {
  for (const Op op : all_arithmetic_ops())
    for (const bool from_register : {false, true}) {
      expect_reference<float>(*cpu_, op, from_register);
      expect_reference<double>(*cpu_, op, from_register);
    }
}

TEST_F(ProgramTest, FmaRoundsOnce) {
  const float x = 1 + 0x1p-12f;
  const auto result =
      run_rows(*cpu_, Program().add(Op::fma, double(x), -1 - 0x1p-11), {Row(std::vector<float>{x})}, DataType::float32);
  EXPECT_EQ(result.voxels.at(0), 0x1p-24);
  const auto apart = run_rows(*cpu_, Program().add(Op::multiply, double(x)).add(Op::add, -1 - 0x1p-11),
                              {Row(std::vector<float>{x})}, DataType::float32);
  EXPECT_EQ(apart.voxels.at(0), 0);
}

TEST_F(ProgramTest, PowerHasTheSpecialCasesOfC) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> bases{0.0f, -0.0f, 1, -1, 2, -2, 0.5f, -0.5f, inf, -inf, nan, 1e-40f, -8};
  const std::vector<float> exponents{0,        -0.0f, 1,    -1,  2,        3,        -3,    0.5f, -0.5f,
                                     1.0f / 3, inf,   -inf, nan, 16777216, 16777215, 1e30f, -127, -149};
  for (const float exponent : exponents) {
    const auto result = run_rows(*cpu_, Program().add(Op::power, exponent), {Row(bases)}, DataType::float32);
    for (std::size_t i = 0; i < bases.size(); ++i) {
      const float expected = std::pow(bases[i], exponent), found = result.voxels.as<float>()[i];
      EXPECT_LE(ulps(found, expected), 1)
          << bases[i] << " ^ " << exponent << ": " << found << ", expected " << expected;
      EXPECT_TRUE(std::isnan(expected) || std::signbit(found) == std::signbit(expected))
          << bases[i] << " ^ " << exponent;
    }
  }
}

TEST_F(ProgramTest, ExpAndLogAreWithinOneUlpEverywhere) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (std::uint64_t(1) << 32); bits += 10007)
    values.push_back(std::bit_cast<float>(std::uint32_t(bits)));
  const Row row(values);
  const auto exps = run_rows(*cpu_, Program().add(Op::exp), {row}, DataType::float32);
  const auto logs = run_rows(*cpu_, Program().add(Op::log), {row}, DataType::float32);
  double worst_exp = 0, worst_log = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst_exp = std::max(worst_exp, ulps(exps.voxels.as<float>()[i], float(std::exp(double(values[i])))));
    worst_log = std::max(worst_log, ulps(logs.voxels.as<float>()[i], float(std::log(double(values[i])))));
  }
  EXPECT_LE(worst_exp, 1);
  EXPECT_LE(worst_log, 1);
}

/// Half away from zero, saturated, counted: what conversions promise.
double converted(double value, DataType type, ConversionCounts& counts) {
  if (is_floating(type)) return type == DataType::float32 ? double(float(value)) : value;
  const IntegerRange range = integer_range(type);
  if (std::isnan(value)) return ++counts.nan, 0.0;
  const double rounded = double(round_half_away(value));
  counts.saturated += rounded < range.lowest || rounded > range.highest;
  return std::fmin(std::fmax(rounded, range.lowest), range.highest);
}

TEST_F(ProgramTest, EveryPairOfTypesConverts) {
  for (const DataType from : kAllTypes)
    for (const DataType to : kAllTypes)
      for (const Precision precision : {Precision::single, Precision::double_}) {
        const Row row = random_row(from, 4001, 5, true);
        const ProgramResult result = run_rows(*cpu_, Program(), {row}, to, precision);
        SCOPED_TRACE(std::string(to_string(from)) + " to " + std::string(to_string(to)));
        EXPECT_TRUE(result.guards_intact);
        const std::vector<ProgramInput> inputs{row.input()};
        const bool single = needed_precision(Program(), inputs, to, precision) == Precision::single;
        ConversionCounts counts;
        for (std::int64_t i = 0; i < row.count; ++i) {
          const double value = single ? double(float(row.at(i))) : row.at(i), expected = converted(value, to, counts);
          ASSERT_EQ(ulps(result.voxels.at(i), expected), 0) << row.at(i);
        }
        EXPECT_EQ(result.counts, counts);
      }
}

TEST_F(ProgramTest, IntegersRoundHalfAwayFromZero) {
  const Row row(std::vector<float>{0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, -0.49999997f, 126.5f, 127.5f,
                                   -128.5f, -129});
  const ProgramResult result = run_rows(*cpu_, Program(), {row}, DataType::int8);
  const std::vector<std::int8_t> expected{1, 2, 3, -1, -2, -3, 0, 0, 127, 127, -128, -128};
  EXPECT_EQ(std::vector<std::int8_t>(result.voxels.as<std::int8_t>(), result.voxels.as<std::int8_t>() + row.count),
            expected);
  EXPECT_EQ(result.counts.saturated, 3);
}

TEST_F(ProgramTest, IntegersOf32BitsSurviveEvenInSinglePrecision) {
  const Row row(std::vector<std::int32_t>{16777217, -16777219, 2147483647, -2147483647 - 1});
  EXPECT_EQ(run_rows(*cpu_, Program(), {row}, DataType::int32).voxels.bytes, row.bytes);
  const Row large(std::vector<std::uint32_t>{4294967295u, 4294967294u, 16777217u});
  EXPECT_EQ(run_rows(*cpu_, Program(), {large}, DataType::uint32).voxels.bytes, large.bytes);
}

TEST_F(ProgramTest, ToIntegerWithinAProgramIsCounted) {
  const Row row(std::vector<float>{-7, 0.5f, 300, std::nanf("")});
  const ProgramResult result =
      run_rows(*cpu_, Program().add(Op::to_integer, 0, 255).add(Op::multiply, 0.5), {row}, DataType::float32);
  EXPECT_EQ(result.voxels.at(0), 0);
  EXPECT_EQ(result.voxels.at(1), 0.5);
  EXPECT_EQ(result.voxels.at(2), 127.5);
  EXPECT_EQ(result.voxels.at(3), 0);
  EXPECT_EQ(result.counts, (ConversionCounts{2, 1}));
}

TEST_F(ProgramTest, RegistersAndInputsAreIndependent) {
  const Row first(std::vector<float>{1, 2, 3}), second(std::vector<std::int16_t>{10, 20, 30});
  Program program;
  program.store(Operand::r0)
      .load(1)
      .store(Operand::r3)
      .add(Op::multiply, Operand::r0)
      .add(Op::add, Operand::r3)
      .add(Op::add, Operand::r2);
  const ProgramResult result = run_rows(*cpu_, program, {first, second}, DataType::float32);
  EXPECT_EQ(result.voxels.at(0), 20);
  EXPECT_EQ(result.voxels.at(2), 120);
}

/// Runs a program voxel by voxel with the same ops, without blocks.
template <class T>
T run_directly(const Program& program, const std::vector<Row>& inputs, std::int64_t i) {
  T registers[Program::kRegisters] = {};
  T acc = T(inputs[0].at(i));
  for (const Instruction& step : program.instructions()) {
    const T x = step.operand == Operand::immediate ? T(step.a) : registers[int(step.operand) - 1];
    if (step.op == Op::load) acc = T(inputs[step.index].at(i));
    else if (step.op == Op::store) registers[step.index] = acc;
    else if (step.op == Op::to_integer) acc = to_integer(acc, T(step.a), T(step.b)).value;
    else visit_op(step.op, [&](auto op) { acc = apply<decltype(op)::value>(acc, x, T(step.b)); });
  }
  return acc;
}

TEST_F(ProgramTest, RandomProgramsMatchADirectEvaluation) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Row> inputs{random_row(DataType::float32, 2500, seed, true),
                                  random_row(DataType::int16, 2500, seed + 1)};
    const Program program = random_program(seed, int(seed % 50) + 1, 2);
    const ProgramResult result = run_rows(*cpu_, program, inputs, DataType::float32);
    for (std::int64_t i = 0; i < 2500; ++i)
      ASSERT_LE(ulps(result.voxels.as<float>()[i], run_directly<float>(program, inputs, i)), 0) << seed << "\n"
                                                                                                << program.listing();
  }
}

TEST_F(ProgramTest, ResultsDoNotDependOnThreads) {
  const Row row = random_row(DataType::float32, 1000003, 6, true);
  const Program program = random_program(4, 30, 1);
  const auto one = make_context(Device::cpu(), 1), seven = make_context(Device::cpu(), 7);
  const ProgramResult a = run_rows(*one, program, {row}, DataType::int16),
                      b = run_rows(*seven, program, {row}, DataType::int16);
  EXPECT_EQ(a.voxels.bytes, b.voxels.bytes);
  EXPECT_EQ(a.counts, b.counts);
}

TEST_F(ProgramTest, NanHasNoSign) {
  const Row row(std::vector<float>{std::nanf(""), -std::nanf("")});
  const ProgramResult result = run_rows(*cpu_, Program().add(Op::signed_power, 0), {row}, DataType::float32);
  EXPECT_EQ(result.voxels.at(0), 1);
  EXPECT_EQ(result.voxels.at(1), 1);
}

TEST_F(ProgramTest, OperandsThatAnOpDoesNotReadAreDropped) {
  for (const Op op : {Op::load, Op::to_integer, Op::negate, Op::logical_not, Op::is_finite})
    EXPECT_EQ(Program().add({op, Operand::r2, 0, 0, 0}).register_count(), 0) << to_string(op);
}

TEST_F(ProgramTest, LimitsAreChecked) {
  Program full;
  for (int i = 0; i < Program::kMaxInstructions; ++i) full.add(Op::add, 1);
  EXPECT_EQ(run_rows(*cpu_, full, {Row(std::vector<float>{0})}, DataType::float32).voxels.at(0),
            Program::kMaxInstructions);
  EXPECT_THROW(full.add(Op::abs), Error);
  EXPECT_THROW(Program().load(Program::kMaxInputs), Error);
  EXPECT_THROW(Program().store(Operand::immediate), Error);
  EXPECT_THROW(run_rows(*cpu_, Program().load(1), {Row(std::vector<float>{0})}, DataType::float32), Error);
}

TEST_F(ProgramTest, NothingIsDoneForNoVoxels) {
  const ProgramInput nothing{nullptr, DataType::float32};
  EXPECT_EQ(run_program(*cpu_, Program(), {&nothing, 1}, nullptr, DataType::uint8, 0, Precision::single),
            ConversionCounts{});
}

TEST_F(ProgramTest, ListingsReadLikeThePrograms) {
  Program program;
  program.load(0)
      .add(Op::clamp, -1000, 1000)
      .store(Operand::r1)
      .add(Op::add, 0.5)
      .add(Op::multiply, Operand::r1)
      .add(Op::abs);
  EXPECT_EQ(program.listing(), "load 0\nclamp -1000 1000\nstore r1\nadd 0.5\nmultiply r1\nabs\n");
}

}  // namespace
}  // namespace volpipe
