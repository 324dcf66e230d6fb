// Custom kernels on CUDA: against their twins on the CPU, against references, and what compiling costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "device/nvrtc.h"
#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::Each;
using testing::HasSubstr;

constexpr char kWithMask[] = R"(, "inputs": {"image": {"suffix": "_i"}, "mask": {"suffix": "_m"}})";
const Index3 kSizes[] = {{1, 1, 1}, {2, 3, 1}, {3, 2, 17}, {17, 33, 3}, {33, 17, 40}, {130, 67, 21}};
constexpr DataType kTypes[] = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                               DataType::uint32, DataType::int32, DataType::float32, DataType::float64};

class CudaKernelGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    if (const std::string reason = why_no_kernel_compiler(); !reason.empty()) GTEST_SKIP() << reason;
    std::string name = (std::filesystem::temp_directory_path() / "volpipe-kernels-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(name.data()));
    folder_ = name;
    ::setenv("VOLPIPE_CACHE_DIR", folder_.c_str(), 1);
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }
  void TearDown() override {
    ::unsetenv("VOLPIPE_CACHE_DIR");
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  static Pipeline kernel(const std::string& parameters, const std::string& more = "") {
    return pipeline_of(R"({"op": "cuda_kernel", )" + parameters + "}", more);
  }
  static VolumeInfo info(const Index3& size, DataType dtype, std::int64_t components = 1) {
    return {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
  }
  PipelineResult run(DeviceContext& context, const Pipeline& pipeline, const ImageInfos& infos) {
    return run_pipeline(context, pipeline, random_images(context, infos, 5));
  }
  std::vector<double> values(const ImageInfos& infos, const std::string& image = "image") {
    return values_of(random_images(*cpu_, infos, 5).at(image));
  }
  std::vector<double> run_kernel(const std::string& parameters, const ImageInfos& infos) {
    return values_of(run(*cuda_, kernel(parameters), infos).images.at("image"));
  }
  std::size_t compiled() const {
    const auto files = std::filesystem::directory_iterator(folder_ + "/kernels");
    return std::size_t(std::distance(begin(files), end(files))) - 1;  // one says which compiler it was
  }

  std::string folder_;
  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

/// Sums, products and comparisons round alike on both devices, so the results are the same to the bit.
TEST_F(CudaKernelGpu, ElementwiseCodeAgreesWithItsTwin) {
  const std::string code =
      R"json("source": "if (in > low) out = (in - low) * gain + i - 2 * j + k; else out = 0;",
             "constants": {"low": 40, "gain": 0.75}, "cpu": "where(in > low, (in - low) * gain + i - 2 * j + k, 0)")json";
  for (const char* more : {"", R"(, "dtype": "uint8")", R"(, "dtype": "int32")", R"(, "precision": "double")"})
    for (const DataType dtype : kTypes)
      for (const Index3& size : kSizes)
        for (const std::int64_t components : {1, 3}) {
          SCOPED_TRACE(std::string(to_string(dtype)) + more + " " + std::to_string(size[0]));
          const Pipeline pipeline = kernel(code + more);
          const ImageInfos infos{{"image", info(size, dtype, components)}};
          const PipelineResult on_cuda = run(*cuda_, pipeline, infos), on_cpu = run(*cpu_, pipeline, infos);
          EXPECT_TRUE(same_bytes(on_cuda.images.at("image"), on_cpu.images.at("image")));
          EXPECT_EQ(on_cuda.record.saturated_voxels, on_cpu.record.saturated_voxels);
          EXPECT_EQ(on_cuda.record.transfers.h2d_count, 1);
          EXPECT_EQ(on_cuda.record.transfers.d2h_count, 1);
        }
}

TEST_F(CudaKernelGpu, InputsAreOtherImages) {
  const Pipeline pipeline = kernel(
      R"json("source": "out = m > 100 ? in * m : in;", "inputs": {"m": "mask"}, "on": "image", "output": "new",
             "cpu": "where(m > 100, in * m, in)")json",
      kWithMask);
  for (const std::int64_t components : {1, 3})
    for (const Index3& size : kSizes) {
      ImageInfos infos{{"image", info(size, DataType::float32, 3)}, {"mask", info(size, DataType::uint8, components)}};
      const PipelineResult on_cuda = run(*cuda_, pipeline, infos), on_cpu = run(*cpu_, pipeline, infos);
      EXPECT_TRUE(same_bytes(on_cuda.images.at("new"), on_cpu.images.at("new")));
      EXPECT_TRUE(same_bytes(on_cuda.images.at("image"), on_cpu.images.at("image")));
    }
}

TEST_F(CudaKernelGpu, EveryVariableIsWhatItSays) {
  for (const Index3& size : kSizes) {
    const ImageInfos infos{{"image", info(size, DataType::float32, 2)}};
    const auto places = run_kernel(
        R"("source": "out = i + nx * (j + ny * (k + nz * (component + components * real(0))));", "dtype": "float64")",
        infos);
    for (std::size_t n = 0; n < places.size(); ++n) ASSERT_EQ(places[n], double(n));
    const auto world = run_kernel(R"("source": "out = x + 10 * y + 100 * z;", "precision": "double")", infos);
    const Geometry grid = oblique_grid(size);
    for (std::int64_t n = 0; n < grid.voxel_count(); ++n) {
      const Vec3 at =
          grid.to_world({double(n % size[0]), double(n / size[0] % size[1]), double(n / size[0] / size[1])});
      ASSERT_NEAR(world[std::size_t(n)], at[0] + 10 * at[1] + 100 * at[2], 1e-9);  // double, values below 1e5
    }
  }
}

TEST_F(CudaKernelGpu, ConversionsToIntegersRoundAndSaturate) {
  const ImageInfos infos{{"image", info({8, 1, 1}, DataType::uint8)}};
  const PipelineResult result = run(
      *cuda_,
      kernel(
          R"("source": ["const float v[] = {0.5f, 1.5f, -0.4f, -0.6f, 254.5f, 255.5f, INFINITY, NAN};", "out = v[i];"],
         "dtype": "uint8")"),
      infos);
  EXPECT_THAT(values_of(result.images.at("image")), testing::ElementsAre(1, 2, 0, 0, 255, 255, 255, 0));
  EXPECT_EQ(result.record.saturated_voxels, 3);  // -0.6, 255.5 and infinity
  EXPECT_EQ(result.record.warnings.size(), 2u);
}

/// Values computed in double, in an order that differs from the test's: 1e-12 is thousands of roundings.
TEST_F(CudaKernelGpu, ReductionsAgreeWithAReference) {
  std::vector<Index3> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back({300, 256, 256});  // more chunks than a chunk holds
  for (const Index3& size : sizes)
    for (const std::int64_t components : {1, 2}) {
      const ImageInfos infos{{"image", info(size, DataType::float32, components)}};
      const auto in = values(infos);
      double squares = 0, greatest = -1e300;
      for (const double value : in) squares += value * value, greatest = std::max(greatest, value);
      const auto norm = run_kernel(
          R"("kind": "reduction", "source": "in * in", "reduce": "a + b", "identity": "0",
             "post": "out = in / sqrt(result);", "precision": "double")",
          infos);
      for (std::size_t n = 0; n < in.size(); ++n)
        ASSERT_NEAR(norm[n], in[n] / std::sqrt(squares), 1e-12 * std::abs(norm[n]));
      const auto maximum = run_kernel(
          R"json("kind": "reduction", "source": "in", "reduce": "fmax(a, b)", "identity": "-INFINITY")json", infos);
      EXPECT_THAT(maximum, Each(greatest));
    }
}

TEST_F(CudaKernelGpu, AReductionGivesTheSameBitsEachTime) {
  const Pipeline pipeline =
      kernel(R"("kind": "reduction", "source": "in", "reduce": "a + b", "identity": "0", "precision": "double")");
  const ImageInfos infos{{"image", info({130, 67, 21}, DataType::float32)}};
  const PipelineResult first = run(*cuda_, pipeline, infos);
  for (int n = 0; n < 5; ++n)
    EXPECT_TRUE(
        same_bytes(run(*make_context(Device::cuda(0)), pipeline, infos).images.at("image"), first.images.at("image")));
}

TEST_F(CudaKernelGpu, AReductionStaysWithinItsScratchMemory) {
  const Pipeline pipeline = kernel(R"("kind": "reduction", "source": "in", "reduce": "a + b", "identity": "0")");
  const VolumeInfo image = info({300, 256, 256}, DataType::float32);
  const auto fresh = make_context(Device::cuda(0));
  const PipelineResult result = run(*fresh, pipeline, {{"image", image}});
  EXPECT_LE(fresh->peak_memory(), result.plan.peak_device_bytes + 4096);  // blocks of the pool
}

constexpr char kSumOfNeighbours[] = R"json("kind": "raw", "source": [
  "extern \"C\" __global__ void neighbours(float* out, const short* in, long long nx, long long ny, long long nz,",
  "                                        long long components, double gain) {",
  "  const long long i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;",
  "  const long long k = blockIdx.z * blockDim.z + threadIdx.z, n = i + nx * (j + ny * k), voxels = nx * ny * nz;",
  "  if (i >= nx || j >= ny || k >= nz) return;",
  "  for (long long c = 0; c < components; ++c)",
  "    out[c * voxels + n] = gain * ((i > 0 ? in[c * voxels + n - 1] : 0) + (k + 1 < nz ? in[c * voxels + n + nx * ny] : 0));",
  "}"], "constants": {"gain": 0.5}, "threads": [8, 4, 4])json";

TEST_F(CudaKernelGpu, RawKernelsSeeNeighbours) {
  for (const Index3& size : kSizes)
    for (const std::int64_t components : {1, 2}) {
      const ImageInfos infos{{"image", info(size, DataType::int16, components)}};
      const auto in = values(infos), out = run_kernel(kSumOfNeighbours, infos);
      const std::int64_t plane = size[0] * size[1], voxels = plane * size[2];
      for (std::int64_t n = 0; n < voxels * components; ++n) {
        const std::int64_t i = n % size[0], k = n % voxels / plane;
        const double left = i > 0 ? in[std::size_t(n - 1)] : 0,
                     above = k + 1 < size[2] ? in[std::size_t(n + plane)] : 0;
        ASSERT_EQ(out[std::size_t(n)], 0.5 * (left + above)) << n;
      }
    }
}

TEST_F(CudaKernelGpu, RawKernelsRunAsManyThreadsAsAskedFor) {
  const std::string code = R"("kind": "raw", "source": "
    extern \"C\" __global__ void one(double* out, const float*, long long, long long, long long, long long) { atomicAdd(out, 1.0); }
    extern \"C\" __global__ void two(double* out, const float*, long long, long long, long long, long long) { atomicAdd(out, 2.0); }",
    "dtype": "float64", )";
  const ImageInfos infos{{"image", info({10, 10, 10}, DataType::float32)}};
  const auto in_one_line = [](std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  const auto by_size = run_kernel(in_one_line(code + R"("entry": "one", "threads": 64)"), infos);
  EXPECT_EQ(by_size[0], 16 * 64);
  EXPECT_EQ(by_size[1], 0);  // what is not written is 0
  EXPECT_EQ(run_kernel(in_one_line(code + R"("entry": "two", "threads": 32, "blocks": [2, 3, 1])"), infos)[0],
            2 * 6 * 32);
  EXPECT_EQ(run_kernel(in_one_line(code + R"("entry": "one", "threads": [4, 4, 2])"), infos)[0], 3 * 3 * 5 * 32);
}

TEST_F(CudaKernelGpu, AFaultOfTheCodeFailsTheItemAtTheUsersLine) {
  const ImageInfos infos{{"image", info({4, 4, 4}, DataType::float32)}};
  try {
    run_kernel(R"("source": ["real v = in;", "out = v + foo;"], "name": "mine")", infos);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_EQ(error.stage(), "mine");
    EXPECT_THAT(error.what(), HasSubstr("source:2: error: identifier \"foo\" is undefined"));
    EXPECT_THAT(error.what(), HasSubstr("out = v + foo;"));
  }
  run_kernel(R"("source": "out = in;")", infos);  // and the context lives on
}

int exit_code_of_a_write_beyond_memory() {
  const auto context = make_context(Device::cuda(0));
  const Pipeline pipeline = pipeline_of(R"({"op": "cuda_kernel", "kind": "raw", "source":
    "extern \"C\" __global__ void wild(float* out, const float*, long long, long long, long long, long long) { out[1ll << 40] = 1; }"})");
  try {
    run_pipeline(*context, pipeline, random_images(*context, {{"image", {}}}, 1));
  } catch (const Error& error) {
    return error.code() == ErrorCode::device && std::string(error.what()).find("'wild' failed") != std::string::npos
               ? 0
               : 1;
  }
  return 2;
}

TEST_F(CudaKernelGpu, AKernelThatWritesBeyondMemoryIsNamed) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(std::_Exit(exit_code_of_a_write_beyond_memory()), testing::ExitedWithCode(0), "");
}

TEST_F(CudaKernelGpu, ValuesAndSizesDoNotCompileAgain) {
  for (const char* gain : {"1", "2.5"})
    for (const Index3& size : kSizes)
      run_kernel(std::string(R"("source": "out = in * gain + nx;", "constants": {"gain": )") + gain + "}",
                 {{"image", info(size, DataType::float32)}});
  EXPECT_EQ(compiled(), 1u);
  run_kernel(R"("source": "out = in * gain + nx;", "constants": {"gain": 1})",
             {{"image", info({4, 4, 4}, DataType::int16)}});
  EXPECT_EQ(compiled(), 2u);
}

/// A context that has worked before: what is measured is what the kernel adds. The first use compiles, the second finds
/// machine code on disk, the third finds it loaded.
TEST_F(CudaKernelGpu, AWarmStartTakesMilliseconds) {
  const Pipeline pipeline = kernel(R"("source": "out = in * gain + x;", "constants": {"gain": 2})");
  const ImageInfos infos{{"image", info({32, 32, 32}, DataType::float32)}};
  const auto measure = [&](DeviceContext& context) {
    Images images = random_images(context, infos, 5);
    const auto start = std::chrono::steady_clock::now();
    run_pipeline(context, pipeline, std::move(images));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  const auto warmed_up = [&] {
    auto context = make_context(Device::cuda(0));
    run(*context, pipeline_of(R"({"op": "clip", "min": 0})"), infos);
    return context;
  };
  const double cold = measure(*warmed_up());
  double from_disk = 1e9;
  for (int n = 0; n < 3; ++n) from_disk = std::min(from_disk, measure(*warmed_up()));
  const auto context = warmed_up();
  measure(*context);
  const double loaded = measure(*context);
  std::printf("custom kernel, 32^3 with its copies: %.2f ms compiled, %.2f ms from disk, %.2f ms loaded\n", cold,
              from_disk, loaded);
  EXPECT_LT(from_disk, 5);
  EXPECT_LT(from_disk, cold);
}

TEST_F(CudaKernelGpu, ContextsInThreadsDoNotDisturbEachOther) {
  const Pipeline pipeline = kernel(
      R"("kind": "reduction", "source": "in", "reduce": "a + b", "identity": "0", "post": "out = in + result;")");
  const ImageInfos infos{{"image", info({70, 60, 50}, DataType::float32)}};
  const PipelineResult expected = run(*cuda_, pipeline, infos);
  const int devices = int(list_devices().size()) - 1;
  std::atomic<int> same{0};
  std::vector<std::thread> workers;
  for (int n = 0; n < 4; ++n)
    workers.emplace_back([&, n] {
      const auto context = make_context(Device::cuda(n % devices));
      for (int repeat = 0; repeat < 5; ++repeat)
        same += same_bytes(run(*context, pipeline, infos).images.at("image"), expected.images.at("image"));
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(same, 20);
  EXPECT_EQ(compiled(), 1u);
}

}  // namespace
}  // namespace volpipe
