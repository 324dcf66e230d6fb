// CPU against CUDA for every executor of the separable maps.
#include <gtest/gtest.h>

#include "support/separable_reference.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing;

class SeparableGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = make_context(Device::cuda(0));
    cpu_ = make_context(Device::cpu());
  }

  static Volume duplicate(const Volume& volume) {
    Volume result(volume.info(), Buffer::host(volume.info().bytes()));
    std::memcpy(result.data(), volume.data(), volume.info().bytes());
    return result;
  }

  /// Leaves NaN bits in freed device memory, so that a voxel that is not written shows.
  void poison(std::size_t bytes) {
    VolumeInfo info = info_of({std::int64_t(bytes / 4 + 4096), 1, 1});
    cuda_->to_device(volume_from(info, [](std::int64_t) { return std::numeric_limits<float>::quiet_NaN(); }));
  }

  Volume on_cuda(const Volume& input, const GridMap& map, double fill) {
    poison(2 * map.output.bytes());
    const Volume device = cuda_->to_device(duplicate(input));
    return cuda_->to_host(apply_map(*cuda_, device, map, fill));
  }

  void expect_parity(const Volume& input, const GridMap& map, const std::string& name, double tolerance = 1e-6) {
    const double fill = fill_of(map);
    const Volume expected = apply_map(*cpu_, input, map, fill);
    const Volume actual = on_cuda(input, map, fill);
    ASSERT_EQ(actual.info(), expected.info()) << name;
    if (actual.dtype() == input.dtype() && map.copies())
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.info().bytes()), 0) << name;
    else EXPECT_LE(relative_difference(values_of(actual), values_of(expected)), tolerance) << name;
    const Volume again = on_cuda(input, map, fill);
    EXPECT_EQ(std::memcmp(actual.data(), again.data(), expected.info().bytes()), 0) << name << ": not the same twice";
  }

  std::unique_ptr<DeviceContext> cuda_, cpu_;
};

const std::vector<Index3> kSizes{{1, 1, 1}, {2, 3, 1}, {17, 33, 5}, {33, 17, 40}, {130, 70, 33}, {64, 128, 96}};

TEST_F(SeparableGpu, EveryCaseAtEverySize) {
  for (const Index3& size : kSizes) {
    const Volume input = random_volume(info_of(size));
    for (const char* entry : separable_cases()) {
      std::optional<GridMap> map;
      try {
        map = map_of(entry, input.info());
      } catch (const Error&) {
        continue;  // a crop that leaves nothing of a small volume
      }
      expect_parity(input, *map, std::string(entry) + " on " + size_in_words(size));
    }
  }
}

TEST_F(SeparableGpu, EveryPixelTypeAndSeveralComponents) {
  for (const DataType type : all_types()) {
    const Volume input = random_volume(info_of({35, 18, 21}, type, 3));
    for (const char* entry : separable_cases())
      expect_parity(input, map_of(entry, input.info()), std::string(entry) + " on " + std::string(to_string(type)));
  }
}

TEST_F(SeparableGpu, DoublePrecision) {
  const Volume input = random_volume(info_of({35, 18, 21}, DataType::float64, 2));
  for (const char* entry : separable_cases()) {
    GridMap map = map_of(entry, input.info());
    map.output.dtype = DataType::float64;
    const Volume expected = apply_map(*cpu_, input, map, fill_of(map));
    EXPECT_LE(relative_difference(values_of(on_cuda(input, map, fill_of(map))), values_of(expected)), 1e-14) << entry;
  }
}

TEST_F(SeparableGpu, PermutedComputingMaps) {
  for (const DataType type : {DataType::uint8, DataType::float32, DataType::float64}) {
    const Volume input = random_volume(info_of({35, 18, 21}, type, 2));
    for (const char* order : {"xzy", "yxz", "zyx", "yzx", "zxy"})
      for (const char* entry :
           {R"({"op":"resize","scale":0.6})", R"({"op":"resize","scale":1.6,"interpolation":"bspline3"})"}) {
        const GridMap permuted =
            map_of((std::string(R"({"op":"permute","order":")") + order + "\"}").c_str(), input.info());
        const auto map = compose(map_of(entry, permuted.output), permuted);
        ASSERT_TRUE(map) << entry;
        expect_parity(input, *map, std::string(entry) + order);
      }
  }
}

TEST_F(SeparableGpu, SplinePrefilters) {
  constexpr double kTolerance = 3e-6;  // alternating weights: up to 7.5 in magnitude an axis
  for (const Index3& size : {Index3{1, 2, 3}, Index3{17, 33, 5}, Index3{130, 70, 33}})
    for (const Interpolation spline :
         {Interpolation::bspline2, Interpolation::bspline3, Interpolation::bspline4, Interpolation::bspline5})
      for (int b = 0; b < int(EnumNames<Boundary>::names.size()); ++b) {
        const Volume input = random_volume(info_of(size));
        const std::int64_t pad = spline_pad(spline, Boundary(b));
        std::array<AxisRule, 3> rules;
        for (std::size_t axis = 0; axis < 3; ++axis)
          rules[axis] = {prefilter_axis(size[axis], spline, Boundary(b), pad), 1, -double(pad)};
        GridMap map = grid_map(input.info(), {0, 1, 2}, std::move(rules), {.value = 300});
        map.computes = true;
        expect_parity(input, map, EnumNames<Boundary>::names[std::size_t(b)] + (" of " + size_in_words(size)),
                      kTolerance);
      }
}

TEST_F(SeparableGpu, FillMinimumAndNaNStayLocal) {
  Volume input = random_volume(info_of({40, 41, 42}));
  input.data_as<float>()[20 + 40 * (20 + 41 * 20)] = std::numeric_limits<float>::quiet_NaN();
  input.data_as<float>()[5 + 40 * (6 + 41 * 7)] = std::numeric_limits<float>::infinity();
  for (const char* entry : separable_cases()) {
    const GridMap map = map_of(entry, input.info());
    const auto count = [](const Volume& volume) {
      std::int64_t bad = 0;
      for (const double value : values_of(volume)) bad += !std::isfinite(value);
      return bad;
    };
    EXPECT_EQ(count(on_cuda(input, map, fill_of(map))), count(apply_map(*cpu_, input, map, fill_of(map)))) << entry;
  }
}

TEST_F(SeparableGpu, LongThinVolumes) {
  for (const Index3& size : {Index3{200001, 1, 2}, Index3{2, 100003, 1}, Index3{1, 2, 70001}})
    for (const char* entry :
         {R"({"op":"flip","axes":"xyz"})", R"({"op":"permute","order":"zyx"})", R"({"op":"gaussian","sigma":2})",
          R"({"op":"resize","scale":0.75})", R"({"op":"resize","scale":0.01})",
          R"({"op":"resize","scale":1.2,"interpolation":"bspline3"})"}) {
      const Volume input = random_volume(info_of(size));
      expect_parity(input, map_of(entry, input.info()), std::string(entry) + size_in_words(size));
    }
}

}  // namespace
}  // namespace volpipe
