// Fourier transforms and k-space stages: CUDA against the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "stages/fourier/spectrum.h"
#include "support/fourier_data.h"
#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;

class FourierGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

/// One voxel, axes of one voxel anywhere, primes, prime factors that cuFFT convolves, many rows, the largest axes.
const Index3 kSizes[] = {{1, 1, 1},    {2, 1, 1},    {1, 3, 1},    {1, 1, 17},  {1, 33, 2},   {5, 1, 7},
                         {2, 2, 2},    {3, 17, 33},  {33, 3, 17},  {17, 33, 3}, {64, 48, 40}, {127, 131, 2},
                         {2, 1021, 3}, {1024, 3, 2}, {3, 2, 1024}, {257, 1, 1}, {130, 67, 21}};

/// The CPU's lines are in double, cuFFT's in the volume's type: 1e-6 of the norm is 16 roundings of float32.
double tolerance_for(DataType type) { return type == DataType::float64 ? 1e-14 : 1e-6; }

TEST_F(FourierGpu, ForwardAgreesWithTheCpu) {
  for (const DataType type : {DataType::float32, DataType::float64})
    for (const Index3& size : kSizes) {
      SCOPED_TRACE(testing::Message() << size[0] << " x " << size[1] << " x " << size[2] << " " << to_string(type));
      const std::vector<double> volume = random_values(size, type);
      const auto wanted = transformed(*cpu_, volume, size, type), got = transformed(*cuda_, volume, size, type);
      const double tolerance = tolerance_for(type) * std::sqrt(double(volume.size()));
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_LE(std::abs(got[i] - wanted[i]), tolerance) << i;
    }
}

TEST_F(FourierGpu, InverseAgreesWithTheCpuAndUndoesForward) {
  for (const DataType type : {DataType::float32, DataType::float64})
    for (const Index3& size : kSizes) {
      SCOPED_TRACE(testing::Message() << size[0] << " x " << size[1] << " x " << size[2] << " " << to_string(type));
      const std::vector<double> volume = random_values(size, type);
      const auto spectrum = transformed(*cuda_, volume, size, type);
      const auto wanted = transformed_back(*cpu_, spectrum, size, type);
      const auto got = transformed_back(*cuda_, spectrum, size, type);
      const double tolerance = 10 * tolerance_for(type);  // of values of about 1, there and back
      for (std::size_t i = 0; i < volume.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], tolerance) << i;
        ASSERT_NEAR(got[i], volume[i], tolerance) << i;
      }
    }
}

TEST_F(FourierGpu, APlanServesManyTransforms) {
  const Index3 size{20, 15, 12};
  const SpectrumLayout layout(size);
  const auto transform = make_fourier_transform(*cuda_, size, DataType::float32);
  for (unsigned seed = 0; seed < 3; ++seed) {
    const std::vector<double> volume = random_values(size, DataType::float32, seed);
    Buffer values = uploaded(*cuda_, volume.data(), std::int64_t(volume.size()), DataType::float32);
    Buffer spectrum = cuda_->allocate(layout.bytes(DataType::float32));
    transform->forward(values.data(), spectrum.data());
    transform->inverse(spectrum.data(), values.data());
    std::vector<double> got(volume.size());
    download(*cuda_, std::move(values), std::int64_t(got.size()), DataType::float32, got.data());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], volume[i], 1e-5) << i;
  }
}

TEST_F(FourierGpu, TakesNoMoreMemoryThanPlanned) {
  for (const DataType type : {DataType::float32, DataType::float64})
    for (const Index3& size : {Index3{128, 128, 128}, Index3{125, 81, 77}, Index3{254, 62, 93}, Index3{131, 100, 100},
                               Index3{64, 64, 257}, Index3{139, 149, 151}}) {
      SCOPED_TRACE(testing::Message() << size[0] << " x " << size[1] << " x " << size[2] << " " << to_string(type));
      const auto fresh = make_context(Device::cuda(0));
      const SpectrumLayout layout(size);
      const std::size_t voxels = std::size_t(size[0] * size[1] * size[2]) * size_of(type);
      Buffer volume = fresh->allocate(voxels), spectrum = fresh->allocate(layout.bytes(type));
      const auto transform = make_fourier_transform(*fresh, size, type);
      transform->forward(volume.data(), spectrum.data());
      transform->inverse(spectrum.data(), volume.data());
      fresh->synchronize();
      EXPECT_LE(fresh->peak_memory(), voxels + layout.bytes(type) + fourier_scratch_bytes(size, type));
    }
}

TEST_F(FourierGpu, EditsOfASpectrumAreTheSame) {
  for (const Index3& size : kSizes) {
    const SpectrumLayout layout(size);
    SpectrumEdit edit(layout);
    for (std::vector<double>& values : edit.values)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = double(i * 37 % 5);
    edit.limit = 4;
    edit.factor = 0.3;
    const std::vector<double> source = random_values({2 * layout.count(), 1, 1}, DataType::float32);
    const std::vector<double> target = random_values({2 * layout.count(), 1, 1}, DataType::float32, 6);
    std::vector<double> edited[2];
    for (const bool on_cuda : {false, true}) {
      DeviceContext& context = on_cuda ? *cuda_ : *cpu_;
      const Buffer from = uploaded(context, source.data(), 2 * layout.count(), DataType::float32);
      Buffer to = uploaded(context, target.data(), 2 * layout.count(), DataType::float32);
      edit_spectrum(context, layout, DataType::float32, edit, from.data(), to.data());
      edited[on_cuda].resize(target.size());
      download(context, std::move(to), 2 * layout.count(), DataType::float32, edited[on_cuda].data());
    }
    EXPECT_EQ(edited[0], edited[1]);
  }
}

const char* const kStages[] = {
    R"({"op": "gibbs", "alpha": 0.2})",
    R"({"op": "gibbs", "alpha": 0.7})",
    R"({"op": "gibbs", "alpha": 1})",
    R"({"op": "ghosting", "axis": "x", "ghosts": 2, "intensity": 1, "restore": 0})",
    R"({"op": "ghosting", "axis": "z", "ghosts": 5, "intensity": 0.4, "restore": 0.3})",
    R"({"op": "motion", "degrees": 20, "translation": 4, "movements": 3, "axis": "x"})",
    R"({"op": "motion", "degrees": [0, 0, 15], "translation": 0, "movements": 1, "axis": "z"})",
    R"({"op": "motion", "degrees": 8, "translation": 5, "axis": "y", "precision": "double"})",
    R"({"op": "kspace_spike", "count": 4, "intensity": 0.3})"};

/// 1e-5 of the range of what goes in: sums over all voxels are rounded at that scale, even where they come to little.
TEST_F(FourierGpu, StagesAgreeWithTheCpu) {
  for (const std::string stage : kStages)
    for (const Index3& size : kSizes)
      for (const DataType dtype : {DataType::int16, DataType::float32, DataType::float64}) {
        SCOPED_TRACE(testing::Message() << stage << " " << size[0] << " x " << size[1] << " x " << size[2] << " "
                                        << to_string(dtype));
        const VolumeInfo info{oblique_grid(size), dtype, 2, ImageKind::image, ComponentAxis::none, 1.0};
        const Pipeline pipeline = pipeline_of(stage);
        const std::vector<double> before = values_of(random_volume(*cpu_, info, 3));
        std::vector<double> values[2];
        for (const bool on_cuda : {false, true}) {
          DeviceContext& context = on_cuda ? *cuda_ : *cpu_;
          Images images;
          images.emplace("image", random_volume(context, info, 3));
          values[on_cuda] = values_of(run_pipeline(context, pipeline, std::move(images)).images.at("image"));
        }
        const auto [low, high] = std::minmax_element(before.begin(), before.end());
        const double tolerance = 1e-5 * std::max({*high - *low, std::abs(*low), std::abs(*high)});
        for (std::size_t i = 0; i < values[0].size(); ++i)
          ASSERT_NEAR(values[1][i], values[0][i], tolerance) << "voxel " << i;
      }
}

TEST_F(FourierGpu, WhatIsNotFiniteIsPutBack) {
  const VolumeInfo info{oblique_grid({9, 8, 7}), DataType::float32, 1, ImageKind::image, ComponentAxis::none, 1.0};
  std::vector<double> values[2];
  for (const bool on_cuda : {false, true}) {
    DeviceContext& context = on_cuda ? *cuda_ : *cpu_;
    Volume volume = random_volume(context, info, 3);
    volume.data_as<float>()[17] = std::numeric_limits<float>::quiet_NaN();
    volume.data_as<float>()[503] = -std::numeric_limits<float>::infinity();
    Images images;
    images.emplace("image", std::move(volume));
    const PipelineResult result = run_pipeline(context, pipeline_of(kStages[0]), std::move(images));
    EXPECT_EQ(result.record.warnings.size(), 1u);
    values[on_cuda] = values_of(result.images.at("image"));
  }
  EXPECT_TRUE(std::isnan(values[1][17]));
  EXPECT_EQ(values[1][503], -std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < 503; ++i)
    if (i != 17) { EXPECT_NEAR(values[1][i], values[0][i], 1e-3) << i; }
}

}  // namespace
}  // namespace volpipe
