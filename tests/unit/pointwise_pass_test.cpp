// Fused passes against one stage after another, and statistics of images with fewer components than the others.
#include <gtest/gtest.h>

#include <numeric>

#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;

class PointwisePassTest : public testing::Test {
 protected:
  template <class T>
  Volume volume(const std::vector<T>& values, std::int64_t components = 1) {
    VolumeInfo info{Geometry({std::int64_t(values.size()) / components, 1, 1}, Affine{}), data_type_of<T>(),
                    components};
    Volume result(info, cpu_->allocate_host(info.bytes()));
    std::copy(values.begin(), values.end(), result.data_as<T>());
    return result;
  }

  template <class T>
  std::vector<double> run(const std::string& stages, const std::vector<T>& values, const char* fuse = "auto") {
    Images images;
    images.emplace("image", volume(values));
    const Pipeline pipeline = pipeline_of(stages, std::string(R"(, "fuse": ")") + fuse + "\"");
    return values_of(run_pipeline(*cpu_, pipeline, std::move(images)).images.at("image"));
  }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
};

TEST_F(PointwisePassTest, IntegersHaveNoNegativeZero) {
  for (const char* integers :
       {R"({"op": "cast", "dtype": "uint8"})", R"({"op": "expression", "expr": "this", "dtype": "int16"})"})
    for (const char* fuse : {"auto", "none"})
      EXPECT_EQ(run<float>(std::string(integers) + R"(, {"op": "expression", "expr": "1 / this"})", {-0.3f}, fuse)[0],
                std::numeric_limits<double>::infinity())
          << integers << fuse;
}

TEST_F(PointwisePassTest, AStageDoesNotChangeThePrecisionOfItsNeighbours) {
  const std::vector<std::uint32_t> wide{4294967291, 4294967290, 5, 3};
  const std::vector<float> ramp{0, 1, 2, 3};
  for (const char* stages :
       {R"({"op": "expression", "expr": "this"}, {"op": "expression", "expr": "this == 4294967290"})",
        R"({"op": "scale", "factor": 1}, {"op": "shift", "offset": -4294967290})"})
    EXPECT_EQ(run(stages, wide), run(stages, wide, "none")) << stages;
  const char* then_in_double =
      R"({"op": "expression", "expr": "this * 0.1 + 1e7"}, {"op": "shift", "offset": -1e7, "precision": "double"})";
  EXPECT_EQ(run(then_in_double, ramp), run(then_in_double, ramp, "none"));
}

TEST_F(PointwisePassTest, StatisticsOfFewerComponentsCountEachVoxelOnce) {
  std::vector<float> ramp(10);
  std::iota(ramp.begin(), ramp.end(), 0.0f);
  const std::pair<const char*, double> cases[] = {
      {"percentile(a, 15)", 1.35}, {"sum(a)", 45},       {"count(a >= 0)", 10}, {"count(1)", 10}, {"sum(i)", 45},
      {"sum(i + 0 * c)", 90},      {"mean(a, i < 5)", 2}};
  for (const auto& [expression, expected] : cases) {
    Images images;
    images.emplace("a", volume(ramp));
    images.emplace("c", volume(std::vector<float>(20), 2));
    const Pipeline pipeline =
        pipeline_of(R"({"op": "expression", "expr": ")" + std::string(expression) + R"( + 0 * c", "output": "r"})",
                    R"(, "inputs": {"a": {"suffix": "_a"}, "c": {"suffix": "_c"}})");
    const std::vector<double> values = values_of(run_pipeline(*cpu_, pipeline, std::move(images)).images.at("r"));
    ASSERT_EQ(values.size(), 20u);
    for (const double value : values) EXPECT_NEAR(value, expected, 1e-5) << expression;  // float32 of 1 to 90
  }
}

}  // namespace
}  // namespace volpipe
