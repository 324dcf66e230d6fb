// The cuda_kernel stage without a GPU: its parameters, what it plans, its twin on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/custom/kernel_parameters.h"
#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kTwoInputs[] = R"(, "inputs": {"image": {"suffix": "_i"}, "label": {"suffix": "_l", "kind": "label"}})";

std::string kernel(const std::string& parameters) { return R"({"op": "cuda_kernel", )" + parameters + "}"; }

std::vector<std::string> faults_of(const std::string& parameters) {
  try {
    pipeline_of(kernel(parameters), kTwoInputs);
  } catch (const SpecError& error) { return error.lines(); }
  return {};
}

void expect_fault(const std::string& parameters, const std::string& place, const std::string& message) {
  const std::vector<std::string> faults = faults_of(parameters);
  ASSERT_EQ(faults.size(), 1u) << parameters;
  EXPECT_THAT(faults[0], HasSubstr(place + ": "));
  EXPECT_THAT(faults[0], HasSubstr(message));
}

TEST(CudaKernel, SaysWhatIsWrongWithItsParameters) {
  expect_fault(R"("cpu": "in")", "/stages/0", "give one of them");
  expect_fault(R"("source": "out = 1;", "kind": "elementwize")", "/stages/0/kind", "did you mean 'elementwise'");
  expect_fault(R"("source": ["out = 1;", 2])", "/stages/0/source", "list of its lines");
  expect_fault(R"("file": "nosuch.cu")", "/stages/0/file", "there is no file");
  expect_fault(R"("source": "out = 1;", "reduce": "a + b")", "/stages/0/reduce", "\"reduction\" alone");
  expect_fault(R"("source": "out = 1;", "threads": 64)", "/stages/0/threads", "\"raw\" alone");
  expect_fault(R"("source": "in", "kind": "reduction", "identity": "0")", "/stages/0", "needs 'reduce'");
  expect_fault(R"("source": "in", "kind": "reduction", "reduce": "a + b")", "/stages/0", "needs 'identity'");
  expect_fault(R"("source": "out = 1;", "inputs": {"m": "labl"})", "/stages/0/inputs", "did you mean 'label'");
  expect_fault(R"("source": "out = 1;", "inputs": {"x": "label"})", "/stages/0/inputs", "'x' cannot be a variable");
  expect_fault(R"("source": "out = 1;", "constants": {"1a": 2})", "/stages/0/constants", "letters, digits and _");
  expect_fault(R"("source": "out = 1;", "constants": {"a": "2"})", "/stages/0/constants", "names and numbers");
  expect_fault(R"("source": "out = 1;", "constants": {"m": 2}, "inputs": {"m": "label"})", "/stages/0/constants",
               "'m' is in 'inputs' already");
  expect_fault(R"("source": "out = 1;", "cpu": "in * foo")", "/stages/0/cpu", "foo");
  expect_fault(R"("source": "out = 1;", "output": "image")", "/stages/0", "there is an image 'image' already");
  expect_fault(R"("source": "out = 1;", "on": ["image", "label"], "output": "new")", "/stages/0", "say with \"on\"");
  expect_fault(R"("source": "out = g;", "constants": {"g": {"uniform": [1, 2]}}, "on": "image", "output": "new")",
               "/stages/0", "takes no random parameters");
  expect_fault(R"("source": "out = 1;", "kind": "raw")", "/stages/0/source", "__global__ void NAME");
}

TEST(CudaKernel, SaysWhatIsWrongWithARawKernel) {
  const std::string raw =
      R"("kind": "raw", "source": "extern \"C\" __global__ void one(float* o) {} extern \"C\" __global__ void two(float* o) {}")";
  expect_fault(raw, "/stages/0/source", "'one' or 'two'");
  expect_fault(raw + R"(, "entry": "on")", "/stages/0/entry", "did you mean 'one'");
  expect_fault(raw + R"(, "entry": "one", "threads": [32, 32, 2])", "/stages/0/threads", "at most 1024 threads");
  expect_fault(raw + R"(, "entry": "one", "threads": 0)", "/stages/0/threads", "whole number");
  expect_fault(raw + R"(, "entry": "one", "blocks": [1, 65536, 1])", "/stages/0/blocks", "along y");
  expect_fault(R"("kind": "raw", "source": "__global__ void one(float* o) {}")", "/stages/0/source", "extern \"C\"");
  EXPECT_THAT(faults_of(raw + R"(, "entry": "two", "threads": [8, 8, 4], "blocks": 7)"), ElementsAre());
}

TEST(CudaKernel, CoversTheGridWithBlocks) {
  KernelParams params;
  EXPECT_EQ(launch_size(params, {17, 3, 33}).blocks, (Index3{7, 1, 1}));  // 1683 voxels
  EXPECT_EQ(launch_size(params, {17, 3, 33}).threads, (Index3{256, 1, 1}));
  params.threads = LaunchExtent{{8, 4, 2}, false};
  EXPECT_EQ(launch_size(params, {17, 3, 33}).blocks, (Index3{3, 1, 17}));
  params.blocks = LaunchExtent{{5, 1, 1}, true};
  EXPECT_EQ(launch_size(params, {17, 3, 33}).blocks, (Index3{5, 1, 1}));
}

class CudaKernelTwin : public testing::Test {
 protected:
  PipelineResult run(const std::string& parameters, const ImageInfos& infos, TestFiles files = {}) {
    return run_pipeline(*cpu_, pipeline_of(kernel(parameters), infos.size() > 1 ? kTwoInputs : ""),
                        random_images(*cpu_, infos, 3), {}, std::move(files));
  }

  static VolumeInfo info(DataType dtype, std::int64_t components = 1) {
    return {oblique_grid({5, 4, 3}), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
  }

  const std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu());
};

TEST_F(CudaKernelTwin, RunsOnTheCpu) {
  const ImageInfos infos{{"image", info(DataType::int16)}};
  const auto before = values_of(random_images(*cpu_, infos, 3).at("image"));
  const PipelineResult result =
      run(R"("source": "out = in * gain + i;", "constants": {"gain": 2.5}, "cpu": "in * gain + i")", infos);
  const Volume& image = result.images.at("image");
  EXPECT_EQ(image.dtype(), DataType::float32);
  const auto after = values_of(image);
  for (std::size_t n = 0; n < after.size(); ++n) EXPECT_EQ(after[n], before[n] * 2.5 + double(n % 5)) << n;
}

TEST_F(CudaKernelTwin, MakesANewImageFromOthers) {
  VolumeInfo label = info(DataType::uint8);
  label.kind = ImageKind::label;
  const ImageInfos infos{{"image", info(DataType::float32, 2)}, {"label", label}};
  const Images before = random_images(*cpu_, infos, 3);
  const PipelineResult result =
      run(R"json("source": "out = mask > 99 ? in : 0;", "inputs": {"mask": "label"}, "output": "new",
                 "cpu": "where(mask > 99, in, 0)", "precision": "double", "on": "image")json",
          infos);
  EXPECT_EQ(result.images.at("new").dtype(), DataType::float64);
  EXPECT_TRUE(same_bytes(result.images.at("image"), before.at("image")));
  const auto in = values_of(before.at("image")), mask = values_of(before.at("label")),
             out = values_of(result.images.at("new"));
  ASSERT_EQ(out.size(), 120u);
  for (std::size_t n = 0; n < out.size(); ++n) EXPECT_EQ(out[n], mask[n % 60] > 99 ? in[n] : 0) << n;
}

TEST_F(CudaKernelTwin, KeepsThePixelTypeOfLabels) {
  VolumeInfo label = info(DataType::int32);
  label.kind = ImageKind::label;
  const ImageInfos infos{{"image", info(DataType::uint8)}, {"label", label}};
  const auto before = values_of(random_images(*cpu_, infos, 3).at("label"));
  const std::string code = R"("source": "out = in - 1;", "cpu": "in - 1", "on": "label")";
  const PipelineResult replaced = run(code, infos), made = run(code + R"(, "output": "new")", infos);
  EXPECT_EQ(replaced.images.at("label").dtype(), DataType::int32);
  EXPECT_EQ(made.images.at("new").dtype(), DataType::float32);
  EXPECT_EQ(made.images.at("new").info().kind, ImageKind::image);
  const auto after = values_of(replaced.images.at("label")), floats = values_of(made.images.at("new"));
  for (std::size_t n = 0; n < before.size(); ++n) {
    EXPECT_EQ(after[n], std::max(before[n] - 1, -2147483648.0));
    EXPECT_EQ(floats[n], float(before[n] - 1));
  }
}

TEST_F(CudaKernelTwin, CountsWhatIntegersCannotHold) {
  const PipelineResult result =
      run(R"("source": "out = 300;", "dtype": "uint8", "cpu": "in * 0 + 300")", {{"image", info(DataType::uint8)}});
  EXPECT_EQ(result.record.saturated_voxels, 60);
  EXPECT_THAT(values_of(result.images.at("image")), testing::Each(255));
}

TEST_F(CudaKernelTwin, TakesReductionsAsExpressions) {
  const ImageInfos infos{{"image", info(DataType::float32)}};
  const auto before = values_of(random_images(*cpu_, infos, 3).at("image"));
  double squares = 0;
  for (const double value : before) squares += value * value;
  const PipelineResult result = run(
      R"json("kind": "reduction", "source": "in * in", "reduce": "a + b", "identity": "0",
             "post": "out = in / sqrt(result);", "cpu": "in / sqrt(sum(in * in))")json",
      infos);
  const auto after = values_of(result.images.at("image"));
  for (std::size_t n = 0; n < after.size(); ++n)
    EXPECT_NEAR(after[n], before[n] / std::sqrt(squares), 1e-6);  // a few roundings to float32 of values below 1
}

TEST_F(CudaKernelTwin, IsMissedByTheItem) {
  const PipelineResult planned = [] {
    PipelineResult result;
    result.plan = make_plan(pipeline_of(kernel(R"("source": "out = 1;")")), {{"image", info(DataType::uint8)}}, {});
    return result;
  }();
  EXPECT_EQ(planned.plan.groups.size(), 1u);
  try {
    run(R"("source": "out = 1;")", {{"image", info(DataType::uint8)}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.stage(), "cuda_kernel");
    EXPECT_THAT(error.what(), HasSubstr("'cpu'"));
  }
}

TEST(CudaKernel, IsKnownToThePipeline) {
  EXPECT_EQ(pipeline_of(R"({"op": "flip", "axes": "x"})").find_given_code(), nullptr);
  const Pipeline pipeline = pipeline_of(R"({"op": "flip", "axes": "x"}, )" + kernel(R"("source": "out = 1;")"));
  ASSERT_NE(pipeline.find_given_code(), nullptr);
  EXPECT_EQ(pipeline.find_given_code()->pointer, "/stages/1");
  const Pipeline random =
      pipeline_of(kernel(R"("source": "out = in * g;", "constants": {"g": {"uniform": [1.0, 2.0]}})"));
  EXPECT_NE(random.find_given_code(), nullptr);
}

}  // namespace
}  // namespace volpipe
