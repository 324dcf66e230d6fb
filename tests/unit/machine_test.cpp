// The general machine on the CPU: its ops against direct formulas, places and neighbours against a search by hand.
#include <gtest/gtest.h>

#include "stages/pointwise/place_ops.h"
#include "support/general_programs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

class MachineTest : public testing::Test {
 protected:
  /// What a program gives for the values of a row in double.
  std::vector<double> values(const Program& program, const std::vector<double>& row, const Index3& size = {},
                             std::int64_t first = 0) {
    const ProgramResult result =
        run_rows(*cpu_, program, {Row(row)}, DataType::float64, Precision::double_, 0, {size, first});
    EXPECT_TRUE(result.guards_intact);
    return {result.voxels.as<double>(), result.voxels.as<double>() + row.size()};
  }
  double value(const Program& program, double v) { return values(program, {v})[0]; }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

void expect_value(double found, double expected) {
  EXPECT_EQ(ulps(found, expected), 0) << found << ", expected " << expected;
  EXPECT_TRUE(std::isnan(expected) || std::signbit(found) == std::signbit(expected)) << expected;
}

std::vector<float> floats_of_every_size(std::uint64_t step) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (std::uint64_t(1) << 32); bits += step)
    values.push_back(std::bit_cast<float>(std::uint32_t(bits)));
  for (const double v : special_values()) values.push_back(float(v));
  return values;
}

/// Multiples of pi / 2 as near as float32 has them: there sines and cosines are small, and bits cancel.
std::vector<float> floats_near_quarter_turns() {
  std::vector<float> values;
  for (int exponent = 0; exponent < 27; ++exponent)
    for (int i = 0; i < 200; ++i) {
      const double turns = std::floor(std::exp2(exponent) * (1 + i / 200.0));
      values.push_back(float(turns * 1.57079632679489661923));
      values.push_back(-values.back());
    }
  return values;
}

TEST_F(MachineTest, SinesOfFloatsAreWithinOneUlp) {
  std::vector<float> angles = floats_of_every_size(10007);
  for (const float angle : floats_near_quarter_turns()) angles.push_back(angle);
  const std::pair<Op, double (*)(double)> functions[] = {{Op::sin, std::sin}, {Op::cos, std::cos}, {Op::tan, std::tan}};
  for (const auto& [op, function] : functions) {
    const ProgramResult result = run_rows(*cpu_, Program().add(op), {Row(angles)}, DataType::float32);
    for (std::size_t i = 0; i < angles.size(); ++i) {
      const float expected = float(function(double(angles[i]))), found = result.voxels.as<float>()[i];
      ASSERT_LE(ulps(found, expected), 1) << to_string(op) << " of " << angles[i];
      ASSERT_TRUE(angles[i] != 0 || std::signbit(found) == std::signbit(expected)) << to_string(op);
    }
  }
}

TEST_F(MachineTest, HugeAnglesBesideSmallOnesChangeNothing) {  // the loop over a block differs
  std::vector<float> angles{0.5f, -3, 2e4f, 1.3e8f};
  const auto of = [&](Op op) { return run_rows(*cpu_, Program().add(op), {Row(angles)}, DataType::float32).voxels; };
  for (const Op op : {Op::sin, Op::cos, Op::tan}) {
    angles.resize(4);
    const Row small = of(op);
    angles.insert(angles.end(), {1e30f, INFINITY, NAN});
    const Row all = of(op);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(all.at(i), small.at(i)) << to_string(op);
    EXPECT_TRUE(std::isnan(all.at(5)) && std::isnan(all.at(6)));
  }
}

TEST_F(MachineTest, SinesOfDoublesAreWithinOneUlp) {
  const Row angles = random_row(DataType::float64, 20000, 3, true);
  const std::pair<Op, long double (*)(long double)> functions[] = {
      {Op::sin, std::sin}, {Op::cos, std::cos}, {Op::tan, std::tan}};
  for (const auto& [op, function] : functions) {
    const auto result = run_rows(*cpu_, Program().add(op), {angles}, DataType::float64, Precision::double_);
    for (std::int64_t i = 0; i < angles.count; ++i)
      ASSERT_LE(ulps(result.voxels.at(i), double(function(angles.at(i)))), 1) << to_string(op) << angles.at(i);
  }
}

TEST_F(MachineTest, Atan2KnowsTheQuadrants) {
  const double pi = 3.14159265358979323846;
  expect_value(value(Program().add(Op::atan2, 1), 1), pi / 4);
  expect_value(value(Program().add(Op::atan2, -1), 1), 3 * pi / 4);
  expect_value(value(Program().add(Op::atan2, -1), -1), -3 * pi / 4);
  expect_value(value(Program().add(Op::atan2, 0), 2), pi / 2);
  expect_value(value(Program().add(Op::atan2, -2), 0), pi);
  expect_value(value(Program().add(Op::atan2, -2), -0.0), -pi);
  expect_value(value(Program().add(Op::atan2, kInfinity), -kInfinity), -pi / 4);
  expect_value(value(Program().add(Op::atan2, kNan), 1), kNan);
}

TEST_F(MachineTest, ModuloHasTheSignOfTheDivisor) {
  const double table[][3] = {{7, 3, 1},
                             {-7, 3, 2},
                             {7, -3, -2},
                             {-7, -3, -1},
                             {6, 3, 0},
                             {-6, 3, 0},
                             {6, -3, -0.0},
                             {-0.0, 5, 0},
                             {5.5, 2, 1.5},
                             {-0.25, 1, 0.75},
                             {5, kInfinity, 5},
                             {-5, kInfinity, kInfinity},
                             {1, 0, kNan},
                             {kInfinity, 2, kNan},
                             {kNan, 2, kNan},
                             {2, kNan, kNan},
                             {1e300, 3, std::fmod(1e300, 3)}};
  for (const auto& [acc, divisor, expected] : table) {
    SCOPED_TRACE(testing::Message() << acc << " mod " << divisor);
    expect_value(value(Program().add(Op::modulo, divisor), acc), expected);
    Program from_register;
    from_register.store(Operand::r9).add(Op::set, divisor).store(Operand::r12).add(Op::set, Operand::r9);
    expect_value(value(from_register.add(Op::modulo, Operand::r12), acc), expected);
  }
}

TEST_F(MachineTest, ModuloIsTheRestOfWholeMultiples) {
  const Row values = random_row(DataType::float64, 5000, 1), divisors = random_row(DataType::float64, 5000, 2);
  const auto result = run_rows(*cpu_, Program().load(1).store(Operand::r4).load(0).add(Op::modulo, Operand::r4),
                               {values, divisors}, DataType::float64, Precision::double_);
  for (std::int64_t i = 0; i < values.count; ++i) {
    const long double v = values.at(i), divisor = divisors.at(i);
    // The multiple is rounded twice in long double, 2^-64 of its size each; the rest once in double.
    ASSERT_NEAR(result.voxels.at(i), double(v - divisor * std::floor(v / divisor)), 1e-15 * (std::fabs(double(v)) + 1));
  }
}

TEST_F(MachineTest, LeastAndGreatestGiveNanWhereEitherIs) {
  for (const bool from_register : {false, true})
    for (const auto& [acc, x] : std::vector<std::pair<double, double>>{
             {1, 2}, {2, 1}, {-3, -3}, {kInfinity, 1}, {-kInfinity, 1}, {kNan, 1}, {1, kNan}, {kNan, kNan}}) {
      const auto with = [&, x = x](Op op) {
        Program program;
        if (!from_register) return program.add(op, x);
        program.store(Operand::r0).add(Op::set, x).store(Operand::r1).add(Op::set, Operand::r0);
        return program.add(op, Operand::r1);
      };
      const bool nan = std::isnan(acc) || std::isnan(x);
      expect_value(value(with(Op::least), acc), nan ? kNan : std::min(acc, x));
      expect_value(value(with(Op::greatest), acc), nan ? kNan : std::max(acc, x));
    }
}

TEST_F(MachineTest, ChooseTakesNanForTrue) {
  const std::vector<double> conditions{1, 0, -0.0, -2, kNan, kInfinity};
  Program program;  // condition in r7, 10 in acc, 20 in r15
  program.store(Operand::r7).add(Op::set, 20).store(Operand::r15).add(Op::set, 10);
  program.choose(Operand::r7, Operand::r15);
  EXPECT_EQ(values(program, conditions), (std::vector<double>{10, 20, 20, 10, 10, 10}));
  for (const double condition : conditions) {
    Program constant;
    constant.store(Operand::r1).add(Op::set, 5).add({Op::choose, Operand::immediate, 1, condition, 0});
    EXPECT_EQ(value(constant, 3), condition == 0 ? 3 : 5) << condition;
  }
}

TEST_F(MachineTest, KeepDropsNan) {
  EXPECT_EQ(values(Program().add(Op::keep_at_least, 1, -9), {0, 1, 2, kNan}), (std::vector<double>{-9, 1, 2, -9}));
  EXPECT_EQ(values(Program().add(Op::keep_at_most, 1, -9), {0, 1, 2, kNan}), (std::vector<double>{0, 1, -9, -9}));
}

TEST_F(MachineTest, CurvesGoThroughTheirPointsAndEndLevel) {
  const Curve curve{{-1, 0, 2, 5}, {3, 1, 1, 7}, false};
  EXPECT_EQ(values(Program().curve(curve), {-1, 0, 2, 5, -0.5, 1.7, 3.5, -8, 9}),
            (std::vector<double>{3, 1, 1, 7, 2, 1, 4, 3, 7}));
  EXPECT_EQ(values(Program().curve(curve), {kInfinity, -kInfinity}), (std::vector<double>{7, 3}));
  EXPECT_TRUE(std::isnan(value(Program().curve(curve), kNan)));
}

TEST_F(MachineTest, CurvesGoOnAsTheirLastPiecesDo) {
  const Curve curve{{-1, 0, 2, 5}, {3, 1, 1, 7}, true};
  EXPECT_EQ(values(Program().curve(curve), {-3, 6, kInfinity, -kInfinity}),
            (std::vector<double>{7, 9, kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(value(Program().curve(curve), kNan)));
  const Curve level{{0, 1, 2}, {4, 5, 5}, true};
  EXPECT_EQ(values(Program().curve(level), {kInfinity, 1e300}), (std::vector<double>{5, 5}));
}

TEST_F(MachineTest, CurvesOfAnySpacingAreInterpolated) {
  const Row row = random_row(DataType::float64, 20000, 5);
  for (const int points : {2, 3, 17, 256, 1000})
    for (const bool even : {false, true})
      for (const bool extrapolate : {false, true}) {
        const Curve curve = random_curve(std::uint64_t(points), points, even, extrapolate);
        const auto result =
            run_rows(*cpu_, Program().curve(curve), {row}, DataType::float64, Precision::double_).voxels;
        for (std::int64_t i = 0; i < row.count; ++i) {
          const double v = extrapolate ? row.at(i) : std::clamp(row.at(i), curve.x.front(), curve.x.back());
          const auto above = std::upper_bound(curve.x.begin() + 1, curve.x.end() - 1, v) - curve.x.begin();
          const auto k = std::size_t(above - 1);
          const double rise = curve.y[k + 1] - curve.y[k], share = (v - curve.x[k]) / (curve.x[k + 1] - curve.x[k]);
          // Four roundings of numbers no larger than the rise times the share.
          ASSERT_NEAR(result.at(i), curve.y[k] + share * rise,
                      1e-15 * (1 + std::fabs(curve.y[k]) + std::fabs(share * rise)))
              << points << " points, at " << v;
        }
      }
}

TEST_F(MachineTest, CurvesMayStandStill) {  // a point of the x axis twice: the later one holds
  const Curve step{{0, 1, 1, 2}, {0, 0, 5, 5}, false};
  EXPECT_EQ(values(Program().curve(step), {0.5, 1, 1.5}), (std::vector<double>{0, 5, 5}));
}

struct Grid {
  Index3 size;
  std::int64_t components;
  std::int64_t voxels() const { return size[0] * size[1] * size[2]; }
  std::int64_t count() const { return voxels() * components; }
  Index3 index(std::int64_t value) const {
    const std::int64_t voxel = value % voxels();
    return {voxel % size[0], voxel / size[0] % size[1], voxel / size[0] / size[1]};
  }
};

const std::vector<Grid> kGrids{{{1, 1, 1}, 3},  {{3, 5, 2}, 3},    {{1, 7, 1}, 2},
                               {{17, 1, 3}, 1}, {{1500, 3, 2}, 2}, {{33, 32, 3}, 2}};

TEST_F(MachineTest, CoordinatesAreThoseOfTheVoxel) {
  for (const Grid& grid : kGrids)
    for (int axis = 0; axis < 3; ++axis) {
      const auto found = values(Program().coordinate(axis), std::vector<double>(std::size_t(grid.count())), grid.size);
      for (std::int64_t i = 0; i < grid.count(); ++i)
        ASSERT_EQ(found[std::size_t(i)], double(grid.index(i)[std::size_t(axis)])) << axis << ", value " << i;
    }
}

/// Index i on an axis that goes on beyond its ends, by writing out one period of it; -1 for the fill.
std::int64_t extended(std::int64_t i, std::int64_t size, Boundary boundary) {
  if (boundary == Boundary::nearest) return std::clamp<std::int64_t>(i, 0, size - 1);
  if (boundary == Boundary::grid_constant) return i >= 0 && i < size ? i : -1;
  std::vector<std::int64_t> period;
  for (std::int64_t k = 0; k < size; ++k) period.push_back(k);
  if (boundary == Boundary::reflect)
    for (std::int64_t k = size - 1; k >= 0; --k) period.push_back(k);
  if (boundary == Boundary::mirror)
    for (std::int64_t k = size - 2; k > 0; --k) period.push_back(k);
  const auto length = std::int64_t(period.size());
  return period[std::size_t((i % length + length) % length)];
}

class NeighbourTest : public MachineTest {
 protected:
  void expect_neighbours(const Grid& grid, const Row& row, const Neighbour& neighbour) {
    const Row first(DataType::uint8, row.count);
    const auto result = run_rows(*cpu_, Program().neighbour(neighbour), {first, row}, DataType::float64,
                                 Precision::double_, 0, {grid.size});
    ASSERT_TRUE(result.guards_intact);
    std::vector<std::int64_t> places[3];
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (std::int64_t k = 0; k < grid.size[axis]; ++k)
        places[axis].push_back(extended(k + neighbour.offset[axis], grid.size[axis], neighbour.boundary));
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      const Index3 at = grid.index(i);
      std::int64_t place[3];
      for (std::size_t axis = 0; axis < 3; ++axis) place[axis] = places[axis][std::size_t(at[axis])];
      const bool fill = place[0] < 0 || place[1] < 0 || place[2] < 0;
      const std::int64_t element =
          i / grid.voxels() * grid.voxels() + (place[2] * grid.size[1] + place[1]) * grid.size[0] + place[0];
      ASSERT_EQ(result.voxels.at(i), fill ? neighbour.fill : row.at(element))
          << "value " << i << ", offset " << neighbour.offset[0] << " " << neighbour.offset[1] << " "
          << neighbour.offset[2] << ", boundary " << int(neighbour.boundary);
    }
  }
};

TEST_F(NeighbourTest, OfSmallImagesUnderEveryBoundary) {
  const std::int16_t shifts[] = {-7, -3, -1, 0, 1, 2, 5};
  for (std::int64_t nx = 1; nx <= 3; ++nx)
    for (std::int64_t ny = 1; ny <= 3; ++ny)
      for (std::int64_t nz = 1; nz <= 3; ++nz) {
        const Grid grid{{nx, ny, nz}, 2};
        const Row row = random_row(DataType::float32, grid.count(), 1);
        for (const Boundary boundary : kNeighbourBoundaries)
          for (const std::int16_t x : shifts)
            for (const std::int16_t y : {x, std::int16_t(0)})
              for (const std::int16_t z : shifts) expect_neighbours(grid, row, {{x, y, z}, 1, boundary, -7.5});
      }
}

TEST_F(NeighbourTest, OfLongRowsAndEveryType) {
  const Grid grid{{1500, 3, 2}, 2};
  for (const DataType type : kAllTypes)
    for (const Boundary boundary : kNeighbourBoundaries)
      for (const std::int16_t x : {-1600, -2, 0, 1, 700, 1499})
        expect_neighbours(grid, random_row(type, grid.count(), 2), {{x, -1, 1}, 1, boundary, 3});
}

TEST_F(MachineTest, FieldsAreTripleSums) {
  for (const Grid& grid : kGrids)
    for (const auto& [taps, count] : {std::pair{1, 1}, {1, 4}, {2, 3}, {4, 4}, {4, 9}, {6, 7}}) {
      const auto field = random_field(std::uint64_t(taps), grid.size, taps, count);
      const auto found = values(Program().field(field), std::vector<double>(std::size_t(grid.count())), grid.size);
      for (std::int64_t i = 0; i < grid.count(); i += 7) {
        const Index3 at = grid.index(i);
        long double sum = 0, size = 0;
        for (int c = 0; c < taps; ++c)
          for (int b = 0; b < taps; ++b)
            for (int a = 0; a < taps; ++a) {
              const auto weight = [&, taps = taps](std::size_t axis, int tap) {
                return field->axes[axis].weights[std::size_t(at[axis] * taps + tap)];
              };
              const auto first = [&](std::size_t axis) { return field->axes[axis].first[std::size_t(at[axis])]; };
              const auto place = ((first(2) + c) * count + first(1) + b) * count + first(0) + a;
              const long double term = static_cast<long double>(weight(2, c)) * weight(1, b) * weight(0, a) *
                                       field->coefficients[std::size_t(place)];
              sum += term;
              size += std::fabs(term);
            }
        // No term is rounded more than 3 taps times, 2^-53 each.
        ASSERT_NEAR(found[std::size_t(i)], double(sum), double(size) * 3 * taps * 0x1p-53) << i;
      }
    }
}

/// Runs a program value by value with the same ops, without blocks and rows.
float run_directly(const Program& program, const std::vector<Row>& inputs, const PlaceTables& tables, std::int64_t i) {
  using T = float;
  T registers[Program::kRegisters] = {}, acc = T(inputs[0].at(i));
  const Place place = place_of(tables, i);
  for (const Instruction& step : program.instructions()) {
    const T x = step.operand == Operand::immediate ? T(step.a) : registers[int(step.operand) - 1];
    const std::uint64_t key = tables.keys[step.index % Program::kMaxStreams];
    const std::int64_t value = tables.first + i;
    const auto word = [&](std::int64_t k) { return random_block(key, k / 4).word[k % 4]; };
    switch (step.op) {
      case Op::load:
        acc = T(inputs[step.index].at(i));
        break;
      case Op::store:
        registers[step.index] = acc;
        break;
      case Op::to_integer:
        acc = to_integer(acc, T(step.a), T(step.b)).value;
        break;
      case Op::choose:
        acc = x != 0 ? acc : registers[step.index];
        break;
      case Op::curve:
        acc = T(curve_at(tables.curves[step.index], acc));
        break;
      case Op::coordinate:
        acc = T(step.index == 0 ? place.x : step.index == 1 ? place.y : place.z);
        break;
      case Op::neighbour: {
        const Neighbour& neighbour = tables.neighbours[step.index];
        const std::int64_t element = neighbour_element(tables, neighbour, place);
        acc = element < 0 ? T(neighbour.fill) : T(inputs[neighbour.input].at(element));
        break;
      }
      case Op::field: {
        const FieldView& field = tables.fields[step.index];
        acc = T(field_at(field, place.x, [&](std::int64_t a) { return field_row(field, place.y, place.z, a); }));
        break;
      }
      case Op::random_uniform:
        acc = uniform_of<T>(word(value));
        break;
      case Op::random_normal:
        acc = T(normal_of(word(value & ~std::int64_t(1)), word(value | 1), value % 2 != 0));
        break;
      case Op::random_poisson:
        acc = T(poisson_of(key, value, acc));
        break;
      default:
        visit_op(step.op, [&](auto op) { acc = apply<decltype(op)::value>(acc, x, T(step.b)); });
    }
  }
  return acc;
}

TEST_F(MachineTest, RandomProgramsMatchADirectEvaluation) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Grid& grid = kGrids[seed % kGrids.size()];
    const std::vector<Row> inputs{random_row(DataType::float32, grid.count(), seed, true),
                                  random_row(DataType::int16, grid.count(), seed + 1)};
    const Program program = random_general_program(seed, int(seed % 40) + 1, 2, grid.size);
    const ProgramGrid place{grid.size, std::int64_t(seed % 3) * grid.voxels()};
    const ProgramResult result = run_rows(*cpu_, program, inputs, DataType::float32, Precision::single, 0, place);
    const PlaceTables tables = host_tables(program, place);
    for (std::int64_t i = 0; i < grid.count(); ++i)
      ASSERT_EQ(ulps(result.voxels.as<float>()[i], run_directly(program, inputs, tables, i)), 0)
          << "seed " << seed << ", value " << i << "\n"
          << program.listing();
  }
}

TEST_F(MachineTest, ResultsDoNotDependOnThreadsOrPieces) {
  const Grid grid{{97, 61, 45}, 3};
  const std::vector<Row> inputs{random_row(DataType::float32, grid.count(), 1),
                                random_row(DataType::uint8, grid.count(), 2)};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Program program = random_general_program(seed, 20, 2, grid.size);
    program.store(Operand::r5).random(Op::random_normal, 1).add(Op::add, Operand::r5);
    const auto run = [&](DeviceContext& context) {
      return run_rows(context, program, inputs, DataType::float32, Precision::single, 0, {grid.size}).voxels.bytes;
    };
    const auto expected = run(*cpu_);
    EXPECT_EQ(run(*make_context(Device::cpu(), 1)), expected);
    EXPECT_EQ(run(*make_context(Device::cpu(), 7)), expected);

    Row pieces(DataType::float32, grid.count());
    for (std::int64_t c = 0; c < grid.components; ++c) {
      const std::int64_t first = c * grid.voxels();
      const ProgramInput parts[] = {{inputs[0].as<float>() + first, DataType::float32},
                                    {inputs[1].as<std::uint8_t>() + first, DataType::uint8}};
      run_program(*cpu_, program, parts, pieces.as<float>() + first, DataType::float32, grid.voxels(),
                  Precision::single, {grid.size, first});
    }
    EXPECT_EQ(pieces.bytes, expected);
  }
}

TEST_F(MachineTest, StatisticsSeeTheSameValues) {
  const Grid grid{{33, 17, 9}, 2};
  const Row row = random_row(DataType::int16, grid.count(), 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = random_general_program(seed, 25, 1, grid.size), identity;
    const ProgramGrid place{grid.size, 5 * grid.voxels()};
    const Row written = run_rows(*cpu_, program, {row}, DataType::float32, Precision::single, 0, place).voxels;
    const ProgramInput input = row.input(), output = written.input();
    const SampledValues direct{{&input, 1}, &program, row.count, {}, Precision::single, place},
        through{{&output, 1}, &identity, row.count};
    EXPECT_EQ(compute_moments(*cpu_, direct), compute_moments(*cpu_, through)) << program.listing();
    EXPECT_EQ(compute_histogram(*cpu_, direct, -3, 40, 50), compute_histogram(*cpu_, through, -3, 40, 50));
  }
}

TEST_F(MachineTest, PlacesNeedAGrid) {
  const Row row(std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto run = [&](const Program& program, const ProgramGrid& grid) {
    return run_rows(*cpu_, program, {row}, DataType::float32, Precision::single, 0, grid);
  };
  EXPECT_THROW(run(Program().coordinate(0), {}), Error);
  EXPECT_THROW(run(Program().random(Op::random_uniform, 1), {}), Error);
  EXPECT_THROW(run(Program().coordinate(0), {{2, 2, 1}}), Error);
  EXPECT_THROW(run(Program().coordinate(0), {{3, 1, 1}, 2}), Error);
  EXPECT_NO_THROW(run(Program().coordinate(0), {{3, 1, 1}, 3}));
  EXPECT_NO_THROW(run(Program().curve({{0, 1}, {0, 1}, false}), {}));
}

TEST_F(MachineTest, ConstantsAreCountedAndShared) {
  Program program;
  for (int i = 0; i < 50; ++i) program.neighbour({{std::int16_t(i % 3), 0, 0}});
  EXPECT_EQ(program.neighbours().size(), 3u);
  for (int i = 3; i < Program::kMaxNeighbours; ++i) program.neighbour({{std::int16_t(i), 0, 0}});
  EXPECT_THROW(program.neighbour({{-1, 0, 0}}), Error);
  EXPECT_THROW(Program().add(Instruction{Op::curve}), Error);
  EXPECT_THROW(Program().curve({std::vector<double>{1}, std::vector<double>{1}, false}), Error);
  EXPECT_THROW(run_rows(*cpu_, Program().neighbour({{0, 0, 0}, 1}), {Row(std::vector<float>{1})}, DataType::float32,
                        Precision::single, 0, {{1, 1, 1}}),
               Error);
}

TEST_F(MachineTest, TheGeneralMachineIsForWhatThePlainOnesLack) {
  Program where;
  where.store(Operand::r3).add(Op::greater, 0).store(Operand::r1).choose(Operand::r1, Operand::r3);
  EXPECT_FALSE(where.add(Op::least, 2).add(Op::greatest, -2).is_general());
  EXPECT_TRUE(Program().add(Op::sin).is_general());
  EXPECT_TRUE(Program().store(Operand::r4).is_general());
  EXPECT_TRUE(Program().coordinate(1).is_general());
}

}  // namespace
}  // namespace volpipe
