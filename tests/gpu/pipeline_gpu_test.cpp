// Whole pipelines on CUDA: every stage against the CPU, one upload and one download, contexts that do not disturb
// each other, a device that falls short.
#include <gtest/gtest.h>

#include <thread>

#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

class PipelineGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  PipelineResult run(DeviceContext& context, const Pipeline& pipeline, const VolumeInfo& info, unsigned seed) {
    return run(context, pipeline, ImageInfos{{"image", info}}, seed);
  }
  PipelineResult run(DeviceContext& context, const Pipeline& pipeline, const ImageInfos& infos, unsigned seed) {
    return run_pipeline(context, pipeline, random_images(context, infos, seed));
  }

  /// Interpolation, filters and statistics: 1e-5 of the range; whole numbers: within one rounding step where a computed
  /// value is rounded, the same where voxels are copied.
  void expect_parity(const Pipeline& pipeline, const VolumeInfo& info) {
    expect_parity(pipeline, ImageInfos{{"image", info}});
  }
  void expect_parity(const Pipeline& pipeline, const ImageInfos& infos) {
    const PipelineResult on_cpu = run(*cpu_, pipeline, infos, 11), on_cuda = run(*cuda_, pipeline, infos, 11);
    ASSERT_EQ(on_cpu.images.size(), on_cuda.images.size());
    for (const auto& [name, volume] : on_cpu.images) expect_alike(on_cpu.plan, volume, on_cuda.images.at(name));
  }
  void expect_alike(const Plan& plan, const Volume& a, const Volume& b) {
    ASSERT_EQ(a.info(), b.info());
    bool copies = true;
    for (const Group& group : plan.groups)
      copies &= group.kind == GroupKind::rearrange || (group.kind == GroupKind::separable && group.map.copies());
    if (copies) {
      EXPECT_TRUE(same_bytes(a, b));
      return;
    }
    const std::vector<double> x = values_of(a), y = values_of(b);
    std::vector<double> finite;
    std::copy_if(x.begin(), x.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    const double range = finite.empty() ? 0 : *high - *low;
    const double tolerance = std::max(1e-5 * range, is_floating(a.dtype()) ? 1e-6 : 1.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i])) ASSERT_NEAR(x[i], y[i], tolerance) << "voxel " << i;
      else ASSERT_TRUE(x[i] == y[i] || (x[i] != x[i] && y[i] != y[i])) << "voxel " << i << ": " << x[i] << ", " << y[i];
    }
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

const Index3 kSizes[] = {{1, 1, 1}, {2, 3, 1}, {3, 2, 17}, {17, 33, 3}, {33, 17, 40}, {130, 67, 21}};

TEST_F(PipelineGpu, EveryStageAgreesWithTheCpu) {
  for (const StageDefinition& stage : stages())
    for (const Index3& size : kSizes)
      for (const DataType dtype :
           {DataType::uint8, DataType::int16, DataType::int32, DataType::float32, DataType::float64})
        for (const std::int64_t components : {1, 3}) {
          SCOPED_TRACE(stage.op + " on " + std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" +
                       std::to_string(size[2]) + " " + std::string(to_string(dtype)));
          const Pipeline pipeline = example_pipeline(stage);
          const ImageInfos infos =
              example_infos(stage, {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0});
          try {
            make_plan(pipeline, infos, {});
          } catch (const Error&) {
            continue;  // the example does not fit this size; both devices share the plan
          }
          expect_parity(pipeline, infos);
        }
}

/// Fields of every origin, inverses, votes of smoothed labels, chains merged into one gather.
TEST_F(PipelineGpu, DeformationsAgreeWithTheCpu) {
  const char* const inputs =
      R"(, "inputs": {"image": {}, "field": {"suffix": "_f"}, "label": {"suffix": "_l", "kind": "label"}})";
  const char* const chains[] = {
      R"({"op": "warp", "svf": "field", "scale": 0.02, "on": ["image", "label"]})",
      R"({"op": "warp", "svf": "field", "scale": 0.02, "invert": true, "precision": "double", "on": "image"})",
      R"({"op": "warp", "field": "field", "scale": 0.01, "invert": true, "on": ["image", "label"]})",
      R"({"op": "elastic", "spacing": 8, "magnitude": 2, "name": "e"}, {"op": "invert", "of": "e", "interpolation": "bspline3"})",
      R"({"op": "affine", "scale": 0.4, "rotate": [10, 20, 30], "interpolation": "label_linear", "antialias": true, "fill": 3, "on": "label"})",
      R"({"op": "rotate", "angles": [3, 9, 12], "boundary": "nearest"}, {"op": "elastic", "spacing": 9, "boundary": "nearest"}, {"op": "affine", "scale": 0.9, "boundary": "nearest"})",
      R"({"op": "crop_foreground", "mask": {"above": 110}, "margin": 1}, {"op": "untilt"}, {"op": "smooth_deform", "limits": 1})"};
  for (const char* chain : chains)
    for (const char* fuse : {R"(, "fuse": "auto")", R"(, "fuse": "all")"})
      for (const Index3& size : {Index3{17, 33, 3}, Index3{33, 17, 40}}) {
        SCOPED_TRACE(std::string(chain) + fuse);
        VolumeInfo info{oblique_grid(size), DataType::float32, 1, ImageKind::image, ComponentAxis::none, 1.0};
        ImageInfos infos{{"image", info}, {"field", info}, {"label", info}};
        infos.at("field").components = 3;
        infos.at("label").dtype = DataType::uint8;
        expect_parity(pipeline_of(chain, std::string(inputs) + fuse), infos);
      }
}

TEST_F(PipelineGpu, ChainsAgreeWithTheCpu) {
  for (
      const char* stages :
      {R"({"op": "reorient"}, {"op": "resample", "spacing": 0.7, "interpolation": "bspline3"}, {"op": "clip", "percentiles": [1, 99]}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1})",
       R"({"op": "permute", "order": "zxy"}, {"op": "resample", "spacing": 2.2}, {"op": "flip", "axes": "yz"})",
       R"({"op": "gaussian", "sigma": 0.8, "precision": "double"}, {"op": "rescale"}, {"op": "cast", "dtype": "uint16"})",
       R"({"op": "noise", "kind": "poisson", "scale": 0.1}, {"op": "histogram_equalize", "mask": {"above": 20}}, {"op": "bias_field"}, {"op": "noise", "kind": "salt_pepper"})",
       R"({"op": "replace_padding"}, {"op": "noise", "kind": "rician", "std": 0.1, "relative": true}, {"op": "smooth_contrast", "spacing": 12, "per": "component"}, {"op": "multi_otsu", "classes": 5})",
       R"({"op": "noise", "kind": "speckle", "std": 0.1}, {"op": "match_landmarks", "from": {"percentiles": [0, 3, 25, 50, 75, 90, 97, 100]}, "to": [0, 1, 4, 9, 16, 25, 36, 49]}, {"op": "adjust_contrast", "gamma": 0.7, "invert_image": true, "retain_stats": true}, {"op": "exp", "base": 1.1})"})
    for (const Index3& size : kSizes)
      for (const DataType dtype : {DataType::int16, DataType::float32})
        expect_parity(pipeline_of(stages), {oblique_grid(size), dtype, 1, ImageKind::image, ComponentAxis::none, 1.0});
}

TEST_F(PipelineGpu, AFiveStagePipelineUploadsAndDownloadsOnce) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "reorient"}, {"op": "resample", "spacing": 1}, {"op": "clip", "percentiles": [1, 99]}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1})",
      R"(, "outputs": {"image": {"path": "{stem}.nii", "dtype": "int16"}})");
  const VolumeInfo info{oblique_grid({40, 50, 30}), DataType::int16, 1, ImageKind::image, ComponentAxis::none, 1.0};
  for (int repeat = 0; repeat < 2; ++repeat) {
    const PipelineResult result = run(*cuda_, pipeline, info, 1);
    EXPECT_EQ(result.record.transfers.h2d_count, 1);
    EXPECT_EQ(result.record.transfers.d2h_count, 1);
    EXPECT_EQ(result.record.transfers.h2d_bytes, std::int64_t(info.bytes()));
    EXPECT_EQ(result.record.transfers.d2h_bytes, std::int64_t(result.images.at("image").info().bytes()));
    EXPECT_EQ(result.images.at("image").dtype(), DataType::int16);
  }
}

TEST_F(PipelineGpu, PeakMemoryIsAsPlanned) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "resample", "spacing": 0.5, "interpolation": "bspline3"}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1})");
  const VolumeInfo info{oblique_grid({120, 100, 80}), DataType::float32, 1, ImageKind::image, ComponentAxis::none, 1.0};
  const auto fresh = make_context(Device::cuda(0));
  const PipelineResult result = run(*fresh, pipeline, info, 1);
  const double planned = double(result.plan.peak_device_bytes);
  EXPECT_LE(double(fresh->peak_memory()), 1.1 * planned + 64e6);  // tables and reductions come on top
  EXPECT_GE(double(fresh->peak_memory()), 0.9 * planned);
}

TEST_F(PipelineGpu, ContextsInThreadsDoNotDisturbEachOther) {
  const Pipeline pipeline =
      pipeline_of(R"({"op": "resample", "spacing": 0.8}, {"op": "normalize"}, {"op": "gaussian", "sigma": 1.5})");
  const VolumeInfo info{oblique_grid({70, 60, 50}), DataType::float32, 1, ImageKind::image, ComponentAxis::none, 1.0};
  const PipelineResult expected = run(*cuda_, pipeline, info, 9);
  const int devices = int(list_devices().size()) - 1;
  std::vector<std::unique_ptr<DeviceContext>> contexts;
  for (int i = 0; i < 4; ++i) contexts.push_back(make_context(Device::cuda(i % devices)));
  std::atomic<int> same{0};
  std::vector<std::thread> workers;
  for (auto& context : contexts)
    workers.emplace_back([&] {
      for (int repeat = 0; repeat < 5; ++repeat)
        same += same_bytes(run(*context, pipeline, info, 9).images.at("image"), expected.images.at("image"));
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(same, 20);
}

TEST_F(PipelineGpu, RunsAreBitIdentical) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "resample", "spacing": 0.8, "interpolation": "bspline3"}, {"op": "clip", "percentiles": [1, 99]}, {"op": "normalize", "mask": "foreground"})");
  const VolumeInfo info{oblique_grid({90, 80, 70}), DataType::float32, 1, ImageKind::image, ComponentAxis::none, 1.0};
  const PipelineResult first = run(*cuda_, pipeline, info, 4);
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_TRUE(same_bytes(first.images.at("image"), run(*cuda_, pipeline, info, 4).images.at("image")));
}

TEST_F(PipelineGpu, AnAllocationThatDoesNotFitIsOutOfMemoryAndTheContextLivesOn) {
  try {
    cuda_->allocate(std::size_t(1) << 50);
    FAIL() << "a petabyte was allocated";
  } catch (const Error& error) { EXPECT_EQ(error.code(), ErrorCode::out_of_memory); }
  EXPECT_TRUE(cuda_->allocate(1 << 20));
  cuda_->synchronize();
}

TEST_F(PipelineGpu, AVolumeAbove2To31VoxelsIsRightAtItsFarEnd) {
  const VolumeInfo info{Geometry::from_spacing({2049, 1025, 1025}, {1, 1, 1}),
                        DataType::uint8,
                        1,
                        ImageKind::image,
                        ComponentAxis::none,
                        1.0};
  if (cuda_->free_memory() < 3 * info.bytes()) GTEST_SKIP() << "the device has too little memory";
  Images images;
  Volume volume(info, cuda_->allocate_host(info.bytes()));
  std::memset(volume.data(), 0, info.bytes());
  auto* voxels = volume.data_as<std::uint8_t>();
  const std::int64_t last = info.value_count() - 1;
  voxels[last] = 200;
  voxels[last - 3] = 100;
  images.emplace("image", std::move(volume));
  const PipelineResult flipped = run_pipeline(
      *cuda_, pipeline_of(R"({"op": "flip", "axes": "x"}, {"op": "clip", "max": 150})"), std::move(images));
  const auto* result = flipped.images.at("image").data_as<std::uint8_t>();
  EXPECT_EQ(result[last - 2048], 150);
  EXPECT_EQ(result[last - 2045], 100);
  EXPECT_EQ(result[last], 0);
}

}  // namespace
}  // namespace volpipe
