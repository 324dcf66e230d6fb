// Items computed slab by slab on CUDA: the voxels of one run over the whole there, in the memory that was given.
#include <gtest/gtest.h>

#include "support/slab_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;

class SlabsGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
  }
  Images images(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
    const VolumeInfo info{oblique_grid(size),
                          dtype,
                          components,
                          ImageKind::image,
                          components > 1 ? ComponentAxis::frames : ComponentAxis::none,
                          1.0};
    return random_images(*cuda_, {{"image", info}}, 3);
  }

  std::unique_ptr<DeviceContext> cuda_;
};

TEST_F(SlabsGpu, EqualTheWhole) {
  for (const char* stages : {
           R"({"op": "clip", "min": -50, "max": 120}, {"op": "scale", "factor": 1.7}, {"op": "cast", "dtype": "int8"})",
           R"({"op": "noise", "kind": "gaussian", "std": 3}, {"op": "noise", "kind": "poisson"})",
           R"({"op": "bias_field", "magnitude": 0.4}, {"op": "expression", "expr": "this + 100 * k + 10 * j + i"})",
           R"({"op": "expression", "expr": "image[0,0,2] - image[1,-1,-3] + image[0,3,0]"})",
           R"({"op": "expression", "expr": "image[0,0,2] - image[0,0,-1]", "boundary": "constant"})",
           R"({"op": "reorient", "axes": "SPL"})",
           R"({"op": "crop", "start": [2, 3, 4], "size": [9, 8, 20]}, {"op": "pad", "before": 40, "fill": 7})",
           R"({"op": "resample", "spacing": 1.1, "interpolation": "bspline3"}, {"op": "clip", "min": 0})",
           R"({"op": "resample", "spacing": [2.2, 0.7, 3.1], "interpolation": "linear"})",
           R"({"op": "resample", "spacing": 1, "interpolation": "bspline3"}, {"op": "reorient", "axes": "IAR"})",
           R"({"op": "reorient", "axes": "SPL"}, {"op": "resample", "spacing": 2, "interpolation": "cubic"})",
           R"({"op": "gaussian", "sigma": [1.2, 0.8, 2.5]})",
           R"({"op": "gaussian", "sigma": 1}, {"op": "permute", "order": "yzx"}, {"op": "gaussian", "sigma": 0.7})",
           R"({"op": "gaussian", "sigma": 1.5, "precision": "double"})",
           R"({"op": "clip", "percentiles": [1, 99]}, {"op": "rescale", "from": "auto", "to": [0, 1]})",
           R"({"op": "noise", "kind": "gaussian", "std": 5}, {"op": "clip", "percentiles": [10, 90]})",
           R"({"op": "normalize", "mask": "foreground"}, {"op": "gaussian", "sigma": 1})",
           R"({"op": "normalize", "per": "component"})",
       })
    for (const DataType dtype : {DataType::float32, DataType::int16})
      for (const std::int64_t components : {1, 3})
        expect_slabs_equal_whole(*cuda_, pipeline_of(stages), images({17, 13, 33}, dtype, components), {1, 2, 3, 7, 33},
                                 std::string(stages).find("crop") == std::string::npos);
}

TEST_F(SlabsGpu, StayWithinTheMemoryGiven) {
  const Images all = images({160, 130, 140});
  const Pipeline pipeline = pipeline_of(
      R"({"op": "clip", "percentiles": [1, 99]}, {"op": "resample", "spacing": 1.5, "interpolation": "bspline3"},
         {"op": "normalize"})");
  const Plan plan = make_plan(pipeline, infos_of(all), {});
  const PipelineResult whole = run_pipeline(*cuda_, pipeline, copies_of(all));
  const std::size_t bytes = plan.peak_device_bytes / 3;
  const SlabChoice choice = plan_slabs(pipeline, plan, bytes);
  ASSERT_TRUE(choice.plan) << choice.why_not;
  EXPECT_GT(choice.plan->slabs, 1);
  const auto fresh = make_context(Device::cuda(0));
  const SlabRun run = run_in_slabs(*fresh, pipeline, plan, *choice.plan, all);
  expect_alike(whole.images.at("image"), run.results.images.at("image"), false, "a third of the memory");
  EXPECT_LE(fresh->peak_memory(), choice.plan->peak_device_bytes + (std::size_t(4) << 20)) << "but for small tables";
  EXPECT_EQ(fresh->transfers().d2h_bytes, std::int64_t(whole.images.at("image").info().bytes()));
}

}  // namespace
}  // namespace volpipe
