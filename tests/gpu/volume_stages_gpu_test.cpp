// Stages on whole volumes: CUDA gives the bits of the CPU.
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"
#include "support/pointwise_data.h"

namespace volpipe {
namespace {

using namespace testing_support;

const Index3 kSizes[] = {{1, 1, 1}, {2, 3, 1}, {3, 2, 17}, {17, 33, 3}, {33, 17, 40}, {130, 67, 21}};

class VolumeStagesGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  /// Random voxels, every seventh of a floating type not finite.
  static Images images_of(DeviceContext& context, const ImageInfos& infos) {
    Images images = random_images(context, infos, 5);
    const double odd[] = {std::nan(""), std::numeric_limits<double>::infinity(),
                          -std::numeric_limits<double>::infinity()};
    for (auto& image : images) {
      Volume& volume = image.second;
      visit(volume.dtype(), [&]<class Tag>(Tag) {
        using T = typename Tag::type;
        if constexpr (std::is_floating_point_v<T>)
          for (std::int64_t i = 3; i < volume.info().value_count(); i += 7) volume.data_as<T>()[i] = T(odd[i % 3]);
      });
    }
    return images;
  }

  void expect_same_bits(const Pipeline& pipeline, const ImageInfos& infos) {
    const PipelineResult on_cpu = run_pipeline(*cpu_, pipeline, images_of(*cpu_, infos), {1, "item", 0});
    const PipelineResult on_cuda = run_pipeline(*cuda_, pipeline, images_of(*cuda_, infos), {1, "item", 0});
    for (const auto& [name, volume] : on_cpu.images) EXPECT_TRUE(same_voxels(volume, on_cuda.images.at(name))) << name;
  }

  static VolumeInfo info_of(const Geometry& geometry, DataType dtype, std::int64_t components = 1) {
    return {geometry, dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

TEST_F(VolumeStagesGpu, BoxesOfEveryType) {
  for (const char* stage :
       {R"({"op": "coarse_dropout", "holes": 7, "size": [2, 19], "units": "voxel", "fill": 3})",
        R"({"op": "coarse_dropout", "holes": 7, "size": [2, 19], "units": "voxel", "fill": "noise"})",
        R"({"op": "coarse_dropout", "holes": 7, "size": [2, 19], "units": "voxel", "fill": "mean", "invert": true})",
        R"({"op": "coarse_dropout", "holes": 7, "size": [2, 19], "units": "voxel", "fill": "noise", "invert": true})",
        R"({"op": "coarse_shuffle", "holes": 7, "size": [2, 19], "units": "voxel"})"})
    for (const Index3& size : kSizes)
      for (const DataType type : kAllTypes)
        for (const std::int64_t components : {1, 3}) {
          SCOPED_TRACE(std::string(stage) + " " + std::string(to_string(type)) + " " + std::to_string(size[0]));
          expect_same_bits(pipeline_of(stage), {{"image", info_of(oblique_grid(size), type, components)}});
        }
}

TEST_F(VolumeStagesGpu, BoxesOnOtherGrids) {
  const Geometry frame = oblique_grid({33, 30, 20});
  const Geometry other = Geometry::from_spacing({70, 60, 50}, {0.5, 0.7, 0.9}, frame.to_world({30, 4, 2}));
  for (const char* op : {"coarse_dropout", "coarse_shuffle"}) {
    const std::string stage =
        std::string(R"({"op": ")") + op + R"(", "holes": 20, "size": [3, 15], "on": ["image", "label"]})";
    expect_same_bits(pipeline_of(stage, R"(, "inputs": {"image": {}, "label": {"suffix": "_l", "kind": "label"}})"),
                     {{"image", info_of(frame, DataType::int16)}, {"label", info_of(other, DataType::uint8)}});
  }
}

TEST_F(VolumeStagesGpu, TilesOfEveryKind) {
  for (const char* parameters :
       {R"("clip_limit": 0.02)", R"("kernel": 9, "clip_limit": 0.1)", R"("kernel": [20, 16, 12])",
        R"("kernel": 1000, "clip_limit": 0)", R"("kernel": 12, "bins": 2048)", R"("kernel": 3, "bins": 2)",
        R"("kernel": 16, "slices": "x")", R"("kernel": 16, "slices": "z", "mask": "nonzero")",
        R"("kernel": 16, "mask": {"above": 105}, "to": [7, -3])", R"("kernel": 16, "precision": "double")"})
    for (const Index3& size : kSizes)
      for (const DataType type : kAllTypes)
        for (const std::int64_t components : {1, 2}) {
          SCOPED_TRACE(std::string(parameters) + " " + std::string(to_string(type)) + " " + std::to_string(size[0]));
          expect_same_bits(pipeline_of(R"({"op": "clahe", "units": "voxel", )" + std::string(parameters) + "}"),
                           {{"image", info_of(oblique_grid(size), type, components)}});
        }
}

TEST_F(VolumeStagesGpu, TilesUnderAnImagesMask) {
  const Geometry grid = oblique_grid({70, 50, 30});
  expect_same_bits(pipeline_of(R"({"op": "clahe", "kernel": 20, "mask": "m", "on": "image"})",
                               R"(, "inputs": {"image": {}, "m": {"suffix": "_m", "kind": "label"}})"),
                   {{"image", info_of(grid, DataType::uint16)}, {"m", info_of(grid, DataType::int8)}});
}

/// Of the image only what the field is estimated from comes to the host.
TEST_F(VolumeStagesGpu, BiasFieldsAreFoundOnTheHostAndTakenAwayOnTheDevice) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "bias_field_correct", "iterations": [5, 5], "mask": "m", "on": "image"})",
      R"(, "inputs": {"image": {}, "m": {"suffix": "_m", "kind": "label"}}, "outputs": {"image": {"path": "{stem}.nii"}})");
  for (const Index3& size : {Index3{64, 48, 40}, Index3{33, 17, 1}, Index3{1, 1, 1}})
    for (const DataType type : {DataType::int16, DataType::uint32, DataType::float32, DataType::float64})
      for (const std::int64_t components : {1, 2}) {
        const ImageInfos infos{{"image", info_of(oblique_grid(size), type, components)},
                               {"m", info_of(oblique_grid(size), DataType::uint8)}};
        expect_same_bits(pipeline, infos);
        const PipelineResult result = run_pipeline(*cuda_, pipeline, images_of(*cuda_, infos));
        EXPECT_EQ(result.record.transfers.h2d_count, 2);
        EXPECT_EQ(result.record.transfers.d2h_count, 3);
        const auto voxels = std::int64_t(result.images.at("image").info().bytes());
        EXPECT_LT(result.record.transfers.d2h_bytes, size[0] == 64 ? voxels + voxels / 16 : 4 * voxels + 8);
      }
}

}  // namespace
}  // namespace volpipe
