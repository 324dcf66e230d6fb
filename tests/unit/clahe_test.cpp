// Contrast-limited adaptive histogram equalization against a plain one in double, on degenerate images, and its faults.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "support/pipeline_runs.h"
#include "support/pointwise_data.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTop = 16383;  // the highest level

struct Setting {
  Index3 tile;
  double clip_limit = 0.01;
  int bins = 256;
  std::vector<char> counted{};  ///< empty: all
};

/// Excess counts go to the bins below the limit: first the same to each, then one each to bins at even steps.
std::vector<double> clipped(std::vector<double> counts, double limit) {
  const double bins = double(counts.size());
  double left = 0;
  for (double& count : counts) {
    left += std::max(count - limit, 0.0);
    count = std::min(count, limit);
  }
  const double each = std::floor(left / bins);
  for (double& count : counts) {
    const double before = count;
    if (count < limit - each) count += each;
    if (count >= limit - each) count = limit;
    left -= count - before;
  }
  for (double before = left + 1; left > 0 && left != before;) {
    before = left;
    for (std::size_t first = 0; first < counts.size() && left > 0; ++first) {
      const auto below = std::count_if(counts.begin(), counts.end(), [&](double count) { return count < limit; });
      const auto step = std::max<std::size_t>(1, std::size_t(double(below) / left));
      for (std::size_t bin = first; bin < counts.size(); bin += step)
        if (counts[bin] < limit) {
          ++counts[bin];
          --left;
        }
    }
  }
  return counts;
}

std::vector<double> tile_map(std::vector<double> counts, double clip_limit) {
  double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (total == 0) {
    counts.assign(counts.size(), 1);
    total = double(counts.size());
  } else if (clip_limit > 0) {
    counts = clipped(counts, std::max(1.0, std::floor(clip_limit * total)));
  }
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
  for (double& count : counts) count = std::floor(std::min(kTop, count * (kTop / total)));
  return counts;
}

/// One component on a grid of `size`, result from 0 to 1.
std::vector<double> equalized(const std::vector<double>& values, const Index3& size, const Setting& setting) {
  const auto counts = [&](std::size_t i) {
    return std::isfinite(values[i]) && (setting.counted.empty() || setting.counted[i]);
  };
  double low = kInfinity, high = -kInfinity;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (counts(i)) {
      low = std::min(low, values[i]);
      high = std::max(high, values[i]);
    }
  const auto bin_of = [&](double value) {
    const double level = std::nearbyint((value - low) / (high - low) * kTop);
    return std::size_t(std::clamp(level, 0.0, kTop)) / std::size_t(1 + 16384 / setting.bins);
  };
  const auto number = [&](const Index3& at) { return std::size_t((at[2] * size[1] + at[1]) * size[0] + at[0]); };

  Index3 tiles;
  for (std::size_t axis = 0; axis < 3; ++axis) tiles[axis] = (size[axis] + setting.tile[axis] - 1) / setting.tile[axis];
  std::vector<std::vector<double>> maps;
  for (std::int64_t t = 0; t < tiles[0] * tiles[1] * tiles[2]; ++t) {
    const Index3 tile{t % tiles[0], t / tiles[0] % tiles[1], t / tiles[0] / tiles[1]};
    std::vector<double> found(std::size_t(setting.bins), 0.0);
    const auto& n = setting.tile;
    for (std::int64_t v = 0; v < n[0] * n[1] * n[2]; ++v) {
      Index3 at{v % n[0], v / n[0] % n[1], v / n[0] / n[1]};
      for (std::size_t axis = 0; axis < 3; ++axis) {
        at[axis] += tile[axis] * n[axis];
        if (at[axis] >= size[axis]) at[axis] = 2 * size[axis] - 2 - at[axis];
      }
      if (counts(number(at))) ++found[bin_of(values[number(at)])];
    }
    maps.push_back(tile_map(found, setting.clip_limit));
  }

  std::vector<double> levels(values.size(), kNan);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const Index3 at{std::int64_t(i) % size[0], std::int64_t(i) / size[0] % size[1],
                    std::int64_t(i) / size[0] / size[1]};
    levels[i] = 0;
    for (int corner = 0; corner < 8; ++corner) {
      double weight = 1;
      std::int64_t tile = 0;
      for (std::size_t axis = 3; axis-- > 0;) {
        const std::int64_t n = setting.tile[axis];
        const double place = double(at[axis] + n / 2) / double(n);  // of tile t's middle: t + 1; of tiles of a voxel: t
        const double below = std::floor(place), share = place - below;
        const bool upper = corner >> axis & 1;
        weight *= upper ? share : 1 - share;
        const double nearest = below - (n > 1) + upper;
        tile = tile * tiles[axis] + std::clamp<std::int64_t>(std::int64_t(nearest), 0, tiles[axis] - 1);
      }
      if (weight > 0) levels[i] += weight * maps[std::size_t(tile)][bin_of(values[i])];
    }
  }
  double least = kInfinity, greatest = -kInfinity;
  for (const double level : levels)
    if (!std::isnan(level)) {
      least = std::min(least, level);
      greatest = std::max(greatest, level);
    }
  for (double& level : levels) level = least < greatest ? (level - least) / (greatest - least) : 0 * level;
  return levels;
}

VolumeInfo info_of(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
  return {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
}

Volume volume_of(const VolumeInfo& info, const std::vector<double>& values) {
  return testing_support::volume_of(info, [&](std::int64_t i) { return values[std::size_t(i)]; });
}

/// Smooth waves with noise: bins of every height.
std::vector<double> waves(const Index3& size, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 8);
  std::vector<double> values;
  for (std::int64_t k = 0; k < size[2]; ++k)
    for (std::int64_t j = 0; j < size[1]; ++j)
      for (std::int64_t i = 0; i < size[0]; ++i)
        values.push_back(
            std::round(100 * std::sin(0.2 * double(i)) * std::cos(0.15 * double(j) - 0.3 * double(k)) + noise(random)));
  return values;
}

class ClaheTest : public testing::Test {
 protected:
  PipelineResult run(const std::string& parameters, Images images, const std::string& more = "", int threads = 2) {
    const auto cpu = make_context(Device::cpu(), threads);
    const std::string units = parameters.find("units") == std::string::npos ? R"(, "units": "voxel")" : "";
    return run_pipeline(*cpu, pipeline_of(R"({"op": "clahe")" + units + parameters + "}", more), std::move(images));
  }
  PipelineResult run(const std::string& parameters, const VolumeInfo& info, const std::vector<double>& values) {
    Images images;
    images.emplace("image", volume_of(info, values));
    return run(parameters, std::move(images));
  }
  std::vector<double> values(const std::string& parameters, const VolumeInfo& info, const std::vector<double>& input) {
    return values_of(run(parameters, info, input).images.at("image"));
  }

  /// Levels are rounded to float32, of which the least is taken away: three roundings of 2^-24 and some for the sums.
  static constexpr double kTolerance = 4e-7;
  void expect_equal(const std::vector<double>& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(wanted[i])) << i;
      if (std::isnan(wanted[i])) continue;
      ASSERT_NEAR(got[i], wanted[i], kTolerance) << i;
    }
  }
};

std::string in_words(const Index3& tile) {
  return R"(, "kernel": [)" + std::to_string(tile[0]) + "," + std::to_string(tile[1]) + "," + std::to_string(tile[2]) +
         "]";
}

TEST_F(ClaheTest, FollowsTheDefinition) {
  struct Case {
    Index3 size, tile;
  };
  for (const auto& [size, tile] :
       {Case{{33, 17, 20}, {8, 5, 6}}, Case{{33, 17, 20}, {33, 17, 20}}, Case{{17, 33, 3}, {4, 4, 2}},
        Case{{16, 16, 16}, {2, 3, 4}}, Case{{40, 1, 1}, {7, 1, 1}}, Case{{3, 2, 17}, {2, 2, 5}},
        Case{{20, 20, 8}, {1, 10, 8}}})
    for (const double limit : {0.0, 0.01, 0.1, 0.5, 1.0})
      for (const int bins : {2, 60, 256, 2048}) {
        SCOPED_TRACE(in_words(tile) + " of " + std::to_string(size[0]) + ", limit " + std::to_string(limit) + ", " +
                     std::to_string(bins) + " bins");
        const auto input = waves(size);
        const auto got = values(
            in_words(tile) + R"(, "clip_limit": )" + std::to_string(limit) + R"(, "bins": )" + std::to_string(bins),
            info_of(size), input);
        expect_equal(got, equalized(input, size, {tile, limit, bins}));
      }
}

TEST_F(ClaheTest, TakesEveryPixelType) {
  const Index3 size{20, 15, 10};
  std::vector<double> input = waves(size);
  for (double& value : input) value = std::clamp(std::round((value + 130) / 3), 0.0, 100.0);
  for (const DataType type : kAllTypes) {
    const auto result = run(R"(, "kernel": 6)", info_of(size, type), input);
    EXPECT_EQ(result.images.at("image").dtype(), DataType::float32);
    expect_equal(values_of(result.images.at("image")), equalized(input, size, {{6, 6, 6}}));
  }
}

TEST_F(ClaheTest, TilesAreAnEighthOfTheImageUnlessGiven) {
  const Index3 size{34, 16, 9};
  const auto input = waves(size);
  expect_equal(values("", info_of(size), input), equalized(input, size, {{4, 2, 1}}));
}

TEST_F(ClaheTest, MillimetresAreRoundedToVoxelsAndATileIsAtMostTheImage) {
  const Index3 size{30, 20, 10};
  const auto input = waves(size);
  // Voxels of 0.9, 1.3 and 2.1 mm.
  expect_equal(values(R"(, "units": "mm", "kernel": [7.2, 6, 500])", info_of(size), input),
               equalized(input, size, {{8, 5, 10}}));
}

TEST_F(ClaheTest, SlicesAreWorkedOnByThemselves) {
  const Index3 size{24, 18, 12};
  auto input = waves(size);
  const char* const names[] = {"x", "y", "z"};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    Index3 tile{6, 6, 6};
    tile[axis] = 1;
    const std::string parameters = R"(, "kernel": 6, "slices": ")" + std::string(names[axis]) + "\"";
    const auto got = values(parameters, info_of(size), input);
    expect_equal(got, equalized(input, size, {tile}));
  }
  // What another slice holds changes nothing but, through the range of the result, all alike.
  const auto before = values(R"(, "kernel": 6, "slices": "z")", info_of(size), input);
  std::rotate(input.begin() + 24 * 18, input.begin() + 2 * 24 * 18, input.end());
  const auto after = values(R"(, "kernel": 6, "slices": "z")", info_of(size), input);
  for (std::size_t i = 0; i < 24 * 18; ++i) ASSERT_EQ(before[i], after[i]);
}

TEST_F(ClaheTest, NonFiniteVoxelsAreNotCounted) {
  const Index3 size{20, 16, 12};
  auto input = waves(size);
  for (std::size_t i = 0; i < input.size(); i += 5) input[i] = std::array{kNan, kInfinity, -kInfinity}[i % 3];
  for (std::int64_t k = 0; k < 4; ++k)  // one tile has nothing else
    for (std::int64_t j = 0; j < 4; ++j)
      for (std::int64_t i = 0; i < 4; ++i)
        input[std::size_t((k * size[1] + j) * size[0] + i)] = (i + j) % 2 ? kNan : kInfinity;
  const auto got = values(R"(, "kernel": 4, "clip_limit": 0.1)", info_of(size), input);
  expect_equal(got, equalized(input, size, {{4, 4, 4}, 0.1}));
  for (const double value : got) EXPECT_TRUE(std::isnan(value) || (value >= 0 && value <= 1));
}

TEST_F(ClaheTest, CountsUnderMasks) {
  const Index3 size{22, 16, 12};
  const VolumeInfo info = info_of(size);
  auto input = waves(size);
  for (std::size_t i = 0; i < input.size(); ++i)
    if (i % 22 < 8) input[i] = 0;
  Setting setting{{8, 8, 8}, 0.05};
  for (const double value : input) setting.counted.push_back(value != 0);
  auto wanted = equalized(input, size, setting);
  for (std::size_t i = 0; i < input.size(); ++i)
    if (input[i] == 0) wanted[i] = 0;  // no data
  expect_equal(values(R"(, "kernel": 8, "clip_limit": 0.05, "mask": "nonzero")", info, input), wanted);

  setting.counted.clear();
  for (const double value : input) setting.counted.push_back(value > 20);
  expect_equal(values(R"(, "kernel": 8, "clip_limit": 0.05, "mask": {"above": 20})", info, input),
               equalized(input, size, setting));

  const auto inside = [](std::size_t i) { return i % 3 == 0; };
  std::vector<double> mask;
  setting.counted.clear();
  for (std::size_t i = 0; i < input.size(); ++i) {
    mask.push_back(inside(i) ? 7 : 0);
    setting.counted.push_back(inside(i));
  }
  Images images;
  images.emplace("image", volume_of(info, input));
  images.emplace("m", volume_of(info_of(size, DataType::uint8), mask));
  const auto result = run(R"(, "kernel": 8, "clip_limit": 0.05, "mask": "m", "on": "image")", std::move(images),
                          R"(, "inputs": {"image": {}, "m": {"suffix": "_m", "kind": "label"}})");
  expect_equal(values_of(result.images.at("image")), equalized(input, size, setting));
}

TEST_F(ClaheTest, EqualizesEachComponentByItself) {
  const Index3 size{18, 14, 10};
  const auto first = waves(size, 1), second = waves(size, 2);
  auto both = first;
  for (const double value : second) both.push_back(1000 + 5 * value);
  auto wanted = equalized(first, size, {{5, 5, 5}});
  const auto more = equalized(second, size, {{5, 5, 5}});
  wanted.insert(wanted.end(), more.begin(), more.end());
  expect_equal(values(R"(, "kernel": 5)", info_of(size, DataType::float32, 2), both), wanted);
}

TEST_F(ClaheTest, FillsTheOutputRange) {
  const Index3 size{18, 14, 10};
  const auto input = waves(size);
  const auto plain = values(R"(, "kernel": 5)", info_of(size), input);
  const auto turned = values(R"(, "kernel": 5, "to": [100, -50])", info_of(size), input);
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(turned[i], 100 - 150 * plain[i], 2e-5);
  EXPECT_EQ(*std::min_element(turned.begin(), turned.end()), -50);
  EXPECT_EQ(*std::max_element(turned.begin(), turned.end()), 100);
}

TEST_F(ClaheTest, ComputesInDoubleWhereAsked) {
  const Index3 size{18, 14, 10};
  const auto input = waves(size);
  const auto result = run(R"(, "kernel": 5, "precision": "double")", info_of(size), input);
  ASSERT_EQ(result.images.at("image").dtype(), DataType::float64);
  const auto got = values_of(result.images.at("image")), wanted = equalized(input, size, {{5, 5, 5}});
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-12);
}

TEST_F(ClaheTest, DegenerateImages) {
  const auto constant =
      run(R"(, "kernel": 2, "to": [3, 5])", info_of({4, 4, 4}, DataType::int16), std::vector<double>(64, 9));
  EXPECT_EQ(values_of(constant.images.at("image")), std::vector<double>(64, 3));
  ASSERT_EQ(constant.record.warnings.size(), 1u);
  EXPECT_EQ(constant.record.warnings[0].code, "constant_image");

  const auto nothing = run("", info_of({2, 2, 2}), std::vector<double>(8, kNan));
  for (const double value : values_of(nothing.images.at("image"))) EXPECT_TRUE(std::isnan(value));
  ASSERT_EQ(nothing.record.warnings.size(), 1u);
  EXPECT_EQ(nothing.record.warnings[0].code, "no_voxels");

  EXPECT_EQ(values("", info_of({1, 1, 1}), {5}), (std::vector<double>{0}));
  // Each voxel alone in its tile is the highest there.
  const auto alone = run("", info_of({2, 1, 1}), {5, 7});
  EXPECT_EQ(values_of(alone.images.at("image")), (std::vector<double>{0, 0}));
  EXPECT_EQ(alone.record.warnings.size(), 1u);
  EXPECT_EQ(values(R"(, "kernel": 9)", info_of({2, 1, 1}), {5, 7}), (std::vector<double>{0, 1}));
}

TEST_F(ClaheTest, IsTheSameForAnyNumberOfThreads) {
  const VolumeInfo info = info_of({60, 50, 40});
  const auto result = [&](int threads) {
    Images images;
    images.emplace("image", volume_of(info, waves({60, 50, 40})));
    return std::move(run(R"(, "kernel": 40)", std::move(images), "", threads).images.at("image"));
  };
  EXPECT_TRUE(same_bytes(result(1), result(3)));
}

TEST_F(ClaheTest, SaysWhatDoesNotFit) {
  for (const char* wrong : {R"("kernel": 0)", R"("kernel": [1, 2])", R"("clip_limit": -0.1)", R"("clip_limit": 1.5)",
                            R"("bins": 1)", R"("bins": 4096)", R"("slices": "w")", R"("to": [1])", R"("units": "cm")"})
    EXPECT_THROW(pipeline_of(std::string(R"({"op": "clahe", )") + wrong + "}"), Error) << wrong;
  Images images;
  images.emplace("label", volume_of(info_of({2, 2, 2}, DataType::uint8), std::vector<double>(8, 1)));
  EXPECT_THROW(run(R"(, "on": "label")", std::move(images), R"(, "inputs": {"label": {"kind": "label"}})"), Error);
}

}  // namespace
}  // namespace volpipe
