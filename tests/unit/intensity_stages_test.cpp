// The intensity stages against their formulas, on degenerate images, and their faults.
#include <gtest/gtest.h>

#include <functional>

#include "stages/pointwise/otsu.h"
#include "stages/pointwise/pointwise_stage.h"
#include "stages/registry.h"
#include "support/pipeline_runs.h"
#include "support/pointwise_data.h"

namespace volpipe {
namespace {

using namespace testing_support;

struct StageResult {
  Row voxels;
  Notices notices;
  ConversionCounts counts;
  const Row* operator->() const { return &voxels; }
};

VolumeInfo info_of(DataType dtype, std::int64_t count = 1) {
  VolumeInfo info;
  info.geometry = Geometry({count, 1, 1}, Affine{});
  info.dtype = dtype;
  return info;
}

class IntensityTest : public testing::Test {
 protected:
  std::shared_ptr<const PointwiseStage> make(const Json& entry) {
    Faults faults;
    const StageDefinition* definition = find_stage(entry["op"].get<std::string>());
    auto stage = std::dynamic_pointer_cast<const PointwiseStage>(definition->make(entry, "", faults));
    EXPECT_TRUE(faults.empty()) << entry << ": " << (faults.empty() ? "" : faults.list()[0].message);
    return stage;
  }
  std::vector<std::string> faults(const Json& entry) {
    Faults faults;
    EXPECT_EQ(find_stage(entry["op"].get<std::string>())->make(entry, "/stages/0", faults), nullptr) << entry;
    std::vector<std::string> places;
    for (const Fault& fault : faults.list()) places.push_back(fault.pointer);
    return places;
  }

  /// As the planner does: statistics of the program so far, instructions, one run.
  StageResult run(const Json& entry, const Row& row, const Row* mask = nullptr) {
    const auto stage = make(entry);
    const VolumeInfo info = info_of(row.dtype, row.count);
    const ProgramInput input = row.input();
    Program program;
    std::vector<StatisticsResult> answers;
    for (const StatisticsRequest& request : stage->requests()) {
      StatisticsResult& statistics = answers.emplace_back();
      SampledValues values{{&input, 1}, &program, row.count};
      if (request.mask.kind == Mask::Kind::nonzero) values.selection.kind = Selection::Kind::nonzero;
      if (request.mask.kind == Mask::Kind::above) values.selection = {Selection::Kind::above, request.mask.threshold};
      if (request.mask.kind == Mask::Kind::foreground)
        values.selection = {Selection::Kind::above, otsu_threshold(*cpu_, values)};
      if (mask) values.selection = {Selection::Kind::mask, 0, mask->input()};
      if (request.moments) statistics.moments = compute_moments(*cpu_, values);
      else if (request.range) statistics.moments = compute_range(*cpu_, values);
      statistics.percentiles = compute_percentiles(*cpu_, values, request.percentiles);
    }
    StageResult result{Row(stage->output(info).dtype, row.count), {}, {}};
    const std::array<std::string, 1> inputs{"image"};
    stage->append(program, {info, answers, inputs, result.notices});
    result.counts = run_program(*cpu_, program, {&input, 1}, result.voxels.bytes.data(), result.voxels.dtype, row.count,
                                Precision::single);
    return result;
  }

  void expect_formula(const Json& entry, const Row& row, const std::function<double(double)>& formula,
                      double tolerance = 1e-6) {
    const StageResult result = run(entry, row);
    EXPECT_TRUE(result.notices.empty());
    EXPECT_EQ(result->dtype, DataType::float32);
    for (std::int64_t i = 0; i < row.count; ++i)
      ASSERT_NEAR(result->at(i), formula(row.at(i)), tolerance) << entry << " of " << row.at(i);
  }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

const float kNan = std::nanf("");
const float kInfinity = std::numeric_limits<float>::infinity();

Row ramp() {
  std::vector<float> values;
  for (int i = 0; i <= 100; ++i) values.push_back(float(i) * 2 - 50);  // -50 to 150, mean 50
  return Row(values);
}

TEST_F(IntensityTest, EveryStageIsDocumentedAndItsExampleRuns) {
  for (const StageDefinition& definition : stages()) {
    if (definition.family != "intensity") continue;
    SCOPED_TRACE(definition.op);
    EXPECT_FALSE(definition.summary.empty());
    for (const ParameterInfo& parameter : definition.parameters) EXPECT_FALSE(parameter.help.empty()) << parameter.name;
    for (const DataType type : kAllTypes)
      for (const std::int64_t count : {1, 2, 33}) {
        Images images = random_images(*cpu_, example_infos(definition, info_of(type, count)), 1);
        const PipelineResult result = run_pipeline(*cpu_, example_pipeline(definition), std::move(images));
        for (const auto& [name, volume] : result.images) EXPECT_EQ(volume.geometry().size()[0], count) << name;
      }
  }
}

TEST_F(IntensityTest, ClipLimits) {
  const Row row(std::vector<float>{-2, -0.5f, 0.5f, 3, kNan, kInfinity, -kInfinity});
  const auto both = run({{"op", "clip"}, {"min", -1}, {"max", 1}}, row);
  EXPECT_EQ(both->at(0), -1);
  EXPECT_EQ(both->at(1), -0.5);
  EXPECT_EQ(both->at(3), 1);
  EXPECT_TRUE(std::isnan(both->at(4)));
  EXPECT_EQ(both->at(5), 1);
  EXPECT_EQ(both->at(6), -1);
  EXPECT_EQ(run({{"op", "clip"}, {"min", 0}}, row)->at(3), 3);
  EXPECT_EQ(run({{"op", "clip"}, {"max", 0}}, row)->at(0), -2);
}

TEST_F(IntensityTest, ClipKeepsIntegersWhereTheBoundsAllow) {
  const auto type = [&](const Json& entry, DataType dtype) { return make(entry)->output(info_of(dtype)).dtype; };
  EXPECT_EQ(type({{"op", "clip"}, {"min", -1000}, {"max", 1000}}, DataType::int16), DataType::int16);
  EXPECT_EQ(type({{"op", "clip"}, {"min", -1000}, {"max", 100}}, DataType::uint8),
            DataType::uint8);  // -1000 is out of reach
  EXPECT_EQ(type({{"op", "clip"}, {"min", 300}}, DataType::uint8), DataType::float32);
  EXPECT_EQ(type({{"op", "clip"}, {"min", 0.5}}, DataType::int16), DataType::float32);
  EXPECT_EQ(type({{"op", "clip"}, {"min", 0}}, DataType::float64), DataType::float32);
  EXPECT_EQ(type({{"op", "clip"}, {"percentiles", {1, 99}}}, DataType::int16), DataType::float32);
  const Row large(std::vector<std::int32_t>{16777217, 16777219, 2147483647});
  const auto clipped = run({{"op", "clip"}, {"max", 16777218}}, large);
  EXPECT_EQ(clipped->dtype, DataType::int32);
  EXPECT_EQ(clipped->at(0), 16777217);
  EXPECT_EQ(clipped->at(1), 16777218);
}

TEST_F(IntensityTest, ClipToPercentiles) {
  expect_formula({{"op", "clip"}, {"percentiles", {10, 90}}}, ramp(),
                 [](double v) { return std::clamp(v, -30.0, 130.0); });
}

TEST_F(IntensityTest, Threshold) {
  const Row row(std::vector<float>{-2, -1, 0, 1, 2, kNan});
  const auto values = [&](const Json& entry) {
    const auto result = run(entry, row);
    std::vector<double> list;
    for (int i = 0; i < 6; ++i) list.push_back(result->at(i));
    return list;
  };
  EXPECT_EQ(values({{"op", "threshold"}, {"above", -1}, {"below", 1}, {"value", 9}}),
            (std::vector<double>{9, -1, 0, 1, 9, 9}));
  EXPECT_EQ(values({{"op", "threshold"}, {"above", 0}, {"value", -5}}), (std::vector<double>{-5, -5, 0, 1, 2, -5}));
  EXPECT_EQ(values({{"op", "threshold"}, {"below", 0}}), (std::vector<double>{-2, -1, 0, 0, 0, 0}));
  EXPECT_EQ(make({{"op", "threshold"}, {"above", 0.5}, {"value", 3}})->output(info_of(DataType::uint8)).dtype,
            DataType::uint8);
  EXPECT_EQ(make({{"op", "threshold"}, {"above", 1}, {"value", -1}})->output(info_of(DataType::uint8)).dtype,
            DataType::float32);
}

TEST_F(IntensityTest, RescaleFromTheImagesRange) {
  expect_formula({{"op", "rescale"}}, ramp(), [](double v) { return (v + 50) / 200; });
  expect_formula(
      {{"op", "rescale"}, {"to", {255, 0}}}, ramp(), [](double v) { return 255 - (v + 50) / 200 * 255; }, 1e-4);
  const auto result = run({{"op", "rescale"}, {"to", {-1, 1}}}, random_row(DataType::float32, 5000, 2));
  double low = 2, high = -2;
  for (std::int64_t i = 0; i < 5000; ++i) low = std::min(low, result->at(i)), high = std::max(high, result->at(i));
  EXPECT_EQ(low, -1);
  EXPECT_NEAR(high, 1, 1e-7);
  EXPECT_LE(high, 1);
}

TEST_F(IntensityTest, RescaleFromAGivenRange) {
  expect_formula({{"op", "rescale"}, {"from", {0, 100}}}, ramp(), [](double v) { return v / 100; });
  expect_formula({{"op", "rescale"}, {"from", {0, 100}}, {"clip", true}}, ramp(),
                 [](double v) { return std::clamp(v / 100, 0.0, 1.0); });
}

TEST_F(IntensityTest, RescaleFromPercentiles) {
  const Json percentiles = {{"percentiles", {10, 90}}};
  expect_formula(
      {{"op", "rescale"}, {"from", percentiles}, {"to", {0, 200}}}, ramp(),
      [](double v) { return (v + 30) / 160 * 200; }, 1e-4);
  expect_formula(
      {{"op", "rescale"}, {"from", percentiles}, {"to", {0, 200}}, {"relative", true}}, ramp(),
      [](double v) { return (v + 30) / 160 * 160 + 20; }, 1e-4);
  expect_formula(
      {{"op", "rescale"}, {"from", percentiles}, {"to", {0, 200}}, {"relative", true}, {"clip", true}}, ramp(),
      [](double v) { return std::clamp((v + 30) / 160 * 160 + 20, 20.0, 180.0); }, 1e-4);
}

TEST_F(IntensityTest, RescaleOfDegenerateImages) {
  const auto constant = run({{"op", "rescale"}, {"to", {-1, 1}}}, Row(std::vector<float>{5, 5, kNan}));
  EXPECT_EQ(constant->at(0), -1);
  EXPECT_TRUE(std::isnan(constant->at(2)));
  EXPECT_EQ(constant.notices.list()[0].code, "constant_image");
  const auto nothing = run({{"op", "rescale"}}, Row(std::vector<float>{kInfinity, kNan}));
  EXPECT_EQ(nothing->at(0), kInfinity);
  EXPECT_EQ(nothing.notices.list()[0].code, "no_voxels");
}

TEST_F(IntensityTest, NormalizeByEveryMethod) {
  const double variance = 4 * (101.0 * 101 - 1) / 12;
  expect_formula({{"op", "normalize"}}, ramp(), [&](double v) { return (v - 50) / std::sqrt(variance); });
  expect_formula({{"op", "normalize"}, {"ddof", 1}}, ramp(),
                 [&](double v) { return (v - 50) / std::sqrt(variance * 101 / 100); });
  expect_formula({{"op", "normalize"}, {"method", "minmax"}}, ramp(), [](double v) { return (v + 50) / 200; });
  expect_formula({{"op", "normalize"}, {"method", "mean"}}, ramp(), [](double v) { return (v - 50) / 200; });
  expect_formula({{"op", "normalize"}, {"method", "median_iqr"}}, ramp(), [](double v) { return (v - 50) / 100; });
}

TEST_F(IntensityTest, NormalizeOfIntegersIsNotTruncated) {
  const auto result = run({{"op", "normalize"}}, Row(std::vector<std::int16_t>{0, 1, 2, 3}));
  EXPECT_NEAR(result->at(1), -0.5 / std::sqrt(1.25), 1e-7);
}

TEST_F(IntensityTest, NormalizeFarFromZeroKeepsItsDigits) {
  std::vector<float> values;
  for (int i = 0; i < 1001; ++i) values.push_back(1e6f + float(i % 3) * 0.0625f);
  const Row row(values);
  double mean = 0, squares = 0;
  for (const float v : values) mean += double(v) / 1001;
  for (const float v : values) squares += (v - mean) * (v - mean) / 1001;
  expect_formula(
      {{"op", "normalize"}}, row, [&](double v) { return (v - mean) / std::sqrt(squares); }, 2e-6);
}

TEST_F(IntensityTest, NormalizeUnderMasks) {
  const Row row(std::vector<float>{0, 0, 2, 4, 6, -0.0f, kNan});
  const double std = std::sqrt(8.0 / 3);
  const auto nonzero = run({{"op", "normalize"}, {"mask", "nonzero"}}, row);
  EXPECT_EQ(nonzero->at(0), 0);
  EXPECT_NEAR(nonzero->at(2), -2 / std, 1e-6);
  EXPECT_EQ(nonzero->at(3), 0);
  EXPECT_EQ(nonzero->at(5), 0);
  EXPECT_TRUE(std::isnan(nonzero->at(6)));
  const auto above = run({{"op", "normalize"}, {"mask", {{"above", 1}}}}, row);
  EXPECT_NEAR(above->at(0), -4 / std, 1e-6);
  const Row label(std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0, 1});
  const auto masked = run({{"op", "normalize"}, {"mask", "label"}}, row, &label);
  EXPECT_NEAR(masked->at(3), 3, 1e-6);
}

TEST_F(IntensityTest, NormalizeOfDegenerateImages) {
  const auto constant = run({{"op", "normalize"}}, Row(std::vector<float>{7, 7, 7, kNan, kInfinity}));
  EXPECT_EQ(constant->at(0), 0);
  EXPECT_TRUE(std::isnan(constant->at(3)));
  EXPECT_EQ(constant->at(4), kInfinity);
  EXPECT_EQ(constant.notices.list()[0].code, "constant_image");
  const auto single = run({{"op", "normalize"}, {"mask", "nonzero"}}, Row(std::vector<float>{0, 0, 3}));
  EXPECT_EQ(single->at(2), 0);
  const auto empty = run({{"op", "normalize"}, {"mask", "nonzero"}}, Row(std::vector<float>{0, 0, 0}));
  EXPECT_EQ(empty->at(0), 0);
  EXPECT_EQ(empty.notices.list()[0].code, "no_voxels");
  EXPECT_EQ(run({{"op", "normalize"}, {"method", "median_iqr"}}, Row(std::vector<float>{1, 1, 1, 1, 9}))
                .notices.list()[0]
                .code,
            "constant_image");
}

TEST_F(IntensityTest, NormalizeByTheForegroundOfAConstantImageIsZero) {
  for (const char* method : {"zscore", "median_iqr"}) {
    const StageResult result =
        run({{"op", "normalize"}, {"method", method}, {"mask", "foreground"}}, Row(std::vector<float>{5, 5, kNan}));
    EXPECT_EQ(result->at(0), 0);
    EXPECT_EQ(result->at(1), 0);
    EXPECT_TRUE(std::isnan(result->at(2)));
    ASSERT_EQ(result.notices.list().size(), 1u);
    EXPECT_EQ(result.notices.list()[0].code, "constant_image");
  }
}

TEST_F(IntensityTest, NormalizePerComponentAsksForIt) {
  EXPECT_EQ(make({{"op", "normalize"}, {"per", "component"}})->requests()[0].over, StatisticsRequest::Over::component);
  EXPECT_EQ(make({{"op", "normalize"}})->requests()[0].over, StatisticsRequest::Over::volume);
}

TEST_F(IntensityTest, Window) {
  expect_formula({{"op", "window"}, {"center", 50}, {"width", 100}}, ramp(),
                 [](double v) { return std::clamp(v / 100, 0.0, 1.0); });
  expect_formula(
      {{"op", "window"}, {"preset", "brain"}, {"to", {0, 255}}}, ramp(),
      [](double v) { return std::clamp(v / 80, 0.0, 1.0) * 255; }, 1e-4);
}

TEST_F(IntensityTest, Gamma) {
  expect_formula(
      {{"op", "gamma"}, {"gamma", 2}}, ramp(), [](double v) { return std::pow((v + 50) / 200, 2) * 200 - 50; }, 1e-4);
  expect_formula(
      {{"op", "gamma"}, {"gamma", 0.5}}, ramp(), [](double v) { return std::sqrt((v + 50) / 200) * 200 - 50; }, 1e-4);
  const auto constant = run({{"op", "gamma"}, {"gamma", 2}}, Row(std::vector<float>{3, 3}));
  EXPECT_EQ(constant->at(0), 3);
  EXPECT_EQ(constant.notices.list()[0].code, "constant_image");
}

TEST_F(IntensityTest, RangesThatOverflowFloat32) {
  for (const float end : {2e38f, std::numeric_limits<float>::max()}) {
    const Row row(std::vector<float>{-end, -end / 2, 0, end / 2, end, kNan});
    const auto rescaled = run({{"op", "rescale"}}, row);
    const auto normalized = run({{"op", "normalize"}, {"method", "minmax"}}, row);
    const auto curved = run({{"op", "gamma"}, {"gamma", 2}}, row);
    for (int i = 0; i < 5; ++i) {
      const double share = i / 4.0;
      EXPECT_NEAR(rescaled->at(i), share, 1e-6);
      EXPECT_NEAR(normalized->at(i), share, 1e-6);
      EXPECT_NEAR(curved->at(i) / double(end), 2 * share * share - 1, 1e-6);
    }
    EXPECT_TRUE(std::isnan(curved->at(5)));
  }
}

TEST_F(IntensityTest, CastSaturatesAndCounts) {
  const Row row(std::vector<float>{-300, -0.5f, 0.49f, 0.5f, 2.5f, 200, 300, kNan, kInfinity});
  const auto result = run({{"op", "cast"}, {"dtype", "uint8"}}, row);
  const std::vector<double> expected{0, 0, 0, 1, 3, 200, 255, 0, 255};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(result->at(std::int64_t(i)), expected[i]);
  EXPECT_EQ(result.counts, (ConversionCounts{4, 1}));  // -0.5 rounds to -1
  EXPECT_EQ(run({{"op", "cast"}, {"dtype", "int16"}, {"round", false}}, Row(std::vector<float>{-1.9f, 1.9f}))->at(0),
            -1);
}

TEST_F(IntensityTest, CastWrapsAsIntegersDo) {
  for (const DataType type :
       {DataType::uint8, DataType::int8, DataType::uint16, DataType::int16, DataType::uint32, DataType::int32}) {
    const Row row(std::vector<std::int32_t>{0, 1, -1, 127, 128, -128, -129, 255, 256, 70000, -70000, 2147483647,
                                            -2147483647 - 1});
    const auto result = run({{"op", "cast"}, {"dtype", std::string(to_string(type))}, {"saturate", false}}, row);
    visit(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t i = 0; i < row.count; ++i)
        EXPECT_EQ(result->at(i), double(T(row.as<std::int32_t>()[i]))) << to_string(type);
    });
    EXPECT_EQ(result.counts, ConversionCounts{});
  }
}

TEST_F(IntensityTest, CastOf32BitIntegersIsExact) {
  const Row row(std::vector<std::uint32_t>{16777217, 4294967295u, 2147483649u});
  EXPECT_EQ(run({{"op", "cast"}, {"dtype", "float64"}}, row)->at(1), 4294967295.0);
  EXPECT_EQ(run({{"op", "cast"}, {"dtype", "int32"}}, row)->at(0), 16777217);
  EXPECT_EQ(run({{"op", "cast"}, {"dtype", "int32"}}, row).counts.saturated, 2);
}

TEST_F(IntensityTest, WrongParametersAreFaultsInTheirPlace) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"op", "clip"}}, ""},
      {{{"op", "clip"}, {"min", 2}, {"max", 1}}, "/min"},
      {{{"op", "clip"}, {"min", "low"}}, "/min"},
      {{{"op", "clip"}, {"min", 1}, {"percentiles", {1, 99}}}, "/percentiles"},
      {{{"op", "clip"}, {"percentiles", {1, 101}}}, "/percentiles"},
      {{{"op", "clip"}, {"percentiles", {99, 1}}}, "/percentiles"},
      {{{"op", "threshold"}}, ""},
      {{{"op", "threshold"}, {"above", 2}, {"below", 1}}, "/above"},
      {{{"op", "rescale"}, {"from", {1, 1}}}, "/from"},
      {{{"op", "rescale"}, {"from", "all"}}, "/from"},
      {{{"op", "rescale"}, {"from", {{"percentiles", {-1, 50}}}}}, "/from"},
      {{{"op", "rescale"}, {"to", 1}}, "/to"},
      {{{"op", "rescale"}, {"relative", true}}, "/relative"},
      {{{"op", "normalize"}, {"method", "z"}}, "/method"},
      {{{"op", "normalize"}, {"ddof", -1}}, "/ddof"},
      {{{"op", "normalize"}, {"per", "slice"}}, "/per"},
      {{{"op", "window"}}, ""},
      {{{"op", "window"}, {"center", 0}}, ""},
      {{{"op", "window"}, {"center", 0}, {"width", 0}}, "/width"},
      {{{"op", "window"}, {"preset", "lung"}, {"width", 3}}, "/preset"},
      {{{"op", "gamma"}}, ""},
      {{{"op", "gamma"}, {"gamma", 0}}, "/gamma"},
      {{{"op", "cast"}}, ""},
      {{{"op", "cast"}, {"dtype", "float16"}}, "/dtype"}};
  for (const auto& [entry, place] : cases)
    EXPECT_EQ(faults(entry), std::vector<std::string>{"/stages/0" + place}) << entry;
}

}  // namespace
}  // namespace volpipe
