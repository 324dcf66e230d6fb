// The pointwise programs and statistics on CUDA against the CPU.
#include <gtest/gtest.h>

#include "stages/pointwise/otsu.h"
#include "support/pointwise_data.h"

namespace volpipe {
namespace {

using namespace testing_support;

class PointwiseGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  /// Both devices run the program; float32 must agree to the bit, float64 to 4 ulp.
  void expect_same(const Program& program, const std::vector<Row>& inputs, DataType type, Precision precision,
                   std::int64_t offset = 0) {
    const ProgramResult expected = run_rows(*cpu_, program, inputs, type, precision);
    const ProgramResult found = run_rows(*cuda_, program, inputs, type, precision, offset);
    EXPECT_TRUE(found.guards_intact);
    EXPECT_EQ(found.counts, expected.counts);
    const double tolerance = precision == Precision::double_ ? 4 : 0;
    int shown = 0;
    for (std::int64_t i = 0; i < found.voxels.count && shown < 5; ++i) {
      const double distance = type == DataType::float64 ? ulps(found.voxels.at(i), expected.voxels.at(i))
                                                        : ulps(float(found.voxels.at(i)), float(expected.voxels.at(i)));
      if (distance > tolerance || (!is_floating(type) && found.voxels.at(i) != expected.voxels.at(i))) {
        ADD_FAILURE() << "voxel " << i << " of " << found.voxels.count << ": " << found.voxels.at(i) << ", on the CPU "
                      << expected.voxels.at(i) << ", from " << inputs[0].at(i) << "; " << distance << " ulp\n"
                      << program.listing();
        ++shown;
      }
    }
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

constexpr std::int64_t kSizes[] = {1, 2, 3, 17, 33, 1000003};

TEST_F(PointwiseGpu, EveryOpAgrees) {
  for (const Precision precision : {Precision::single, Precision::double_}) {
    const DataType type = precision == Precision::single ? DataType::float32 : DataType::float64;
    const Row values = random_row(type, 20001, 1, true), others = random_row(type, 20001, 2, true);
    for (const Op op : all_arithmetic_ops()) {
      SCOPED_TRACE(to_string(op));
      for (const double a : {0.0, 2.0, -1.5, 0.3}) expect_same(Program().add(op, a, 0.75), {values}, type, precision);
      Program from_register;
      from_register.load(1).store(Operand::r2).load(0).add(op, Operand::r2, 0.75);
      expect_same(from_register, {values, others}, type, precision);
    }
  }
}

TEST_F(PointwiseGpu, UnaryOpsRunWhateverTheirOperand) {
  const Row row(std::vector<float>{1, -2, 3});
  expect_same(Program().add(Op::negate, Operand::r2), {row}, DataType::float32, Precision::single);
  expect_same(Program().store(Operand::r2).add({Op::to_integer, Operand::r2, 0, 0, 2}), {row}, DataType::float32,
              Precision::single);
}

TEST_F(PointwiseGpu, TheSignOfNanDoesNotMatter) {
  const Row row(std::vector<float>{std::numeric_limits<float>::infinity(), 1});
  expect_same(Program().store(Operand::r0).add(Op::subtract, Operand::r0).add(Op::signed_power, 0), {row},
              DataType::float32, Precision::single);
}

TEST_F(PointwiseGpu, EveryPairOfTypesAgrees) {
  for (const DataType from : kAllTypes)
    for (const DataType to : kAllTypes)
      for (const std::int64_t size : kSizes) {
        SCOPED_TRACE(std::string(to_string(from)) + " to " + std::string(to_string(to)) + ", " + std::to_string(size));
        expect_same(Program().add(Op::multiply, 1.75), {random_row(from, size, 3, true)}, to, Precision::single,
                    size % 2 ? 0 : 1);
      }
}

TEST_F(PointwiseGpu, ComponentsAtAnyAddressAgree) {
  for (const DataType type : kAllTypes)
    for (const std::int64_t offset : {1, 2, 3, 5}) {
      const Row row = random_row(type, 5003, 4);
      expect_same(Program().add(Op::add, 1), {row}, type, Precision::single, offset);
      expect_same(Program().add(Op::add, 1), {row}, DataType::float32, Precision::single, offset);
    }
}

TEST_F(PointwiseGpu, RandomProgramsAgree) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Row> inputs{random_row(DataType::float32, 4099, seed, true),
                                  random_row(DataType::int16, 4099, seed + 1),
                                  random_row(DataType::uint8, 4099, seed + 2)};
    expect_same(random_program(seed, int(seed % 60) + 1, 3), inputs, seed % 3 ? DataType::float32 : DataType::int16,
                Precision::single);
  }
}

TEST_F(PointwiseGpu, InPlaceAgrees) {
  const Row row = random_row(DataType::float32, 100003, 5);
  const Program program = Program().add(Op::exp).add(Op::log).add(Op::power, 2);
  DeviceRow data(*cuda_, row);
  const ProgramInput input = data.input();
  run_program(*cuda_, program, {&input, 1}, data.data(), DataType::float32, row.count, Precision::single);
  EXPECT_EQ(data.fetch().bytes, run_rows(*cpu_, program, {row}, DataType::float32).voxels.bytes);
}

/// A statistic of the same rows on both devices.
struct StatisticsCase {
  std::string name;
  Row values, mask;
  Program program;
  Selection::Kind selection;
  Precision precision;

  template <class Compute>
  auto on(DeviceContext& context, Compute&& compute) const {
    DeviceRow row(context, values), mask_row(context, mask);
    const ProgramInput input = row.input();
    SampledValues sampled{{&input, 1}, &program, values.count, {selection, 0.5, mask_row.input()}, precision};
    return compute(context, sampled);
  }
};

std::vector<StatisticsCase> statistics_cases() {
  std::vector<StatisticsCase> cases;
  const auto add = [&](std::string name, Row values, Program program = {},
                       Selection::Kind selection = Selection::Kind::all, Precision precision = Precision::single) {
    cases.push_back({std::move(name), values, random_row(DataType::uint8, values.count, 9), std::move(program),
                     selection, precision});
  };
  for (const DataType type : kAllTypes) {
    for (const std::int64_t size : kSizes)
      add(std::string(to_string(type)) + " " + std::to_string(size), random_row(type, size, 6, true));
    add(std::string(to_string(type)) + ", 3000017", random_row(type, 3000017, 7));
  }
  add("float64 in double", random_row(DataType::float64, 3000017, 7, true), {}, Selection::Kind::all,
      Precision::double_);
  add("wild", random_row(DataType::float32, 3000017, 8, true));
  for (const auto selection : {Selection::Kind::nonzero, Selection::Kind::above, Selection::Kind::mask}) {
    add("selected " + std::to_string(int(selection)), random_row(DataType::float32, 3000017, 9), {}, selection);
    add("selected int16 " + std::to_string(int(selection)), random_row(DataType::int16, 70001, 9), {}, selection);
  }
  add("program", random_row(DataType::float32, 3000017, 10), Program().add(Op::multiply, 3).add(Op::exp));
  add("registers", random_row(DataType::int16, 3000017, 10),
      Program().store(Operand::r0).add(Op::abs).add(Op::add, Operand::r0));
  add("constant", Row(std::vector<float>(3000017, 3.25f)));
  add("constant, far from 0", Row(std::vector<float>(3000017, 1e6f + 0.5f)));
  Row background = random_row(DataType::float32, 3000017, 11);
  for (std::int64_t i = 0; i < background.count; ++i)
    background.as<float>()[i] =
        background.as<float>()[i] < 0.3f ? 0 : std::round(400 + 100 * background.as<float>()[i]);
  add("background of zeros", background);
  add("nonzero of it", background, {}, Selection::Kind::nonzero);
  add("none above", Row(std::vector<float>(3000017, 0.25f)), {}, Selection::Kind::above);
  add("all NaN", Row(std::vector<float>(3000017, std::nanf(""))));
  Row narrow = random_row(DataType::float32, 3000017, 12);
  for (std::int64_t i = 0; i < narrow.count; ++i)
    narrow.as<float>()[i] = 1024 + std::round(100 * narrow.as<float>()[i]);
  add("one exponent", narrow);
  Row sorted = random_row(DataType::float32, 3000017, 13);
  std::sort(sorted.as<float>(), sorted.as<float>() + sorted.count);
  add("sorted", sorted);
  Row spiked = sorted;
  std::fill_n(spiked.as<float>() + 25000, 1000000, spiked.as<float>()[25000]);
  std::sort(spiked.as<float>(), spiked.as<float>() + spiked.count);
  add("a heavy value inside a bracket", spiked);
  return cases;
}

TEST_F(PointwiseGpu, MomentsAgreeToTheBit) {
  for (const StatisticsCase& c : statistics_cases()) {
    SCOPED_TRACE(c.name);
    const auto compute = [](DeviceContext& context, const SampledValues& values) {
      return compute_moments(context, values);
    };
    const Moments expected = c.on(*cpu_, compute), found = c.on(*cuda_, compute);
    EXPECT_EQ(found.count, expected.count);
    EXPECT_EQ(found.non_finite, expected.non_finite);
    EXPECT_EQ(found.min, expected.min);
    EXPECT_EQ(found.max, expected.max);
    EXPECT_EQ(found.mean, expected.mean);
    EXPECT_EQ(found.sum_squares, expected.sum_squares);
    const auto range = [](DeviceContext& context, const SampledValues& values) {
      return compute_range(context, values);
    };
    EXPECT_EQ(c.on(*cuda_, range), range_of(expected));
  }
}

TEST_F(PointwiseGpu, PercentilesAreIdentical) {
  const std::vector<double> few{1, 99}, many{0, 0.5, 1, 5, 10, 25, 50, 50.001, 75, 90, 95, 99, 99.9, 100}, one{37};
  for (const StatisticsCase& c : statistics_cases())
    for (const auto& percents : {few, many, one}) {
      SCOPED_TRACE(c.name + ", " + std::to_string(percents.size()));
      const auto compute = [&](DeviceContext& context, const SampledValues& values) {
        return compute_percentiles(context, values, percents);
      };
      const auto expected = c.on(*cpu_, compute), found = c.on(*cuda_, compute);
      for (std::size_t i = 0; i < percents.size(); ++i)
        EXPECT_EQ(ulps(found[i], expected[i]), 0)
            << percents[i] << " %: " << found[i] << ", on the CPU " << expected[i];
    }
}

TEST_F(PointwiseGpu, HistogramsAndOtsuAreIdentical) {
  for (const StatisticsCase& c : statistics_cases()) {
    SCOPED_TRACE(c.name);
    for (const int bins : {1, 7, 256, 20000}) {
      const auto compute = [&](DeviceContext& context, const SampledValues& values) {
        return compute_histogram(context, values, -2.5, 300, bins);
      };
      EXPECT_EQ(c.on(*cuda_, compute), c.on(*cpu_, compute)) << bins;
    }
    const auto otsu = [](DeviceContext& context, const SampledValues& values) {
      return otsu_threshold(context, values);
    };
    EXPECT_EQ(ulps(c.on(*cuda_, otsu), c.on(*cpu_, otsu)), 0);
  }
}

TEST_F(PointwiseGpu, RunsAreRepeatable) {
  const StatisticsCase c{"",
                         random_row(DataType::float32, 3000017, 14),
                         Row(DataType::uint8, 1),
                         {},
                         Selection::Kind::all,
                         Precision::single};
  const auto compute = [](DeviceContext& context, const SampledValues& values) {
    return compute_moments(context, values);
  };
  const Moments first = c.on(*cuda_, compute);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(c.on(*cuda_, compute), first);
}

TEST_F(PointwiseGpu, StatisticsStayWithinTheirScratchMemory) {
  DeviceRow row(*cuda_, random_row(DataType::float32, 3000017, 15));
  const ProgramInput input = row.input();
  const Program identity;
  const SampledValues values{{&input, 1}, &identity, 3000017};
  const std::size_t before = cuda_->peak_memory();
  compute_moments(*cuda_, values);
  EXPECT_LE(cuda_->peak_memory() - before, statistics_scratch_bytes(values.count, Precision::single, false));
  compute_percentiles(*cuda_, values, std::vector<double>{1, 50, 99});
  EXPECT_LE(cuda_->peak_memory() - before, statistics_scratch_bytes(values.count, Precision::single, true));
}

TEST_F(PointwiseGpu, CountsAbove2To31AreExact) {
  const std::int64_t count = (std::int64_t(1) << 31) + 5;
  if (cuda_->free_memory() < std::size_t(count) * 2) GTEST_SKIP() << "needs 4 GB of device memory";
  Buffer buffer = cuda_->allocate(std::size_t(count));
  const ProgramInput input{buffer.data(), DataType::uint8};
  const Program constant = Program().add(Op::set, 7);
  run_program(*cuda_, constant, {&input, 1}, buffer.data(), DataType::uint8, count, Precision::single);
  const Program identity;
  const SampledValues values{{&input, 1}, &identity, count};
  const Moments moments = compute_moments(*cuda_, values);
  EXPECT_EQ(moments.count, count);
  EXPECT_EQ(moments.mean, 7);
  EXPECT_EQ(moments.sum_squares, 0);
  EXPECT_EQ(compute_percentiles(*cuda_, values, std::vector<double>{50})[0], 7);
  EXPECT_EQ(compute_histogram(*cuda_, values, 0, 8, 8)[7], count);
}

}  // namespace
}  // namespace volpipe
