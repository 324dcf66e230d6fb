// Boxes at random places: voxels that are lost, voxels that change places.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "stages/boxes/box_work.h"
#include "support/pipeline_runs.h"
#include "support/pointwise_data.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const char* const kImageAndLabel = R"(, "inputs": {"image": {}, "label": {"suffix": "_l", "kind": "label"}})";

VolumeInfo info_of(const Geometry& geometry, DataType dtype = DataType::float32, std::int64_t components = 1) {
  VolumeInfo info;
  info.geometry = geometry;
  info.dtype = dtype;
  info.components = components;
  return info;
}

/// Voxels numbered from 1, so that none is 0 and no two are alike.
Volume numbered(const VolumeInfo& info) {
  return volume_of(info, [](std::int64_t i) { return double(i + 1); });
}

class Boxes : public testing::Test {
 protected:
  PipelineResult run(const std::string& stage, Images images, std::uint32_t repeat = 0, const std::string& more = "",
                     int threads = 2) {
    const auto cpu = make_context(Device::cpu(), threads);
    return run_pipeline(*cpu, pipeline_of(stage, more), std::move(images), {7, "item", repeat});
  }
  Volume run(const std::string& stage, const Volume& input, std::uint32_t repeat = 0) {
    Images images;
    images.emplace("image", copy_of(input));
    return std::move(run(stage, std::move(images), repeat).images.at("image"));
  }
  Images image_and_label(Volume image, Volume label) {
    Images images;
    images.emplace("image", std::move(image));
    images.emplace("label", std::move(label));
    images.at("label") = with_kind(std::move(images.at("label")), ImageKind::label);
    return images;
  }
  static Volume with_kind(Volume volume, ImageKind kind) {
    VolumeInfo info = volume.info();
    info.kind = kind;
    return {info, std::move(volume).take_buffer()};
  }
};

/// The block around the voxels that differ, and how many do.
struct Changes {
  Index3 begin{1 << 30, 1 << 30, 1 << 30}, end{};
  std::int64_t count = 0;

  Changes(const Volume& before, const Volume& after) {
    const auto a = values_of(before), b = values_of(after);
    const Index3& n = before.geometry().size();
    for (std::int64_t i = 0; i < before.geometry().voxel_count(); ++i) {
      if (a[std::size_t(i)] == b[std::size_t(i)]) continue;
      ++count;
      const Index3 at{i % n[0], i / n[0] % n[1], i / n[0] / n[1]};
      for (std::size_t axis = 0; axis < 3; ++axis) {
        begin[axis] = std::min(begin[axis], at[axis]);
        end[axis] = std::max(end[axis], at[axis] + 1);
      }
    }
  }
  Index3 size() const { return {end[0] - begin[0], end[1] - begin[1], end[2] - begin[2]}; }
  std::int64_t block() const { return size()[0] * size()[1] * size()[2]; }
};

TEST_F(Boxes, DropoutLosesOneBlockAndKeepsEveryOtherBit) {
  for (const DataType type : kAllTypes) {
    SCOPED_TRACE(to_string(type));
    Volume input = random_volume(*make_context(Device::cpu()), info_of(oblique_grid({9, 8, 7}), type), 3);
    visit(type, [&]<class Tag>(Tag) {
      using T = typename Tag::type;
      for (std::int64_t i = 0; i < 9 * 8 * 7; ++i)
        if (input.data_as<T>()[i] == T(1)) input.data_as<T>()[i] = T(2);
      if constexpr (std::is_floating_point_v<T>) input.data_as<T>()[5] = std::numeric_limits<T>::quiet_NaN();
    });
    const Volume output = run(R"({"op": "coarse_dropout", "size": [3, 2, 4], "units": "voxel", "fill": 1})", input);
    ASSERT_EQ(output.info(), input.info());
    std::int64_t lost = 0;
    const std::size_t bytes = size_of(type);
    const auto *a = input.data_as<std::byte>(), *b = output.data_as<std::byte>();
    const auto values = values_of(output);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 1) ++lost;
      else ASSERT_EQ(std::memcmp(a + i * bytes, b + i * bytes, bytes), 0) << i;
    }
    EXPECT_EQ(lost, 24);
  }
}

TEST_F(Boxes, SizesAreDrawnInWholeVoxelsOfTheRange) {
  const Volume input = numbered(info_of(Geometry::from_spacing({20, 20, 20}, {1, 2, 4})));
  std::array<std::set<std::int64_t>, 3> sizes, begins, ends;
  for (std::uint32_t repeat = 0; repeat < 400; ++repeat) {
    const Changes changes(input, run(R"({"op": "coarse_dropout", "size": [[16, 18], [8.9, 13], 1]})", input, repeat));
    ASSERT_EQ(changes.count, changes.block());
    for (std::size_t axis = 0; axis < 3; ++axis) {
      sizes[axis].insert(changes.size()[axis]);
      begins[axis].insert(changes.begin[axis]);
      ends[axis].insert(changes.end[axis]);
    }
  }
  EXPECT_EQ(sizes[0], (std::set<std::int64_t>{16, 17, 18}));
  EXPECT_EQ(sizes[1], (std::set<std::int64_t>{4, 5, 6, 7}));  // 4.45 to 6.5 voxels
  EXPECT_EQ(sizes[2], (std::set<std::int64_t>{1}));           // a quarter of a voxel
  for (std::size_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(*begins[axis].begin(), 0);
    EXPECT_EQ(*ends[axis].rbegin(), 20);
  }
  EXPECT_EQ(begins[2].size(), 20u);
}

TEST_F(Boxes, ABoxIsAtMostTheImage) {
  const Volume input = numbered(info_of(oblique_grid({3, 1, 2})));
  for (const double value : values_of(run(R"({"op": "coarse_dropout", "size": 1000})", input))) EXPECT_EQ(value, 0);
}

TEST_F(Boxes, InvertKeepsOnlyTheBoxes) {
  const Volume input = numbered(info_of(oblique_grid({12, 11, 10}), DataType::int16));
  const char* const holes = R"("op": "coarse_dropout", "holes": 5, "size": [2, 9], "units": "voxel", "fill": -1)";
  const auto lost = values_of(run(std::string("{") + holes + "}", input));
  const auto kept = values_of(run(std::string("{") + holes + R"(, "invert": true})", input));
  const auto before = values_of(input);
  std::int64_t inside = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NE(lost[i] == -1, kept[i] == -1);
    EXPECT_EQ(lost[i] == -1 ? kept[i] : lost[i], before[i]);
    inside += lost[i] == -1;
  }
  EXPECT_GT(inside, 8);
  EXPECT_LT(inside, 12 * 11 * 10);
}

TEST_F(Boxes, FillsFromEachComponentsFiniteVoxels) {
  // Component 0: -3 to 4 and a NaN; component 1: 10 times as much and no NaN; component 2: nothing but NaN.
  const VolumeInfo info = info_of(oblique_grid({3, 3, 1}), DataType::float32, 3);
  const Volume input = volume_of(info, [](std::int64_t i) {
    return i == 4 || i >= 18 ? kNan : double(i % 9 - 4 + (i % 9 == 0)) * (i < 9 ? 1 : 10);
  });
  const auto fill_of = [&](const char* fill, std::size_t component) {
    return values_of(
        run(std::string(R"({"op": "coarse_dropout", "size": 100, "fill": ")") + fill + "\"}", input))[9 * component];
  };
  EXPECT_EQ(fill_of("min", 0), -3);
  EXPECT_EQ(fill_of("min", 1), -30);
  EXPECT_EQ(fill_of("min", 2), 0);
  EXPECT_EQ(fill_of("mean", 0), 0.125);  // (-3 - 3 - 2 - 1 + 1 + 2 + 3 + 4) / 8
  EXPECT_NEAR(fill_of("mean", 1), 10.0 / 9, 1e-6);
  EXPECT_EQ(fill_of("mean", 2), 0);
  EXPECT_EQ(fill_of("noise", 2), 0);
}

TEST_F(Boxes, AMeanOfIntegersIsRounded) {
  const Volume input = volume_of(info_of(oblique_grid({2, 1, 1}), DataType::int8), [](std::int64_t i) { return i; });
  EXPECT_EQ(values_of(run(R"({"op": "coarse_dropout", "size": 100, "fill": "mean"})", input)),
            (std::vector<double>{1, 1}));
}

TEST_F(Boxes, NoiseIsUniformBetweenTheExtremes) {
  const std::int64_t n = 40 * 40 * 40;
  const auto extremes = [](double low, double high) {
    return [low, high](std::int64_t i) { return i % 2 ? low : high; };
  };
  const char* const noise = R"({"op": "coarse_dropout", "size": 100, "units": "voxel", "fill": "noise"})";
  const auto reals = values_of(run(noise, volume_of(info_of(oblique_grid({40, 40, 40})), extremes(-2, 6))));
  // The mean of n uniform draws has a standard deviation of 8 / sqrt(12 n) = 0.0091, their variance one of 0.019: five
  // of them.
  const double mean = std::accumulate(reals.begin(), reals.end(), 0.0) / double(n);
  double squares = 0;
  for (const double value : reals) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(mean, 2, 0.046);
  EXPECT_NEAR(squares / double(n), 64.0 / 12, 0.1);
  EXPECT_GE(*std::min_element(reals.begin(), reals.end()), -2);
  EXPECT_LE(*std::max_element(reals.begin(), reals.end()), 6);

  std::map<double, std::int64_t> counts;
  const auto wholes =
      values_of(run(noise, volume_of(info_of(oblique_grid({40, 40, 40}), DataType::int16), extremes(-2, 2))));
  for (const double value : wholes) ++counts[value];
  ASSERT_EQ(counts.size(), 5u);
  for (const auto& [value, count] : counts) EXPECT_NEAR(double(count), double(n) / 5, 5 * std::sqrt(double(n) * 0.16));
}

TEST_F(Boxes, NoiseIsAnotherForEachImageComponentAndVersion) {
  const VolumeInfo info = info_of(oblique_grid({6, 6, 6}), DataType::float32, 2);
  const auto ramp = [](std::int64_t i) { return double(i % 216); };
  const char* const noise = R"({"op": "coarse_dropout", "size": 100, "fill": "noise"})";
  Images images;
  for (const char* name : {"image", "other"}) images.emplace(name, volume_of(info, ramp));
  const auto result = run(noise, std::move(images), 0, R"(, "inputs": {"image": {}, "other": {"suffix": "_o"}})");
  const auto a = values_of(result.images.at("image")), b = values_of(result.images.at("other"));
  const auto c = values_of(run(noise, volume_of(info, ramp), 1));
  std::set<double> distinct(a.begin(), a.end());
  distinct.insert(b.begin(), b.end());
  distinct.insert(c.begin(), c.end());
  EXPECT_GT(distinct.size(), 6u * 216 - 40);
}

/// Another grid about the same place, of finer voxels along the axes of the world; no centre lies on a face.
Geometry finer_grid(const Geometry& frame) {
  const Index3& n = frame.size();
  const Vec3 middle = frame.to_world({double(n[0] - 1) / 2, double(n[1] - 1) / 2, double(n[2] - 1) / 2});
  return Geometry::from_spacing({50, 50, 40}, {0.5, 0.6, 0.7}, middle - Vec3{12.41, 15.02, 14.07});
}

/// Whether voxel i of `grid` has its centre in a block of `frame`'s voxels.
bool lies_in(const Geometry& grid, std::int64_t i, const Geometry& frame, const Changes& block) {
  const Index3& n = grid.size();
  const Vec3 at =
      frame.world_to_index()(grid.to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])}));
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (at[axis] < double(block.begin[axis]) - 0.5 || at[axis] >= double(block.end[axis]) - 0.5) return false;
  return true;
}

TEST_F(Boxes, LabelsOnOtherGridsLoseTheSamePlaces) {
  const Geometry frame = oblique_grid({20, 18, 12});
  const Geometry flipped = frame.remapped({20, 18, 12}, Affine{{{{{-1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}, {19, 0, 0}});
  const Geometry finer = finer_grid(frame);
  for (const Geometry& grid : {frame, flipped, finer})
    for (std::uint32_t repeat = 0; repeat < 10; ++repeat) {
      const Volume image = numbered(info_of(frame)), label = numbered(info_of(grid, DataType::uint32));
      const auto result = run(R"({"op": "coarse_dropout", "size": [6, 5, 9], "on": ["image", "label"]})",
                              image_and_label(copy_of(image), copy_of(label)), repeat, kImageAndLabel);
      const Changes block(image, result.images.at("image"));
      ASSERT_EQ(block.size(), (Index3{7, 4, 4}));
      const auto after = values_of(result.images.at("label"));
      std::int64_t lost = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        ASSERT_EQ(after[i] == 0, lies_in(grid, std::int64_t(i), frame, block)) << i;
        lost += after[i] == 0;
      }
      if (grid == finer) {
        EXPECT_GT(lost, 500);  // of 275 mm3 in voxels of 0.21 mm3, those in the image
      } else {
        EXPECT_EQ(lost, block.count);
      }
    }
}

TEST_F(Boxes, DropoutSaysWhatDoesNotFit) {
  const VolumeInfo info = info_of(oblique_grid({4, 4, 4}), DataType::uint8);
  const auto fault = [&](const char* stage) -> std::string {
    try {
      run(stage, image_and_label(numbered(info), numbered(info)), 0, kImageAndLabel);
    } catch (const Error& error) { return error.what(); }
    return "none";
  };
  EXPECT_NE(fault(R"({"op": "coarse_dropout", "size": 3, "fill": 0.5})").find("no value of uint8"), std::string::npos);
  EXPECT_NE(fault(R"({"op": "coarse_dropout", "size": 3, "fill": 300})").find("no value of uint8"), std::string::npos);
  EXPECT_NE(fault(R"({"op": "coarse_dropout", "size": 3, "fill": "mean", "on": "label"})").find("makes no labels"),
            std::string::npos);
  EXPECT_NE(fault(R"({"op": "coarse_dropout", "size": 3, "fill": "noise", "on": "label"})").find("makes no labels"),
            std::string::npos);
  EXPECT_EQ(fault(R"({"op": "coarse_dropout", "size": 3, "fill": "min", "on": "label"})"), "none");
  for (const char* size : {"0", "[3, 2]", "[1, 2, 3, 4]", "[[1, 2], [2, 1], 3]", "\"a\"", "[1]"})
    EXPECT_THROW(pipeline_of(std::string(R"({"op": "coarse_dropout", "size": )") + size + "}"), Error) << size;
  EXPECT_THROW(pipeline_of(R"({"op": "coarse_dropout"})"), Error);
  EXPECT_THROW(pipeline_of(R"({"op": "coarse_dropout", "size": 3, "holes": 0})"), Error);
  EXPECT_THROW(pipeline_of(R"({"op": "coarse_dropout", "size": 3, "fill": "max"})"), Error);
}

TEST_F(Boxes, ARangeOfSizesIsNoListOfAxes) {
  EXPECT_NO_THROW(pipeline_of(R"({"op": "coarse_dropout", "size": [2, 3]}, {"op": "reorient"})"));
}

TEST(KeyedPermutation, IsABijectionForAnySize) {
  for (const std::uint64_t count : {1, 2, 3, 5, 64, 100, 1024, 4097}) {
    const KeyedPermutation order = KeyedPermutation::of(99 + count, count);
    const std::uint64_t all = std::uint64_t(1) << (order.high_bits + order.low_bits);
    EXPECT_GE(all, count);
    EXPECT_LT(all, 2 * count);
    std::vector<bool> met(all);
    for (std::uint64_t i = 0; i < all; ++i) {
      ASSERT_LT(order(i), all);
      ASSERT_FALSE(met[order(i)]);
      met[order(i)] = true;
    }
  }
}

TEST(KeyedPermutation, PutsANumberAnywhereAlike) {
  constexpr std::uint64_t kCount = 16;
  constexpr int kKeys = 16000;
  std::array<std::array<int, kCount>, kCount> counts{};
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const KeyedPermutation order = KeyedPermutation::of(key * 0x9E3779B97F4A7C15u, kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) ++counts[i][order(i)];
  }
  // A count is binomial with mean 1000 and standard deviation 31: six of them over 256 counts.
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, kKeys / double(kCount), 184);
}

/// The boxes of a stage one after the other.
std::vector<double> shuffled_in_order(std::vector<double> values, const Index3& n, const std::vector<VoxelBox>& boxes) {
  for (const VoxelBox& box : boxes) {
    const std::vector<double> before = values;
    for (std::int64_t z = 0; z < n[2]; ++z)
      for (std::int64_t y = 0; y < n[1]; ++y)
        for (std::int64_t x = 0; x < n[0]; ++x)
          if (box.contains(x, y, z)) {
            const VoxelIndex from = shuffled_from(box, {x, y, z});
            values[std::size_t((z * n[1] + y) * n[0] + x)] =
                before[std::size_t((from.z * n[1] + from.y) * n[0] + from.x)];
          }
  }
  return values;
}

TEST_F(Boxes, OverlappingBoxesAreShuffledInOrder) {
  const Index3 n{13, 11, 9};
  const Volume input = numbered(info_of(oblique_grid(n)));
  std::vector<VoxelBox> boxes(3);
  const std::int64_t blocks[3][6] = {{0, 13, 0, 11, 0, 9}, {2, 9, 3, 11, 0, 5}, {4, 13, 0, 7, 2, 3}};
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      boxes[b].begin[axis] = blocks[b][2 * axis];
      boxes[b].end[axis] = blocks[b][2 * axis + 1];
    }
    boxes[b].order = KeyedPermutation::of(b, 13 * 11 * 9);
  }
  const auto cpu = make_context(Device::cpu(), 2);
  Volume output = copy_of(input);
  shuffle_boxes(*cpu, boxes, input, output);
  EXPECT_EQ(values_of(output), shuffled_in_order(values_of(input), n, boxes));
  EXPECT_NE(values_of(output), values_of(input));
}

TEST_F(Boxes, ShufflingKeepsTheVoxelsOfABox) {
  for (const DataType type : {DataType::uint16, DataType::int32, DataType::float32, DataType::float64}) {
    const Volume input = numbered(info_of(oblique_grid({14, 12, 10}), type));
    const Volume output = run(R"({"op": "coarse_shuffle", "size": [5, 6, 7], "units": "voxel"})", input);
    ASSERT_EQ(output.info(), input.info());
    const Changes changes(input, output);
    for (std::size_t axis = 0; axis < 3; ++axis) EXPECT_LE(changes.size()[axis], 5 + std::int64_t(axis));
    EXPECT_GE(changes.count, 200);  // of 210 voxels, one stays where it is on average
    auto before = values_of(input), after = values_of(output);
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    EXPECT_EQ(before, after);
  }
}

TEST_F(Boxes, NotANumberIsShuffledAsItIs) {
  const VolumeInfo info = info_of(oblique_grid({8, 8, 8}));
  const Volume input = volume_of(info, [](std::int64_t i) { return i % 3 ? kNan : double(i); });
  const auto after = values_of(run(R"({"op": "coarse_shuffle", "holes": 4, "size": 6, "units": "voxel"})", input));
  EXPECT_EQ(std::count_if(after.begin(), after.end(), [](double v) { return std::isnan(v); }), 341);
}

TEST_F(Boxes, ComponentsAndImagesOnOneGridAreShuffledAlike) {
  const Geometry grid = oblique_grid({14, 12, 10});
  const VolumeInfo info = info_of(grid, DataType::float32, 2);
  const std::int64_t n = grid.voxel_count();
  const Volume image = volume_of(info, [&](std::int64_t i) { return double(i % n + 1); });
  const auto result =
      run(R"({"op": "coarse_shuffle", "holes": 6, "size": [3, 9], "on": ["image", "label"]})",
          image_and_label(copy_of(image), numbered(info_of(grid, DataType::uint32))), 0, kImageAndLabel);
  const auto moved = values_of(result.images.at("image")), label = values_of(result.images.at("label"));
  for (std::size_t i = 0; i < std::size_t(n); ++i) {
    ASSERT_EQ(moved[i], label[i]);
    ASSERT_EQ(moved[i + std::size_t(n)], label[i]);
  }
}

TEST_F(Boxes, ShufflingOnATurnedGridKeepsTheVoxelsInTheBox) {
  const Geometry frame = oblique_grid({20, 18, 12});
  const Geometry turned = finer_grid(frame);
  const Volume image = volume_of(info_of(frame), [](std::int64_t) { return 1; });
  const Volume label = numbered(info_of(turned, DataType::uint32));
  const std::string size = R"(, "size": [6, 5, 9], "on": ["image", "label"]})";
  const auto lost =
      run(R"({"op": "coarse_dropout")" + size, image_and_label(copy_of(image), copy_of(label)), 3, kImageAndLabel);
  const auto moved =
      run(R"({"op": "coarse_shuffle")" + size, image_and_label(copy_of(image), copy_of(label)), 3, kImageAndLabel);
  const auto before = values_of(label), holes = values_of(lost.images.at("label")),
             after = values_of(moved.images.at("label"));
  std::vector<double> in_box, in_box_after;
  std::int64_t stayed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (holes[i] != 0) {
      ASSERT_EQ(before[i], after[i]);
      continue;
    }
    stayed += before[i] == after[i];
    in_box.push_back(before[i]);
    in_box_after.push_back(after[i]);
  }
  std::sort(in_box_after.begin(), in_box_after.end());
  EXPECT_EQ(in_box, in_box_after);
  EXPECT_GT(in_box.size(), 500u);
  EXPECT_LT(stayed, 10);
}

TEST_F(Boxes, AreTheSameForAnyNumberOfThreadsAndOtherInEachVersion) {
  const VolumeInfo info = info_of(oblique_grid({40, 33, 21}));
  for (const char* stage : {R"({"op": "coarse_dropout", "holes": 9, "size": [5, 20], "fill": "noise"})",
                            R"({"op": "coarse_shuffle", "holes": 9, "size": [5, 20]})"}) {
    const auto run_with = [&](int threads, std::uint32_t repeat) {
      Images images;
      images.emplace("image", numbered(info));
      return values_of(run(stage, std::move(images), repeat, "", threads).images.at("image"));
    };
    EXPECT_EQ(run_with(1, 0), run_with(3, 0));
    EXPECT_NE(run_with(1, 0), run_with(1, 1));
  }
}

TEST_F(Boxes, KeepFloat32WhereDoublePrecisionIsAskedFor) {
  const Volume input = numbered(info_of(oblique_grid({6, 6, 6})));
  EXPECT_EQ(run(R"({"op": "coarse_shuffle", "size": 3, "precision": "double"})", input).dtype(), DataType::float32);
}

}  // namespace
}  // namespace volpipe
