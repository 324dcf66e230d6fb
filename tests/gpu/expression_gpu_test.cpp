// Random expressions in pipelines on CUDA against the CPU.
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"
#include "support/pointwise_data.h"
#include "support/random_expressions.h"

namespace volpipe {
namespace {

using namespace testing_support;

class ExpressionGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  PipelineResult run(DeviceContext& context, const Pipeline& pipeline, const ImageInfos& infos) {
    Images images;
    for (auto& [name, volume] : random_images(*cpu_, infos, 3))
      images.emplace(name, context.to_device(std::move(volume)));
    PipelineResult result = run_pipeline(context, pipeline, std::move(images));
    for (auto& [name, volume] : result.images) volume = context.to_host(std::move(volume));
    return result;
  }

  /// Nothing where the expression is too long for a program.
  static std::optional<Pipeline> fitting_pipeline(const Json& entry, const char* inputs) {
    try {
      return pipeline_of(entry.dump(), inputs);
    } catch (const SpecError& error) {
      EXPECT_NE(error.lines()[0].find("of one pass"), std::string::npos) << error.lines()[0];
      return std::nullopt;
    }
  }

  /// To the bit: single precision rounds alike on both, double where no function of the device's library is called.
  void expect_same(const std::string& expression, const Index3& size, bool in_double) {
    const Json entry = {
        {"op", "expression"}, {"expr", expression}, {"on", "image"}, {"precision", in_double ? "double" : "single"}};
    const char* const inputs =
        R"(, "inputs": {"image": {}, "a": {"suffix": "_a"}, "b": {"suffix": "_b"}, "c": {"suffix": "_c"}})";
    const auto pipeline = fitting_pipeline(entry, inputs);
    if (!pipeline) return;
    VolumeInfo info;
    info.geometry = oblique_grid(size);
    ImageInfos infos{{"image", info}, {"a", info}, {"b", info}, {"c", info}};
    infos.at("a").dtype = DataType::int16;
    infos.at("c").dtype = DataType::float64;
    const auto expected = values_of(run(*cpu_, *pipeline, infos).images.at("image"));
    const auto found = values_of(run(*cuda_, *pipeline, infos).images.at("image"));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(ulps(found[i], expected[i]), 0)
          << expression << "\nvoxel " << i << ": " << found[i] << ", on the CPU " << expected[i];
  }

  void expect_same(int count, TreeWords words, bool in_double) {
    const Index3 sizes[] = {{1, 1, 1}, {3, 2, 17}, {17, 33, 3}, {33, 17, 40}};
    for (int n = 0; n < count && !HasFatalFailure(); ++n) {
      TreeMaker maker(std::uint64_t(n) + 1000, words);
      const std::string text = maker.text(maker.tree(1 + n % 5));
      expect_same(text, sizes[n % 4], in_double);
    }
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

TEST_F(ExpressionGpu, RandomExpressionsAgree) { expect_same(400, {}, false); }

TEST_F(ExpressionGpu, RandomExpressionsWithRepeatedPartsAgree) { expect_same(400, {.repeats = true}, false); }

TEST_F(ExpressionGpu, RandomExpressionsAgreeInDouble) { expect_same(200, {.transcendental = false}, true); }

TEST_F(ExpressionGpu, ReductionsAgree) {
  for (const char* expression : {"(image - mean(image)) / std(image)", "where(a > 0, image - median(image, a > 0), c)",
                                 "sum(image * x) / sum(image) - x", "mean(abs(image - mean(image))) * sin(b)",
                                 "clamp(c, percentile(c, 2, b > 90), percentile(c, 98)) % 7",
                                 "count(image[1,0,0] > image) + max(image[0,-1,0] - image) * i"})
    for (const Index3& size : {Index3{1, 1, 1}, Index3{17, 33, 3}, Index3{130, 67, 21}})
      for (const bool in_double : {false, true}) expect_same(expression, size, in_double && expression[0] != 'm');
}

}  // namespace
}  // namespace volpipe
