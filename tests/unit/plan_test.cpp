// Plans: what is fused, what is not and why, and that fusing changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::HasSubstr;

const char* const kImageAndLabel =
    R"(, "inputs": {"image": {}, "label": {"suffix": "_seg", "kind": "label", "optional": true}})";

VolumeInfo info_of(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
  return {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
}

Plan plan_of(const Pipeline& pipeline, const ImageInfos& infos) { return make_plan(pipeline, infos, {}); }

TEST(Plan, FusesPointwiseRunsAndMapsOfTheGrid) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "flip", "axes": "x"}, {"op": "resample", "spacing": 1}, {"op": "crop", "start": [1, 1, 1], "size": 3},
                                           {"op": "clip", "min": 0}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1})");
  const Plan plan = plan_of(pipeline, {{"image", info_of({9, 8, 7})}});
  ASSERT_EQ(plan.groups.size(), 3u);
  EXPECT_THAT(plan.groups[0].stages, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.groups[1].stages, testing::ElementsAre(3, 4));
  EXPECT_THAT(plan.groups[1].ended_by, HasSubstr("a geometric stage follows"));
  EXPECT_EQ(plan.outputs.at("image").geometry.size(), (Index3{3, 3, 3}));
}

TEST(Plan, CountsTheScratchMemoryOfPercentiles) {
  const VolumeInfo info = info_of({256, 256, 256});
  const auto peak = [&](const char* stage) { return plan_of(pipeline_of(stage), {{"image", info}}).peak_device_bytes; };
  EXPECT_GE(peak(R"({"op": "clip", "percentiles": [1, 99]})"), peak(R"({"op": "clip", "min": 0})") + info.bytes() / 8);
}

TEST(Plan, CountsTheValuesThatTheGeneralMachineWritesForStatistics) {
  const VolumeInfo info = info_of({64, 64, 64});
  const std::string noise = R"({"op": "noise", "kind": "gaussian", "std": 1})", zscore = R"({"op": "normalize"})";
  const Plan measured = plan_of(pipeline_of(noise + ", " + zscore), {{"image", info}}),
             after = plan_of(pipeline_of(zscore + ", " + noise), {{"image", info}});
  EXPECT_EQ(measured.groups.size(), 1u);
  EXPECT_EQ(measured.peak_device_bytes, after.peak_device_bytes + info.bytes());
}

TEST(Plan, DoesNotComposeTwoInterpolations) {
  const Plan plan = plan_of(pipeline_of(R"({"op": "resample", "spacing": 1}, {"op": "resize", "size": 5})"),
                            {{"image", info_of({9, 8, 7})}});
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_THAT(plan.groups[0].ended_by, HasSubstr("would change the result"));
}

TEST(Plan, DoublePrecisionHoldsWhereAComputingStageCopies) {
  for (const char* stage : {R"({"op": "resize", "size": 4, "precision": "double"})",
                            R"({"op": "gaussian", "sigma": 0, "precision": "double"})",
                            R"({"op": "resize", "size": [4, 2, 1], "antialias": false, "precision": "double"})"}) {
    const Plan plan = plan_of(pipeline_of(stage), {{"image", info_of({4, 4, 4}, DataType::float64)}});
    EXPECT_EQ(plan.outputs.at("image").dtype, DataType::float64) << stage;
  }
  const char* flip = R"({"op": "flip", "axes": "x", "precision": "double"})";
  EXPECT_EQ(plan_of(pipeline_of(flip), {{"image", info_of({4, 4, 4})}}).outputs.at("image").dtype, DataType::float32);
}

TEST(Plan, DrawsWholeNumbersForVoxels) {
  const Pipeline pipeline = pipeline_of(R"({"op": "pad", "before": {"uniform": [0, 3]}})");
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    EXPECT_NO_THROW(make_plan(pipeline, {{"image", info_of({4, 4, 4})}}, {.seed = seed, .item_id = "a"}));
}

TEST(Plan, RunsAMaskBeforeTheMaskChanges) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "flip", "axes": "x"}, {"op": "normalize", "mask": "label"}, {"op": "crop", "start": [0, 0, 0], "size": 2})",
      kImageAndLabel);
  const Plan plan = plan_of(pipeline, {{"image", info_of({4, 4, 4})}, {"label", info_of({4, 4, 4}, DataType::uint8)}});
  std::vector<std::string> order;
  for (const Group& group : plan.groups) order.push_back(group.image + std::to_string(group.stages.front()));
  const auto place = [&](const char* name) { return std::find(order.begin(), order.end(), name) - order.begin(); };
  EXPECT_LT(place("label0"), place("image1"));
  EXPECT_LT(place("image1"), place("label2"));
}

TEST(Plan, RefusesAMaskOnAnotherGridOrMissing) {
  const Pipeline pipeline = pipeline_of(R"({"op": "normalize", "mask": "label"})", kImageAndLabel);
  EXPECT_THROW(plan_of(pipeline, {{"image", info_of({4, 4, 4})}, {"label", info_of({4, 4, 5}, DataType::uint8)}}),
               Error);
  EXPECT_THROW(plan_of(pipeline, {{"image", info_of({4, 4, 4})}}), Error);
}

TEST(Plan, SeparatesStatisticsOverDifferentComponents) {
  const Pipeline pipeline = pipeline_of(R"({"op": "normalize", "per": "component"}, {"op": "normalize"})");
  EXPECT_EQ(plan_of(pipeline, {{"image", info_of({4, 4, 4}, DataType::float32, 1)}}).groups.size(), 1u);
  EXPECT_EQ(plan_of(pipeline, {{"image", info_of({4, 4, 4}, DataType::float32, 3)}}).groups.size(), 2u);
}

TEST(Plan, LeavesOutByProbabilityAndDrawsOncePerItem) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "flip", "axes": "x", "probability": 0.5}, {"op": "gaussian", "sigma": {"uniform": [1, 2]}})");
  int flipped = 0;
  const int n = 400;
  for (int i = 0; i < n; ++i) {
    const Plan plan = make_plan(pipeline, {{"image", info_of({4, 4, 4})}}, {1, "item" + std::to_string(i), 0});
    flipped += plan.skipped.empty();
    EXPECT_EQ(plan.drawn.size(), 1u);
  }
  EXPECT_NEAR(flipped, n / 2, 5 * std::sqrt(n) / 2);  // five standard deviations of a binomial
}

/// Every chain gives the same voxels fused and stage by stage.
class Fusion : public testing::TestWithParam<const char*> {};

TEST_P(Fusion, ChangesNothing) {
  const auto context = make_context(Device::cpu(), 2);
  for (const Index3& size : {Index3{1, 1, 1}, Index3{2, 3, 1}, Index3{17, 9, 5}, Index3{33, 17, 3}}) {
    const auto run = [&](const char* fuse) {
      const Pipeline pipeline = pipeline_of(GetParam(), fuse);
      Images images;
      images.emplace("image", random_volume(*context, info_of(size, DataType::int16, 2), 5));
      return run_pipeline(*context, pipeline, std::move(images));
    };
    const PipelineResult fused = run(""), staged = run(R"(, "fuse": "none")");
    ASSERT_LT(fused.plan.groups.size(), staged.plan.groups.size());
    const Volume &a = fused.images.at("image"), &b = staged.images.at("image");
    ASSERT_EQ(a.geometry().size(), b.geometry().size());
    EXPECT_LT(max_corner_distance_mm(a.geometry(), b.geometry()), 1e-9);
    ASSERT_EQ(a.dtype(), b.dtype());
    const std::vector<double> x = values_of(a), y = values_of(b);
    const auto [low, high] = std::minmax_element(y.begin(), y.end());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], 1e-5 * (*high - *low) + 1e-6)
          << "voxel " << i;  // float32 between stages, the bound of fused chains
  }
}

INSTANTIATE_TEST_SUITE_P(
    Chains, Fusion,
    testing::Values(
        R"({"op": "flip", "axes": "xz"}, {"op": "permute", "order": [2, 0, 1]}, {"op": "pad", "before": 2, "after": 1, "boundary": "reflect"}, {"op": "crop_or_pad", "size": 6})",
        R"({"op": "reorient", "axes": "LPS"}, {"op": "resample", "spacing": 1.1, "interpolation": "bspline3"}, {"op": "flip", "axes": "y"})",
        R"({"op": "pad", "before": 1, "after": 2, "fill": 7}, {"op": "resize", "scale": 1.5, "boundary": "mirror"}, {"op": "permute", "order": [1, 0, 2]})",
        R"({"op": "clip", "min": -20000, "max": 20000}, {"op": "rescale", "to": [0, 1]}, {"op": "gamma", "gamma": 0.7}, {"op": "normalize"})",
        R"({"op": "window", "center": 0, "width": 30000}, {"op": "normalize", "method": "median_iqr"}, {"op": "threshold", "above": 0})",
        R"({"op": "noise", "std": 500}, {"op": "histogram_equalize", "bins": 64}, {"op": "smooth_intensity", "spacing": 9}, {"op": "adjust_contrast", "gamma": 2, "retain_stats": true})",
        R"({"op": "replace_padding"}, {"op": "bias_field"}, {"op": "noise", "kind": "rician", "std": 0.2, "relative": true}, {"op": "multi_otsu", "classes": 4})"));

TEST(Execute, IsTheSameForAnyNumberOfThreads) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "resample", "spacing": 0.8, "interpolation": "bspline3"}, {"op": "clip", "percentiles": [1, 99]}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1})");
  std::vector<Volume> results;
  for (int threads : {1, 2, 7}) {
    const auto context = make_context(Device::cpu(), threads);
    Images images;
    images.emplace("image", random_volume(*context, info_of({61, 47, 29}), 3));
    PipelineResult result = run_pipeline(*context, pipeline, std::move(images));
    results.push_back(std::move(result.images.at("image")));
  }
  EXPECT_TRUE(same_bytes(results[0], results[1]));
  EXPECT_TRUE(same_bytes(results[0], results[2]));
}

TEST(Execute, KeepsLabelsExactAbove2To24) {
  const auto context = make_context(Device::cpu(), 2);
  const Pipeline pipeline = pipeline_of(
      R"({"op": "reorient"}, {"op": "resample", "spacing": 1}, {"op": "pad", "before": 1, "after": 1}, {"op": "cast", "dtype": "uint32", "on": "label"})",
      kImageAndLabel);
  Images images;
  images.emplace("image", random_volume(*context, info_of({5, 6, 7}), 1));
  VolumeInfo info = info_of({5, 6, 7}, DataType::int32);
  info.kind = ImageKind::label;
  Volume label(info, context->allocate_host(info.bytes()));
  for (std::int64_t i = 0; i < info.value_count(); ++i)
    label.data_as<std::int32_t>()[i] = 16777217 + 2 * std::int32_t(i);
  images.emplace("label", std::move(label));
  const PipelineResult result = run_pipeline(*context, pipeline, std::move(images));
  EXPECT_TRUE(same_grid(result.images.at("image").geometry(), result.images.at("label").geometry(), 0));
  for (double value : values_of(result.images.at("label")))
    EXPECT_TRUE(value == 0 || (value >= 16777217 && std::int64_t(value) % 2 == 1)) << value;
}

TEST(Plan, EveryExampleFitsAnyImage) {
  for (const StageDefinition& definition : stages())
    for (const VolumeInfo& info : {info_of({1, 1, 1}), info_of({33, 17, 3}, DataType::uint8, 3)})
      EXPECT_NO_THROW(make_plan(example_pipeline(definition), example_infos(definition, info), {})) << definition.op;
}

}  // namespace
}  // namespace volpipe
