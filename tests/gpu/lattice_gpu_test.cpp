// Stages that crop to what they measure, put together and take apart: the same voxels on both devices.
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;

class LatticeGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu(), 2);
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

const Index3 kSizes[] = {{2, 2, 2}, {2, 4, 16}, {18, 34, 4}, {34, 18, 40}, {130, 66, 22}};

TEST_F(LatticeGpu, MovesTheSameVoxels) {
  for (
      const char* stages : {
          R"({"op": "rotate90", "axes": "xz"}, {"op": "rotate90", "axes": "yz", "k": 2, "move_world": true})",
          R"({"op": "permute", "order": "zxy", "move_world": true})",
          R"({"op": "pad", "before": 3, "after": [2, 0, 5]}, {"op": "crop_foreground", "margin": 1, "units": "voxel"})",
          R"({"op": "pad", "before": 1, "after": 4}, {"op": "crop_foreground", "k_divisible": 8, "allow_padding": true, "fill": "min"})",
          R"({"op": "pad", "before": 3}, {"op": "crop_foreground", "mask": "foreground", "on": "image"})",
          R"({"op": "stack", "on": ["second", "image"], "output": "all"})",
          R"({"op": "split", "on": "image", "into": ["a", "b"], "axis": "x"})",
          R"({"op": "split", "on": "image", "into": ["a", "b"], "axis": "y"}, {"op": "stack", "on": ["a", "b"], "output": "c", "axis": "y"})",
          R"({"op": "split", "on": "image", "into": ["a", "b"], "axis": "z"}, {"op": "stack", "on": ["a", "b"], "output": "c", "axis": "z"})",
          R"({"op": "split", "on": "second", "into": ["a", "b"]})",
          R"({"op": "select_frames", "frames": [1, 0, -1, 1]})",
      })
    for (const Index3& size : kSizes)
      for (const DataType dtype : {DataType::uint8, DataType::int16, DataType::float32, DataType::float64}) {
        SCOPED_TRACE(std::string(stages) + " on " + std::string(to_string(dtype)));
        VolumeInfo info{oblique_grid(size), dtype, 2, ImageKind::image, ComponentAxis::channels, 1.0};
        const ImageInfos infos{{"image", info}, {"second", info}};
        const Pipeline pipeline = pipeline_of(stages, R"(, "inputs": {"image": {}, "second": {"suffix": "_2"}})");
        const PipelineResult on_cpu = run_pipeline(*cpu_, pipeline, random_images(*cpu_, infos, 5));
        const PipelineResult on_cuda = run_pipeline(*cuda_, pipeline, random_images(*cuda_, infos, 5));
        ASSERT_EQ(on_cpu.images.size(), on_cuda.images.size());
        for (const auto& [name, volume] : on_cpu.images)
          EXPECT_TRUE(same_bytes(volume, on_cuda.images.at(name))) << name;
      }
}

TEST_F(LatticeGpu, UntiltsAlike) {
  for (const Index3& size : kSizes) {
    Affine tilted = oblique_grid(size).index_to_world();
    for (int row = 0; row < 3; ++row) tilted.linear[row][2] += 0.4 * tilted.linear[row][1];
    const VolumeInfo info{Geometry(size, tilted), DataType::int16, 2, ImageKind::image, ComponentAxis::frames, 1.0};
    const Pipeline pipeline = pipeline_of(R"({"op": "untilt", "fill": "min"})");
    const PipelineResult on_cpu = run_pipeline(*cpu_, pipeline, random_images(*cpu_, {{"image", info}}, 5));
    const PipelineResult on_cuda = run_pipeline(*cuda_, pipeline, random_images(*cuda_, {{"image", info}}, 5));
    const Volume &a = on_cpu.images.at("image"), &b = on_cuda.images.at("image");
    ASSERT_EQ(a.info(), b.info());
    const std::vector<double> x = values_of(a), y = values_of(b);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-5 * 65536) << "voxel " << i;
  }
}

}  // namespace
}  // namespace volpipe
