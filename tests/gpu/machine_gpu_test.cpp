// The general machine on CUDA against the CPU: its ops one by one, programs of all of them, their statistics.
#include <gtest/gtest.h>

#include "support/general_programs.h"

namespace volpipe {
namespace {

using namespace testing_support;

/// Up to where float32 sines are the machine's own arithmetic, the same everywhere.
constexpr double kOwnSines = 134217728;

class MachineGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  struct Case {
    const Program& program;
    const std::vector<Row>& inputs;
    DataType type = DataType::float32;
    Precision precision = Precision::single;
    ProgramGrid grid{};
    std::int64_t offset = 0;  ///< of the rows in their memory on the GPU
  };

  /// tolerance(i): in ulp, of value i.
  template <class Tolerance>
  void expect_within(const Case& c, Tolerance&& tolerance) {
    const ProgramResult expected = run_rows(*cpu_, c.program, c.inputs, c.type, c.precision, 0, c.grid);
    const ProgramResult found = run_rows(*cuda_, c.program, c.inputs, c.type, c.precision, c.offset, c.grid);
    EXPECT_TRUE(found.guards_intact);
    EXPECT_EQ(found.counts, expected.counts);
    int shown = 0;
    for (std::int64_t i = 0; i < found.voxels.count && shown < 5; ++i) {
      const double here = found.voxels.at(i), there = expected.voxels.at(i);
      const double distance = c.type == DataType::float64 ? ulps(here, there) : ulps(float(here), float(there));
      if (distance <= tolerance(i)) continue;
      ADD_FAILURE() << "value " << i << " of " << found.voxels.count << ": " << here << ", on the CPU " << there
                    << ", from " << c.inputs[0].at(i) << "; " << distance << " ulp\n"
                    << c.program.listing();
      ++shown;
    }
  }
  void expect_same(const Case& c, double tolerance = 0) {
    expect_within(c, [=](std::int64_t) { return tolerance; });
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

const Index3 kGrids[] = {{1, 1, 1},  {2, 1, 1}, {3, 1, 1},   {1, 3, 5},  {17, 1, 2},
                         {33, 2, 3}, {4, 4, 4}, {129, 7, 3}, {128, 8, 4}};

std::int64_t voxels_of(const Index3& size) { return size[0] * size[1] * size[2]; }

TEST_F(MachineGpu, EveryOpAgrees) {
  for (const Precision precision : {Precision::single, Precision::double_}) {
    const DataType type = precision == Precision::single ? DataType::float32 : DataType::float64;
    const Row values = random_row(type, 20001, 1, true), others = random_row(type, 20001, 2, true);
    for (const Op op : general_arithmetic_ops()) {
      SCOPED_TRACE(to_string(op));
      const auto tolerance = [&](std::int64_t i) {
        const bool own = op == Op::modulo || (op != Op::atan2 && std::fabs(values.at(i)) <= kOwnSines);
        return precision == Precision::double_ ? 4.0 : own ? 0.0 : 1.0;
      };
      for (const double a : {0.0, 2.0, -1.5, 0.3})
        expect_within({Program().add(op, a), {values}, type, precision}, tolerance);
      Program from_register;
      from_register.load(1).store(Operand::r11).load(0).add(op, Operand::r11);
      expect_within({from_register, {values, others}, type, precision}, tolerance);
    }
  }
}

TEST_F(MachineGpu, PlainOpsAgreeBesideGeneralOnes) {
  for (const Precision precision : {Precision::single, Precision::double_}) {
    const DataType type = precision == Precision::single ? DataType::float32 : DataType::float64;
    const Row values = random_row(type, 20001, 1, true), others = random_row(type, 20001, 2, true);
    const double tolerance = precision == Precision::double_ ? 4 : 0;
    for (const Op op : all_arithmetic_ops()) {
      for (const double a : {0.0, 2.0, -1.5, std::nan("")})
        expect_same({Program().store(Operand::r14).add(op, a, 0.75), {values}, type, precision}, tolerance);
      Program from_register;
      from_register.load(1).store(Operand::r14).load(0).add(op, Operand::r14, 0.75);
      expect_same({from_register, {values, others}, type, precision}, tolerance);
    }
  }
}

TEST_F(MachineGpu, ChoiceOnThePlainMachinesAgrees) {
  const std::vector<Row> inputs{random_row(DataType::float32, 20001, 1, true), random_row(DataType::uint8, 20001, 2),
                                random_row(DataType::int16, 20001, 3)};
  for (int condition = 0; condition < 4; ++condition)
    for (int otherwise = 0; otherwise < 4; ++otherwise) {
      Program program;
      program.load(1).add(Op::greater, 100).store(register_number(condition));
      program.load(2).store(register_number(otherwise)).load(0);
      program.choose(register_number(condition), register_number(otherwise)).add(Op::least, 3).add(Op::greatest, -3);
      expect_same({program, inputs});
      expect_same({program.add(Op::exp), inputs});
    }
  for (const double known : {0.0, -0.0, 1.0, std::nan("")}) {
    Program program;
    program.load(1).store(Operand::r1).load(0).add({Op::choose, Operand::immediate, 1, known, 0});
    expect_same({program, inputs});
  }
}

TEST_F(MachineGpu, RandomProgramsAgree) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Index3& size = kGrids[seed % std::size(kGrids)];
    const std::int64_t components = 1 + std::int64_t(seed % 4), count = components * voxels_of(size);
    const std::vector<Row> inputs{random_row(DataType::float32, count, seed, true),
                                  random_row(DataType::int16, count, seed + 1),
                                  random_row(kAllTypes[seed % std::size(kAllTypes)], count, seed + 2)};
    const Program program = random_general_program(seed, int(seed % 40) + 1, 3, size);
    const std::vector<ProgramInput> loads{inputs[0].input(), inputs[1].input(), inputs[2].input()};
    const DataType type = seed % 3 ? DataType::float32 : DataType::int16;
    if (needed_precision(program, loads, type, Precision::single) == Precision::double_) continue;
    const ProgramGrid grid{size, std::int64_t(seed % 5) * voxels_of(size)};
    expect_same({program, inputs, type, Precision::single, grid, std::int64_t(seed % 4)});
  }
}

TEST_F(MachineGpu, PlacesAgreeInEveryTypeAndPrecision) {
  for (const Index3& size : kGrids)
    for (const DataType type : kAllTypes)
      for (const Precision precision : {Precision::single, Precision::double_}) {
        const std::int64_t count = 3 * voxels_of(size);
        const std::vector<Row> inputs{random_row(type, count, 1)};
        const DataType result = precision == Precision::single ? type : DataType::float64;
        const ProgramGrid grid{size, 2 * voxels_of(size)};
        for (const Boundary boundary : kNeighbourBoundaries)
          for (const std::int16_t shift : {-5, -1, 0, 1, 2, 3, 40}) {
            const Neighbour neighbour{{shift, std::int16_t(-shift), 1}, 0, boundary, 7};
            expect_same({Program().neighbour(neighbour), inputs, result, precision, grid, shift == 2 ? 3 : 0});
          }
        for (int axis = 0; axis < 3; ++axis) expect_same({Program().coordinate(axis), inputs, result, precision, grid});
        for (const auto& [taps, coefficients] : {std::pair{1, 3}, {4, 4}, {4, 7}, {5, 6}})
          expect_same({Program().field(random_field(3, size, taps, coefficients)), inputs, result, precision, grid});
        expect_same({Program().curve(random_curve(4, 256, size[0] % 2, true)), inputs, result, precision, grid});
      }
}

TEST_F(MachineGpu, DrawsAreTheSame) {
  for (const Index3& size : kGrids)
    for (const std::int64_t component : {0, 1, 2, 3})
      for (const Precision precision : {Precision::single, Precision::double_})
        for (const Op op : {Op::random_uniform, Op::random_normal, Op::random_poisson}) {
          const std::int64_t count = 2 * voxels_of(size);
          const DataType type = precision == Precision::single ? DataType::float32 : DataType::float64;
          Row means = random_row(type, count, 1, true);
          expect_same(
              {Program().random(op, 0x123456789abcdef), {means}, type, precision, {size, component * voxels_of(size)}});
        }
}

TEST_F(MachineGpu, PoissonDrawsOfEveryMeanAreTheSame) {
  const std::int64_t count = 100003;
  Row means(DataType::float32, count);
  for (std::int64_t i = 0; i < count; ++i) means.as<float>()[i] = float(std::exp2(double(i % 400) / 10 - 8));
  expect_same(
      {Program().random(Op::random_poisson, 3), {means}, DataType::float32, Precision::single, {{count, 1, 1}}});
}

TEST_F(MachineGpu, AVolumeOfOddSizeAgrees) {
  const Index3 size{257, 255, 259};
  const std::int64_t count = voxels_of(size);
  const std::vector<Row> inputs{random_row(DataType::float32, count, 1), random_row(DataType::int16, count, 2)};
  Program program;
  program.coordinate(0).store(Operand::r0).neighbour({{-1, 1, -1}, 1, Boundary::mirror}).add(Op::add, Operand::r0);
  program.store(Operand::r9).field(random_field(1, size, 4, 9)).add(Op::multiply, Operand::r9).store(Operand::r9);
  program.random(Op::random_normal, 5).add(Op::add, Operand::r9).curve(random_curve(2, 256, true, true));
  expect_same({program, inputs, DataType::float32, Precision::single, {size}});
  expect_same({program, inputs, DataType::int16, Precision::single, {size}});
}

TEST_F(MachineGpu, StatisticsOfGeneralProgramsAreIdentical) {
  const std::vector<double> percents{0, 1, 37, 50, 99, 100};
  for (const Index3& size : {Index3{17, 9, 5}, Index3{129, 97, 85}})
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      const std::int64_t count = 2 * voxels_of(size);
      const Row values = random_row(kAllTypes[seed % std::size(kAllTypes)], count, seed),
                mask = random_row(DataType::uint8, count, 9);
      Program program = random_general_program(seed, 12, 1, size);
      program.store(Operand::r0).random(Op::random_normal, seed).add(Op::add, Operand::r0);
      SCOPED_TRACE(program.listing());
      const auto on = [&](DeviceContext& context, auto&& compute) {
        DeviceRow row(context, values), mask_row(context, mask);
        const ProgramInput input = row.input();
        const auto kind = Selection::Kind(seed % 4);
        return compute(context, SampledValues{{&input, 1},
                                              &program,
                                              count,
                                              {kind, 0.5, mask_row.input()},
                                              Precision::single,
                                              {size, 3 * voxels_of(size)}});
      };
      const ProgramInput input = values.input();
      if (needed_precision(program, {&input, 1}, DataType::float32, Precision::single) == Precision::double_) continue;
      const auto moments = [](DeviceContext& context, const SampledValues& v) { return compute_moments(context, v); };
      const auto range = [](DeviceContext& context, const SampledValues& v) { return compute_range(context, v); };
      const auto histogram = [](DeviceContext& context, const SampledValues& v) {
        return compute_histogram(context, v, -3, 40, 50);
      };
      const auto percentiles = [&](DeviceContext& context, const SampledValues& v) {
        return compute_percentiles(context, v, percents);
      };
      const Moments expected = on(*cpu_, moments);
      EXPECT_EQ(on(*cuda_, moments), expected);
      EXPECT_EQ(on(*cuda_, range), range_of(expected));
      EXPECT_EQ(on(*cuda_, histogram), on(*cpu_, histogram));
      const auto found = on(*cuda_, percentiles), there = on(*cpu_, percentiles);
      for (std::size_t i = 0; i < percents.size(); ++i) EXPECT_EQ(ulps(found[i], there[i]), 0) << percents[i];
    }
}

TEST_F(MachineGpu, StatisticsStayWithinTheirScratchMemory) {
  const std::int64_t count = 3000017;
  DeviceRow row(*cuda_, random_row(DataType::float32, count, 15));
  const ProgramInput input = row.input();
  const Program program = Program().add(Op::sin);
  const SampledValues values{{&input, 1}, &program, count};
  const std::size_t before = cuda_->peak_memory();
  compute_moments(*cuda_, values);
  EXPECT_LE(cuda_->peak_memory() - before, statistics_scratch_bytes(count, Precision::single, false, true));
  compute_percentiles(*cuda_, values, std::vector<double>{1, 50, 99});
  EXPECT_LE(cuda_->peak_memory() - before, statistics_scratch_bytes(count, Precision::single, true, true));
}

}  // namespace
}  // namespace volpipe
