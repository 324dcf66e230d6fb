// Stages that turn, crop, put together and take apart: where every voxel goes, and that it keeps every bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/oriented_grids.h"
#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

VolumeInfo info_on(const Geometry& geometry, DataType dtype = DataType::float32, std::int64_t components = 1) {
  VolumeInfo info;
  info.geometry = geometry;
  info.dtype = dtype;
  info.components = components;
  if (components > 1) info.component_axis = ComponentAxis::frames;
  return info;
}

Geometry grid_of(const Index3& size, const Vec3& spacing = {1, 1, 1}, const Vec3& origin = {}) {
  return Geometry::from_spacing(size, spacing, origin);
}

/// A volume whose voxel `index` of component c is value(index, c).
template <class Value>
Volume filled(const VolumeInfo& info, Value value) {
  Volume volume(info, Buffer::host(info.bytes()));
  const Index3& n = info.geometry.size();
  visit(info.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* voxel = volume.data_as<T>();
    for (std::int64_t c = 0; c < info.components; ++c)
      for (std::int64_t k = 0; k < n[2]; ++k)
        for (std::int64_t j = 0; j < n[1]; ++j)
          for (std::int64_t i = 0; i < n[0]; ++i) *voxel++ = T(value(Index3{i, j, k}, c));
  });
  return volume;
}

/// 9 in a block of voxels, else 0.
Volume block_in(const VolumeInfo& info, const IndexBox& block) {
  return filled(info, [&](const Index3& at, std::int64_t) {
    bool inside = true;
    for (std::size_t axis = 0; axis < 3; ++axis)
      inside = inside && at[axis] >= block.begin[axis] && at[axis] < block.end[axis];
    return inside ? 9 : 0;
  });
}

Volume marked(const VolumeInfo& info, const Index3& at) {
  return block_in(info, {at, {at[0] + 1, at[1] + 1, at[2] + 1}});
}

/// World position of the first voxel that holds the largest value.
Vec3 marker_position(const Volume& volume) {
  const std::vector<double> values = values_of(volume);
  const std::int64_t i = std::max_element(values.begin(), values.end()) - values.begin();
  const Index3& n = volume.geometry().size();
  return volume.geometry().to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1] % n[2])});
}

template <class... Pairs>
Images images_of(Pairs&&... pairs) {
  Images images;
  (images.insert(std::forward<Pairs>(pairs)), ...);
  return images;
}

std::pair<std::string, Volume> named(const std::string& name, Volume volume) { return {name, std::move(volume)}; }

/// "inputs" that names these images; those that begin with "label" are labels.
std::string inputs_of(const Images& images) {
  Json inputs = Json::object();
  for (const auto& [name, volume] : images)
    inputs[name] = {{"suffix", "_" + name}, {"kind", name.starts_with("label") ? "label" : "image"}};
  return ", \"inputs\": " + inputs.dump();
}

Images run(const std::string& stages, Images images) {
  const auto context = make_context(Device::cpu(), 2);
  const std::string inputs = inputs_of(images);
  return run_pipeline(*context, pipeline_of(stages, inputs), std::move(images)).images;
}

Volume run_one(const std::string& stages, Volume volume) {
  return std::move(run(stages, images_of(named("image", std::move(volume)))).at("image"));
}

/// The message of the fault, in the spec or of the item; empty when there is none.
std::string refusal(const std::string& stages, Images images) {
  try {
    run(stages, std::move(images));
  } catch (const SpecError& error) { return error.lines().front(); } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& stages, Volume volume) {
  return refusal(stages, images_of(named("image", std::move(volume))));
}

Volume random_on(const Geometry& geometry, DataType dtype, std::int64_t components = 1, unsigned seed = 3) {
  const auto context = make_context(Device::cpu(), 1);
  return random_volume(*context, info_on(geometry, dtype, components), seed);
}

void expect_near(const Vec3& a, const Vec3& b, double tolerance = 1e-9) { EXPECT_LE(norm(a - b), tolerance); }

void expect_same_place(const Geometry& a, const Geometry& b) {
  EXPECT_EQ(a.size(), b.size());
  EXPECT_LE(max_corner_distance_mm(a, b), 1e-9);
}

const DataType kTypes[] = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                           DataType::uint32, DataType::int32, DataType::float32, DataType::float64};

TEST(Rotate90, FollowsNumpy) {
  const Volume input =
      filled(info_on(grid_of({3, 2, 1})), [](const Index3& at, std::int64_t) { return at[0] + 10 * at[1]; });
  const auto turned = [&](const std::string& more) {
    return values_of(run_one(R"({"op": "rotate90")" + more + "}", copy_of(input)));
  };
  // numpy.rot90(a, k) of a[x, y] = x + 10 y, x fastest
  EXPECT_THAT(turned(""), ElementsAre(10, 0, 11, 1, 12, 2));
  EXPECT_THAT(turned(R"(, "k": 2)"), ElementsAre(12, 11, 10, 2, 1, 0));
  EXPECT_THAT(turned(R"(, "k": 3)"), ElementsAre(2, 12, 1, 11, 0, 10));
  EXPECT_THAT(turned(R"(, "axes": "yx")"), ElementsAre(2, 12, 1, 11, 0, 10));
  for (const auto& [k, same] : {std::pair{"-1", "3"}, {"5", "1"}, {"-6", "2"}, {"4000000000000", "0"}})
    EXPECT_EQ(turned(R"(, "k": )" + std::string(k)), turned(R"(, "k": )" + std::string(same)));
}

/// Where `p` goes when the axes `a` and `b` of the grid turn by k quarters in the world about its centre.
Vec3 turned_by_hand(const Geometry& grid, Vec3 p, int a, int b, int k) {
  const Index3& n = grid.size();
  const Vec3 center = grid.to_world({double(n[0] - 1) / 2, double(n[1] - 1) / 2, double(n[2] - 1) / 2});
  const Matrix3 direction = grid.direction();
  for (int turn = 0; turn < (k % 4 + 4) % 4; ++turn) {
    const Vec3 offset = p - center;
    const double along_a = dot(offset, direction.column(a)), along_b = dot(offset, direction.column(b));
    p = p + (-along_b - along_a) * direction.column(a) + (along_a - along_b) * direction.column(b);
  }
  return p;
}

TEST(MoveWorld, TurnsMillimetresAboutTheCentre) {
  for (const std::string& code : orientation_codes()) {
    const Volume input = marked(info_on(oriented_grid(code, {7, 5, 6})), {3, 1, 4});
    const Geometry& grid = input.geometry();
    for (const auto& [axes, a, b] : {std::tuple{"xy", 0, 1}, {"zx", 2, 0}, {"yz", 1, 2}})
      for (const int k : {1, 2, -1}) {
        SCOPED_TRACE(code + axes + std::to_string(k));
        const Volume output = run_one(R"({"op": "rotate90", "move_world": true, "axes": ")" + std::string(axes) +
                                          R"(", "k": )" + std::to_string(k) + "}",
                                      copy_of(input));
        expect_near(marker_position(output), turned_by_hand(grid, marker_position(input), a, b, k));
        for (int axis = 0; axis < 3; ++axis)
          expect_near(output.geometry().direction().column(axis), grid.direction().column(axis));
        Vec3 spacing = grid.spacing();
        if (k != 2) std::swap(spacing[std::size_t(a)], spacing[std::size_t(b)]);
        expect_near(output.geometry().spacing(), spacing);
      }
  }
}

TEST(MoveWorld, PermutesMillimetresAboutTheCentre) {
  const Volume input = marked(info_on(oriented_grid("LPS", {7, 5, 6})), {3, 1, 4});
  const Geometry& grid = input.geometry();
  const Vec3 center = grid.to_world({3, 2, 2.5}), offset = marker_position(input) - center;
  const Volume output = run_one(R"({"op": "permute", "order": "zxy", "move_world": true})", copy_of(input));
  const Matrix3 direction = grid.direction();
  Vec3 expected = center;
  for (const auto& [to, from] : {std::pair{0, 2}, {1, 0}, {2, 1}})
    expected = expected + dot(offset, direction.column(from)) * direction.column(to);
  expect_near(marker_position(output), expected);
  expect_near(output.geometry().spacing(), {2.9, 0.7, 1.3});
}

TEST(MoveWorld, FlipKeepsTheGrid) {
  const Volume input = marked(info_on(oriented_grid("LPS", {7, 5, 6})), {3, 1, 4});
  const Volume output = run_one(R"({"op": "flip", "axes": "x", "move_world": true})", copy_of(input));
  EXPECT_EQ(output.geometry(), input.geometry());
  expect_near(marker_position(output), input.geometry().to_world({3, 1, 4}));  // its own mirror image
}

TEST(Lattice, InversePairsKeepEveryBit) {
  const std::vector<const char*> pairs{
      R"({"op": "rotate90"}, {"op": "rotate90", "k": -1})",
      R"({"op": "rotate90", "axes": "zy", "k": 3}, {"op": "rotate90", "axes": "yz", "k": 3})",
      R"({"op": "rotate90", "move_world": true}, {"op": "rotate90", "k": 3, "move_world": true})",
      R"({"op": "permute", "order": "zxy", "move_world": true}, {"op": "permute", "order": "yzx", "move_world": true})",
      R"({"op": "rotate90", "axes": "xz", "move_world": true}, {"op": "invert", "of": "rotate90"})",
      R"({"op": "permute", "order": "yxz", "move_world": true}, {"op": "invert", "of": "permute"})",
      R"({"op": "split", "into": ["a", "b", "c"]}, {"op": "stack", "on": ["a", "b", "c"], "output": "image"})",
      R"({"op": "split", "into": ["a", "b"], "axis": "x"}, {"op": "stack", "on": ["a", "b"], "axis": "x", "output": "image"})",
      R"({"op": "split", "into": ["a", "b", "c"], "axis": "y"}, {"op": "stack", "axis": "y", "output": "image"})",
      R"({"op": "split", "into": ["a", "b", "c", "d", "e"], "axis": "z"}, {"op": "stack", "axis": "z", "output": "image"})",
      R"({"op": "select_frames", "frames": [2, 0, 1]}, {"op": "select_frames", "frames": [1, 2, 0]})",
      R"({"op": "select_frames", "step": -1}, {"op": "select_frames", "step": -1})"};
  for (const char* pair : pairs)
    for (const DataType dtype : kTypes) {
      SCOPED_TRACE(pair);
      Volume input = random_on(oriented_grid("RAS", {4, 6, 5}), dtype, 3);
      const Volume output = run_one(pair, copy_of(input));
      expect_same_place(output.geometry(), input.geometry());
      ASSERT_EQ(output.info().bytes(), input.info().bytes());
      EXPECT_EQ(std::memcmp(output.data(), input.data(), input.info().bytes()), 0);
    }
}

TEST(CropForeground, MovesTheOrigin) {  // MONAI #3167
  const Volume output =
      run_one(R"({"op": "crop_foreground"})",
              block_in(info_on(grid_of({20, 20, 20}, {1, 1, 1}, {1, 2, 3})), {{5, 6, 7}, {9, 10, 11}}));
  EXPECT_EQ(output.geometry(), grid_of({4, 4, 4}, {1, 1, 1}, {6, 8, 10}));
  EXPECT_THAT(values_of(output), testing::Each(9));
}

TEST(CropForeground, KeepsEveryVoxelInItsPlaceInAll48) {
  for (const std::string& code : orientation_codes()) {
    const Volume input = marked(info_on(oriented_grid(code, {9, 8, 7})), {3, 4, 5});
    const Volume output = run_one(
        R"({"op": "crop_foreground", "margin": [1, 0, 2], "units": "voxel", "allow_padding": true})", copy_of(input));
    EXPECT_EQ(output.geometry().size(), (Index3{3, 1, 5}));
    expect_near(marker_position(output), marker_position(input));
    expect_near(output.geometry().to_world({1, 0, 2}), marker_position(input));
  }
}

/// Voxels of an axis whose extent shares more than a thousandth of a voxel with [low, high] mm.
std::pair<std::int64_t, std::int64_t> shared(double origin, double step, std::int64_t size, double low, double high) {
  std::int64_t begin = size, end = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const double center = origin + step * double(i), half = std::abs(step) / 2;
    if (std::min(center + half, high) - std::max(center - half, low) <= 1e-3 * std::abs(step)) continue;
    begin = std::min(begin, i);
    end = std::max(end, i + 1);
  }
  return {begin, end};
}

TEST(CropForeground, GoesThroughTheWorldToOtherGrids) {  // MONAI #3182
  const Geometry mask_grid = grid_of({40, 40, 40}, {1, 1, 1}, {-20, -15, -10});
  const Matrix3 to_lps{{{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}}};
  const IndexBox block{{11, 7, 20}, {18, 16, 33}};
  for (const double shift : {0.0, 0.25, 0.5, 1.0, 1.7}) {
    const Vec3 origin{14.5 + shift, 22.0 - shift, -13 + shift};
    const Geometry image_grid = Geometry::from_spacing({25, 26, 27}, {2, 2, 2}, origin, to_lps);
    Images images = run(R"({"op": "crop_foreground", "source": "label"})",
                        images_of(named("image", random_on(image_grid, DataType::int16)),
                                  named("label", block_in(info_on(mask_grid, DataType::uint8), block))));
    EXPECT_EQ(images.at("label").geometry(), grid_of({7, 9, 13}, {1, 1, 1}, {-9, -8, 10}));
    const Geometry& cropped = images.at("image").geometry();
    const Vec3 low{-9.5, -8.5, 9.5}, high{-2.5, 0.5, 22.5};
    Vec3 first{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const auto [begin, end] =
          shared(origin[axis], axis == 2 ? 2 : -2, image_grid.size()[axis], low[axis], high[axis]);
      EXPECT_EQ(cropped.size()[axis], end - begin) << axis << " " << shift;
      first[axis] = double(begin);
    }
    expect_near(cropped.origin(), image_grid.to_world(first));
  }
}

TEST(CropForeground, LosesNoneOfTheForegroundOnObliqueGrids) {
  const Geometry mask_grid = oriented_grid("RAS", {30, 30, 12});
  const IndexBox block{{11, 7, 3}, {18, 16, 9}};
  for (const std::string code : {"LPS", "SAR", "AIR"}) {
    const Geometry image_grid = reoriented(grid_of({60, 60, 60}, {0.9, 1.1, 0.8}, {-30, 0, -10}), code);
    const Images images = run(R"({"op": "crop_foreground", "source": "label"})",
                              images_of(named("image", random_on(image_grid, DataType::int16)),
                                        named("label", block_in(info_on(mask_grid, DataType::uint8), block))));
    const Geometry& cropped = images.at("image").geometry();
    for (int corner = 0; corner < 8; ++corner) {
      Vec3 edge;
      for (std::size_t axis = 0; axis < 3; ++axis)
        edge[axis] = double(corner >> axis & 1 ? block.end[axis] : block.begin[axis]) - 0.5;
      const Vec3 index = cropped.world_to_index()(mask_grid.to_world(edge));
      for (std::size_t axis = 0; axis < 3; ++axis) {
        EXPECT_GE(index[axis], -0.5 - 1.1e-3);
        EXPECT_LE(index[axis], double(cropped.size()[axis]) - 0.5 + 1.1e-3);
      }
    }
    const Index3& n = cropped.size();
    EXPECT_LT(n[0] * n[1] * n[2], image_grid.voxel_count() / 8);
  }
}

TEST(CropForeground, GivesTheSameBlockOnTheSameGrid) {
  const Geometry grid = oriented_grid("LAS", {15, 14, 13});
  const Images images = run(
      R"({"op": "crop_foreground", "source": "label", "mask": {"above": 8}, "k_divisible": 4})",
      images_of(named("image", random_on(grid, DataType::int16, 3)), named("other", random_on(grid, DataType::float64)),
                named("label", block_in(info_on(grid, DataType::uint8), {{3, 4, 5}, {8, 9, 10}}))));
  EXPECT_EQ(images.at("image").geometry(), images.at("label").geometry());
  EXPECT_EQ(images.at("other").geometry(), images.at("label").geometry());
  EXPECT_EQ(images.at("image").info().components, 3);
  EXPECT_EQ(images.at("label").geometry().size(), (Index3{8, 8, 8}));  // 5 grows by 1 before and 2 after
  expect_near(images.at("label").geometry().origin(), grid.to_world({2, 3, 4}));
}

TEST(CropForeground, TakesMarginsInMillimetresOfTheSource) {
  const auto cropped = [](const std::string& more) {
    return run_one(R"({"op": "crop_foreground")" + more + "}",
                   block_in(info_on(grid_of({20, 20, 20}, {0.5, 1, 2})), {{8, 9, 10}, {10, 11, 12}}))
        .geometry();
  };
  EXPECT_EQ(cropped(R"(, "margin": 2)"), grid_of({10, 6, 4}, {0.5, 1, 2}, {2, 7, 18}));
  EXPECT_EQ(cropped(R"(, "margin": [2.1, 0, 0.1])"), grid_of({12, 2, 4}, {0.5, 1, 2}, {1.5, 9, 18}));
  EXPECT_EQ(cropped(R"(, "margin": [1.0000001, 0, 0])"), cropped(R"(, "margin": [1, 0, 0])"));
  EXPECT_EQ(cropped(R"(, "margin": [3, 0, 1], "units": "voxel")"), grid_of({8, 2, 4}, {0.5, 1, 2}, {2.5, 9, 18}));
  EXPECT_EQ(cropped(R"(, "margin": 1e9)"), grid_of({20, 20, 20}, {0.5, 1, 2}));
}

TEST(CropForeground, GrowsToMultiplesInsideTheImage) {
  const auto along_x = [](std::int64_t n, std::int64_t begin, std::int64_t end, const std::string& more) {
    const Geometry geometry = run_one(R"({"op": "crop_foreground", )" + more + "}",
                                      block_in(info_on(grid_of({n, 1, 1})), {{begin, 0, 0}, {end, 1, 1}}))
                                  .geometry();
    return std::pair{std::int64_t(geometry.origin()[0]), geometry.size()[0]};
  };
  using Range = std::pair<std::int64_t, std::int64_t>;
  const std::string k = R"("k_divisible": [8, 1, 1])", padded = k + R"(, "allow_padding": true)";
  EXPECT_EQ(along_x(30, 10, 15, k), (Range{9, 8}));   // 3 more: 1 before, 2 after
  EXPECT_EQ(along_x(30, 10, 18, k), (Range{10, 8}));  // none
  EXPECT_EQ(along_x(30, 0, 5, k), (Range{0, 8}));     // slides inside
  EXPECT_EQ(along_x(30, 27, 30, k), (Range{22, 8}));
  EXPECT_EQ(along_x(30, 27, 30, padded), (Range{25, 8}));
  EXPECT_EQ(along_x(30, 0, 30, padded), (Range{-1, 32}));
  EXPECT_EQ(along_x(40000, 39990, 39995, R"("margin": 0)"), (Range{39990, 5}));  // beyond 16 bits
  EXPECT_EQ(refusal(R"({"op": "crop_foreground", "k_divisible": [8, 1, 1]})",
                    block_in(info_on(grid_of({30, 1, 1})), {{2, 0, 0}, {29, 1, 1}})),
            "along x the foreground has 27 voxels and the next multiple of 8 is 32, but 'image' has 30: set "
            "\"allow_padding\": true, or a smaller 'k_divisible'");
}

TEST(CropForeground, PadsWhenAsked) {
  const Volume output =
      run_one(R"({"op": "crop_foreground", "margin": [2, 0, 0], "units": "voxel", "allow_padding": true, "fill": 7})",
              block_in(info_on(grid_of({4, 1, 1}), DataType::uint8), {{1, 0, 0}, {3, 1, 1}}));
  EXPECT_THAT(values_of(output), ElementsAre(7, 0, 9, 9, 0, 7));
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "margin": 9, "allow_padding": true, "fill": 300})",
                      block_in(info_on(grid_of({4, 1, 1}), DataType::uint8), {{1, 0, 0}, {3, 1, 1}})),
              HasSubstr("'fill' 300"));
}

TEST(CropForeground, UnitesComponentsAndKnowsEveryMask) {
  const VolumeInfo info = info_on(grid_of({12, 3, 1}), DataType::int16, 2);
  const auto size_under = [&](const std::string& mask) {
    Volume volume = filled(info, [](const Index3& at, std::int64_t c) {
      return at[0] == 2 + 4 * c ? 100 : at[0] == 9 ? -5 : at[0] == 10 ? 3 : 0;
    });
    return run_one(R"({"op": "crop_foreground", "mask": )" + mask + "}", std::move(volume)).geometry().size()[0];
  };
  EXPECT_EQ(size_under(R"("nonzero")"), 9);
  EXPECT_EQ(size_under(R"({"above": 0})"), 9);
  EXPECT_EQ(size_under(R"({"above": 50})"), 5);
  EXPECT_EQ(size_under(R"("foreground")"), 5);
}

TEST(CropForeground, TakesAnotherImageAsItsMask) {
  const Geometry grid = grid_of({12, 11, 10});
  const Images images =
      run(R"({"op": "crop_foreground", "source": "image", "mask": "label"})",
          images_of(named("image", random_on(grid, DataType::int16)),
                    named("label", block_in(info_on(grid, DataType::uint8), {{3, 4, 5}, {8, 9, 10}}))));
  EXPECT_EQ(images.at("image").geometry(), grid_of({5, 5, 5}, {1, 1, 1}, {3, 4, 5}));
}

TEST(CropForeground, SeesWhatEarlierStagesDid) {
  const Volume input = block_in(info_on(grid_of({12, 11, 10})), {{3, 4, 5}, {8, 9, 10}});
  const Volume output = run_one(
      R"({"op": "flip", "axes": "x"}, {"op": "clip", "min": 1, "max": 3}, {"op": "crop_foreground", "mask": {"above": 2}}, {"op": "pad", "after": 1})",
      copy_of(input));
  EXPECT_EQ(output.geometry().size(), (Index3{6, 6, 6}));
  expect_near(output.geometry().origin(), {7, 4, 5});
  EXPECT_THAT(refusal(R"({"op": "clip", "min": -1, "max": 0}, {"op": "crop_foreground"})", copy_of(input)),
              HasSubstr("\"nonzero\" selects no voxel of 'image'"));
}

TEST(CropForeground, SaysWhatIsMissing) {
  const Geometry grid = grid_of({12, 11, 10});
  const auto empty = [&] { return filled(info_on(grid), [](const Index3&, std::int64_t) { return 0; }); };
  EXPECT_EQ(refusal(R"({"op": "crop_foreground"})", empty()),
            "the mask \"nonzero\" selects no voxel of 'image', so there is no foreground to crop to");
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "mask": {"above": 3}})", empty()), HasSubstr("{\"above\":3"));
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "source": "imag"})", empty()),
              HasSubstr("there is no image 'imag'"));
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "margin": -1})", empty()), HasSubstr("'margin' must be"));
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "k_divisible": 0})", empty()), HasSubstr("'k_divisible' must be"));
  EXPECT_THAT(refusal(R"({"op": "crop_foreground", "units": "cm"})", empty()), HasSubstr("'units' must be"));
  EXPECT_EQ(refusal(R"({"op": "crop_foreground", "source": "label"})",
                    images_of(named("image", random_on(grid_of({5, 5, 5}, {1, 1, 1}, {100, 0, 0}), DataType::int16)),
                              named("label", block_in(info_on(grid), {{3, 3, 3}, {6, 6, 6}})))),
            "no part of the foreground of 'label' lies in 'image': leave that image out with \"on\", or bring them "
            "together first");
}

TEST(CropForeground, IsPlannedForTheWholeImage) {
  const Pipeline pipeline = pipeline_of(R"({"op": "crop_foreground", "k_divisible": 16})");
  const Plan plan = make_plan(pipeline, {{"image", info_on(grid_of({30, 16, 7}))}}, {});
  EXPECT_THAT(plan.guessed, ElementsAre(0));
  EXPECT_EQ(plan.outputs.at("image").geometry.size(), (Index3{30, 16, 7}));
}

TEST(Stack, PutsComponentsTogetherInOrder) {
  const Geometry grid = oriented_grid("LSP", {4, 5, 6});
  for (const DataType dtype : kTypes) {
    const Volume a = random_on(grid, dtype, 1, 1), b = random_on(grid, dtype, 2, 2), c = random_on(grid, dtype, 1, 3);
    const Images images = run(R"({"op": "stack", "on": ["c", "a", "b"], "output": "all"})",
                              images_of(named("a", copy_of(a)), named("b", copy_of(b)), named("c", copy_of(c))));
    ASSERT_EQ(images.size(), 1u);
    const Volume& all = images.at("all");
    EXPECT_EQ(all.geometry(), grid);
    EXPECT_EQ(all.info().components, 4);
    EXPECT_EQ(all.info().component_axis, ComponentAxis::channels);
    EXPECT_EQ(all.dtype(), dtype);
    EXPECT_EQ(std::memcmp(all.component(0), c.data(), c.info().bytes()), 0);
    EXPECT_EQ(std::memcmp(all.component(1), a.data(), a.info().bytes()), 0);
    EXPECT_EQ(std::memcmp(all.component(2), b.data(), b.info().bytes()), 0);
  }
}

TEST(Stack, KeepsFramesAndKinds) {
  const Geometry grid = grid_of({4, 5, 6});
  const Images frames =
      run(R"({"op": "stack", "output": "a"})",
          images_of(named("a", random_on(grid, DataType::int16, 2)), named("b", random_on(grid, DataType::int16, 3))));
  EXPECT_EQ(frames.at("a").info().component_axis, ComponentAxis::frames);
  const Images labels = run(R"({"op": "stack", "on": ["label1", "label2"], "output": "labels"})",
                            images_of(named("label1", random_on(grid, DataType::uint32)),
                                      named("label2", random_on(grid, DataType::uint32))));
  EXPECT_EQ(labels.at("labels").info().kind, ImageKind::label);
}

TEST(Stack, GivesASplitSeriesBack) {
  const Volume series = random_on(grid_of({4, 5, 6}), DataType::int16, 3);
  const Images images = run(R"({"op": "split", "into": ["p", "q", "r"]}, {"op": "stack", "output": "series"})",
                            images_of(named("a", copy_of(series))));
  EXPECT_EQ(images.at("series").info(), series.info());
  EXPECT_EQ(values_of(images.at("series")), values_of(series));
}

TEST(Stack, ContinuesAlongEachAxisInAll48) {
  for (const std::string& code : orientation_codes())
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const Volume whole = random_on(oriented_grid(code, {7, 5, 6}), DataType::int16, 2);
      const Index3& n = whole.geometry().size();
      const auto block = [&](std::int64_t begin, std::int64_t end) {
        Index3 start{}, size = n;
        start[axis] = begin;
        size[axis] = end - begin;
        return run_one(Json{{"op", "crop"}, {"start", start}, {"size", size}}.dump(), copy_of(whole));
      };
      const Images images =
          run(Json{{"op", "stack"}, {"axis", std::string(1, "xyz"[axis])}, {"output", "image"}}.dump(),
              images_of(named("a", block(0, 2)), named("b", block(2, 3)), named("c", block(3, n[axis]))));
      const Volume& image = images.at("image");
      expect_same_place(image.geometry(), whole.geometry());
      EXPECT_EQ(values_of(image), values_of(whole)) << code << axis;
    }
}

TEST(Stack, SaysWhatDoesNotFit) {
  const std::string component = R"({"op": "stack", "output": "all"})";
  const std::string along_z = R"({"op": "stack", "output": "all", "axis": "z"})";
  const auto pair = [](Volume a, Volume b) { return images_of(named("a", std::move(a)), named("b", std::move(b))); };
  const Geometry grid = grid_of({4, 5, 6}, {1, 1, 2});
  const auto on = [](const Geometry& geometry, DataType dtype = DataType::int16, std::int64_t components = 1) {
    return random_on(geometry, dtype, components);
  };
  EXPECT_EQ(refusal(component, pair(on(grid), on(grid, DataType::float32))),
            "'a' and 'b' have different pixel types, int16 and float32: cast them to one before they are stacked");
  EXPECT_EQ(refusal(component, pair(on(grid), on(grid_of({4, 5, 6}, {1, 1, 2}, {0.5, 0, 0})))),
            "'a' and 'b' lie on different grids: bring them together with resample_to first");
  EXPECT_THAT(refusal(R"({"op": "stack", "on": ["a", "label"], "output": "all"})",
                      images_of(named("a", on(grid)), named("label", on(grid)))),
              HasSubstr("one is an image, the other a label"));
  EXPECT_THAT(refusal(component, on(grid)), HasSubstr("at least two images, and there is 'image' alone"));
  EXPECT_THAT(refusal(R"({"op": "stack"})", pair(on(grid), on(grid))), HasSubstr("'output' is missing"));
  EXPECT_THAT(refusal(R"({"op": "stack", "output": ["c", "d"]})", pair(on(grid), on(grid))),
              HasSubstr("'output' must be one image's name"));
  EXPECT_THAT(refusal(R"({"op": "stack", "output": "all", "axis": "w"})", pair(on(grid), on(grid))),
              HasSubstr("'axis' must be"));
  EXPECT_EQ(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 2}, {1, 1, 2}, {0, 0, 15})))),
            "'b' does not continue 'a' along z: it begins 3 mm after the end of 'a'; \"on\" gives the order");
  EXPECT_EQ(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 2}, {1, 1, 2}, {3, 4, 10})))),
            "'b' does not continue 'a' along z: it begins 2 mm before the end of 'a', 5 mm aside; \"on\" gives the "
            "order");
  EXPECT_EQ(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 2}, {1, 1, 2}, {0, 0, 12.019})))), "");  // 0.0095 voxels
  EXPECT_NE(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 2}, {1, 1, 2}, {0, 0, 12.03})))), "");
  EXPECT_THAT(refusal(along_z, pair(on(grid), on(grid_of({4, 7, 2}, {1, 1, 2}, {0, 0, 12})))),
              HasSubstr("7 voxels along y, not 5"));
  EXPECT_THAT(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 2}, {1, 1, 1}, {0, 0, 12})))),
              HasSubstr("another spacing"));
  EXPECT_THAT(refusal(along_z, pair(on(grid), on(grid_of({4, 5, 6}, {1, 1, 2}, {0, 0, 12}), DataType::int16, 2))),
              HasSubstr("2 components, not 1"));
}

TEST(Split, GivesComponentsAndBlocksTheirPlace) {
  const Volume input = random_on(oriented_grid("ASR", {6, 4, 8}), DataType::uint16, 2);
  const Images components =
      run(R"({"op": "split", "into": ["image", "second"]})", images_of(named("image", copy_of(input))));
  for (const auto& [name, c] : {std::pair{"image", 0}, {"second", 1}}) {
    const Volume& part = components.at(name);
    EXPECT_EQ(part.geometry(), input.geometry());
    EXPECT_EQ(part.info().components, 1);
    EXPECT_EQ(part.info().component_axis, ComponentAxis::frames);
    EXPECT_EQ(std::memcmp(part.data(), input.component(c), part.info().bytes()), 0);
  }
  const Images blocks = run(R"({"op": "split", "into": ["a", "b", "c", "d"], "axis": "x"})",
                            images_of(named("image", copy_of(input))));  // x runs along A, which has 4
  ASSERT_EQ(blocks.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const Volume& block = blocks.at(std::string(1, char('a' + i)));
    const Volume cropped =
        run_one(Json{{"op", "crop"}, {"start", {i, 0, 0}}, {"size", {1, 8, 6}}}.dump(), copy_of(input));
    expect_same_place(block.geometry(), cropped.geometry());
    EXPECT_EQ(values_of(block), values_of(cropped));
  }
}

TEST(Split, SaysWhatDoesNotFit) {
  const auto input = [](std::int64_t components = 1) {
    return random_on(grid_of({9, 5, 6}), DataType::int16, components);
  };
  EXPECT_EQ(refusal(R"({"op": "split", "into": ["a", "b"]})", input(3)),
            "'image' has 3 components, and 'into' names 2 images: name one for each");
  EXPECT_EQ(refusal(R"({"op": "split", "into": ["a", "b"], "axis": "x"})", input()),
            "'image' has 9 voxels along x, which do not divide into 2 equal parts: crop or pad it first");
  EXPECT_THAT(refusal(R"({"op": "split", "into": ["a", "a"]})", input(2)), HasSubstr("there is an image 'a' already"));
  EXPECT_THAT(refusal(R"({"op": "split", "into": ["a", "7"]})", input(2)), HasSubstr("cannot be an image's name"));
  EXPECT_THAT(
      refusal(R"({"op": "split", "into": ["a", "b"]})", images_of(named("one", input(2)), named("two", input(2)))),
      HasSubstr("one image is split at a time"));
  EXPECT_THAT(refusal(R"({"op": "split", "into": ["a", "two"], "on": "one"})",
                      images_of(named("one", input(2)), named("two", input(2)))),
              HasSubstr("there is an image 'two' already"));
  EXPECT_THAT(refusal(R"({"op": "split", "into": ["a", "b"], "probability": 0.5})", input(2)),
              HasSubstr("cannot be left to chance"));
}

std::vector<double> frames_after(const std::string& parameters, std::int64_t count) {
  const VolumeInfo info = info_on(grid_of({2, 1, 1}), DataType::int16, count);
  const Volume output = run_one(R"({"op": "select_frames", )" + parameters + "}",
                                filled(info, [](const Index3& at, std::int64_t c) { return 10 * c + at[0]; }));
  const std::vector<double> values = values_of(output);
  std::vector<double> frames;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    EXPECT_EQ(values[i + 1], values[i] + 1);
    frames.push_back(values[i] / 10);
  }
  return frames;
}

TEST(SelectFrames, TakesAnyOrder) {
  EXPECT_THAT(frames_after(R"("frames": [3, 0, -1, 0])", 5), ElementsAre(3, 0, 4, 0));
  EXPECT_THAT(frames_after(R"("frames": [-5])", 5), ElementsAre(0));
  EXPECT_THAT(frames_after(R"("frames": [0, 0])", 1), ElementsAre(0, 0));
}

TEST(SelectFrames, SlicesAsPython) {
  EXPECT_THAT(frames_after(R"("start": 1)", 5), ElementsAre(1, 2, 3, 4));         // a[1:]
  EXPECT_THAT(frames_after(R"("stop": -1)", 5), ElementsAre(0, 1, 2, 3));         // a[:-1]
  EXPECT_THAT(frames_after(R"("step": 2)", 5), ElementsAre(0, 2, 4));             // a[::2]
  EXPECT_THAT(frames_after(R"("step": -2)", 5), ElementsAre(4, 2, 0));            // a[::-2]
  EXPECT_THAT(frames_after(R"("start": -2, "stop": 99)", 5), ElementsAre(3, 4));  // a[-2:99]
  EXPECT_THAT(frames_after(R"("start": 99, "stop": 1, "step": -1)", 5), ElementsAre(4, 3, 2));
  EXPECT_THAT(frames_after(R"("start": -99, "step": 3)", 5), ElementsAre(0, 3));
  EXPECT_THAT(frames_after(R"("stop": -99, "step": -4)", 5), ElementsAre(4, 0));
}

TEST(SelectFrames, SaysWhatTheComponentsAre) {
  const auto selected = [](const std::string& parameters, ComponentAxis axis) {
    VolumeInfo info = info_on(grid_of({2, 2, 2}), DataType::int16, 7);
    info.component_axis = axis;
    info.frame_spacing = 1.5;
    return make_plan(pipeline_of(R"({"op": "select_frames", )" + parameters + "}"), {{"image", info}}, {})
        .outputs.at("image");
  };
  EXPECT_EQ(selected(R"("frames": [2])", ComponentAxis::frames).component_axis, ComponentAxis::none);
  EXPECT_EQ(selected(R"("step": 3)", ComponentAxis::frames).frame_spacing, 4.5);
  EXPECT_EQ(selected(R"("frames": [6, 4, 2])", ComponentAxis::frames).frame_spacing, 3);
  EXPECT_EQ(selected(R"("frames": [0, 1, 4])", ComponentAxis::frames).frame_spacing, 1.5);
  EXPECT_EQ(selected(R"("frames": [0, 2])", ComponentAxis::channels).component_axis, ComponentAxis::channels);
}

TEST(SelectFrames, SaysWhatThereIs) {
  const auto input = [] { return random_on(grid_of({2, 2, 2}), DataType::int16, 3); };
  EXPECT_EQ(refusal(R"({"op": "select_frames", "frames": [0, 3]})", input()),
            "there is no component 3 in 'image', which has 3 (0 to 2, or -1 for the last)");
  EXPECT_THAT(refusal(R"({"op": "select_frames", "frames": [-4]})", input()), HasSubstr("no component -4"));
  EXPECT_EQ(refusal(R"({"op": "select_frames", "start": 3})", input()),
            "nothing is selected of the 3 components of 'image'");
  EXPECT_THAT(refusal(R"({"op": "select_frames", "step": 0})", input()), HasSubstr("'step' cannot be 0"));
  EXPECT_THAT(refusal(R"({"op": "select_frames"})", input()), HasSubstr("give 'frames', or some of"));
  EXPECT_THAT(refusal(R"({"op": "select_frames", "frames": [0], "start": 1})", input()),
              HasSubstr("give 'frames', or some of"));
  EXPECT_THAT(refusal(R"({"op": "select_frames", "frames": [{"uniform": [0, 2]}]})", input()),
              HasSubstr("takes no random parameters"));
}

/// CT slices of 0.8 mm pixels, 5 mm apart along the table, tilted by 15 degrees about x.
Geometry tilted_grid(const Index3& size) {
  const double tilt = 15 * 3.141592653589793 / 180;
  const Matrix3 steps{{{{0.8, 0, 0}, {0, 0.8 * std::cos(tilt), 0}, {0, 0.8 * std::sin(tilt), 5}}}};
  return Geometry(size, {steps, {-10, 20, -300}});
}

/// Value of a world-linear image at p.
double ramp(const Vec3& p) { return 1000 + 3 * p[0] - 2 * p[1] + p[2]; }

Volume world_ramp(const VolumeInfo& info) {
  return filled(info, [&](const Index3& at, std::int64_t) {
    return ramp(info.geometry.to_world({double(at[0]), double(at[1]), double(at[2])}));
  });
}

TEST(Untilt, HoldsEveryVoxelOnAnOrthogonalGridInAll48) {
  const Geometry tilted = tilted_grid({12, 11, 9});
  for (const std::string& code : orientation_codes()) {
    SCOPED_TRACE(code);
    const Volume input = world_ramp(info_on(reoriented(tilted, code)));
    const Volume output = run_one(R"({"op": "untilt", "fill": -1})", copy_of(input));
    const Geometry& grid = output.geometry();
    EXPECT_LT(grid.shear(), 1e-12);
    EXPECT_EQ(grid.orientation(), code);
    const Index3& n = input.geometry().size();
    for (std::int64_t voxel = 0; voxel < input.geometry().voxel_count(); ++voxel) {
      const Vec3 at{double(voxel % n[0]), double(voxel / n[0] % n[1]), double(voxel / n[0] / n[1])};
      const Vec3 index = grid.world_to_index()(input.geometry().to_world(at));
      for (std::size_t axis = 0; axis < 3; ++axis) {
        ASSERT_GE(index[axis], -1.1e-3);
        ASSERT_LE(index[axis], double(grid.size()[axis]) - 1 + 1.1e-3);
      }
    }
    std::int64_t inside = 0;
    const std::vector<double> values = values_of(output);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == -1) continue;
      ++inside;
      const auto v = std::int64_t(i);
      const Index3& m = grid.size();
      ASSERT_NEAR(values[i], ramp(grid.to_world({double(v % m[0]), double(v / m[0] % m[1]), double(v / m[0] / m[1])})),
                  1e-3);
    }
    EXPECT_GT(inside, input.geometry().voxel_count() * 8 / 10);
  }
}

TEST(Untilt, KeepsThePlanesOfTheSlices) {
  const Geometry tilted = tilted_grid({12, 11, 9});
  const Volume input = random_on(tilted, DataType::int16);
  const Volume output = run_one(R"({"op": "untilt", "interpolation": "nearest"})", copy_of(input));
  const Geometry& grid = output.geometry();
  const double tilt = 15 * 3.141592653589793 / 180;
  expect_near(grid.spacing(), {0.8, 0.8, 5 * std::cos(tilt)});
  EXPECT_EQ(grid.direction().column(0), tilted.direction().column(0));
  EXPECT_EQ(grid.direction().column(1), tilted.direction().column(1));
  const auto shift = std::int64_t(std::ceil(8 * 5 * std::sin(tilt) / 0.8 - 1e-3));
  EXPECT_EQ(grid.size(), (Index3{12, 11 + shift, 9}));
  expect_near(grid.origin(), tilted.origin());
  const std::vector<double> from = values_of(input), to = values_of(output);
  for (std::size_t i = 0; i < 12 * 11; ++i) EXPECT_EQ(to[i], from[i]);  // the first slice stays
}

TEST(Untilt, RoundedHeadersLoseNoVoxelAtTheEdges) {
  Affine rounded = Affine{oblique_rotation(), {}} * tilted_grid({12, 11, 9}).index_to_world();
  for (auto& row : rounded.linear.m)
    for (double& value : row) value = double(float(value));
  const VolumeInfo info = info_on(Geometry({12, 11, 9}, rounded));
  const Volume output =
      run_one(R"({"op": "untilt", "fill": -1})", filled(info, [](const Index3&, std::int64_t) { return 5; }));
  const Index3& m = output.geometry().size();
  ASSERT_EQ(m[0], 12);
  const std::vector<double> values = values_of(output);
  for (std::size_t row = 0; row < values.size(); row += 12)  // whole rows lie inside or outside
    for (std::size_t x = 1; x < 12; ++x) ASSERT_EQ(values[row + x], values[row]);
  EXPECT_GE(std::count(values.begin(), values.end(), 5.0), 12 * 10 * 9);
}

TEST(Untilt, TakesTheAxisThatIsReplaced) {
  const Volume input = random_on(tilted_grid({12, 11, 9}), DataType::int16);
  const Geometry grid = run_one(R"({"op": "untilt", "axis": "y"})", copy_of(input)).geometry();
  EXPECT_EQ(grid.direction().column(2), input.geometry().direction().column(2));
  EXPECT_LT(grid.shear(), 1e-12);
  EXPECT_THAT(refusal(R"({"op": "untilt", "axis": "xy"})", copy_of(input)), HasSubstr("'axis' must be one of"));
  const Matrix3 oblique_plane{{{{1, 0.3, 0}, {0, 1, 0}, {0, 0, 2}}}};  // x and y are not at a right angle
  const Geometry upright =
      run_one(R"({"op": "untilt"})", random_on(Geometry({8, 7, 6}, {oblique_plane, {}}), DataType::int16)).geometry();
  EXPECT_LT(upright.shear(), 1e-12);
  EXPECT_EQ(upright.direction().column(2), (Vec3{0, 0, 1}));
}

TEST(Untilt, LeavesWhatIsUpright) {
  for (const DataType dtype : kTypes) {
    const Volume input = random_on(oriented_grid("RSP", {5, 6, 7}), dtype, 2);
    EXPECT_TRUE(same_bytes(run_one(R"({"op": "untilt"})", copy_of(input)), input));
  }
  Affine rounded = oriented_grid("RSP", {5, 6, 7}).index_to_world();  // as a header stores it
  for (auto& row : rounded.linear.m)
    for (double& value : row) value = double(float(value));
  const Volume input = random_on(Geometry({5, 6, 7}, rounded), DataType::int16);
  EXPECT_TRUE(same_bytes(run_one(R"({"op": "untilt"})", copy_of(input)), input));
}

TEST(Untilt, LabelsKeepTheirValuesAndFillIsChosen) {
  const VolumeInfo info = info_on(tilted_grid({12, 11, 9}), DataType::uint32);
  const Images images =
      run(R"({"op": "untilt"})", images_of(named("label", filled(info, [](const Index3& at, std::int64_t) {
                                                   return 16777217 + 2 * (at[1] % 3);
                                                 }))));
  EXPECT_EQ(images.at("label").dtype(), DataType::uint32);
  for (const double value : values_of(images.at("label")))
    EXPECT_TRUE(value == 0 || (value >= 16777217 && value <= 16777221 && std::fmod(value, 2) == 1)) << value;
  const Volume ct = run_one(R"({"op": "untilt", "fill": "min"})", world_ramp(info_on(tilted_grid({12, 11, 9}))));
  const std::vector<double> values = values_of(ct);
  EXPECT_GT(*std::min_element(values.begin(), values.end()), 400);
}

TEST(Lattice, StagesSayWhatIsWrong) {
  const auto input = [] { return random_on(grid_of({4, 5, 6}), DataType::int16); };
  EXPECT_THAT(refusal(R"({"op": "rotate90", "axes": "x"})", input()), HasSubstr("'axes' must name two axes"));
  EXPECT_THAT(refusal(R"({"op": "rotate90", "axes": "xyz"})", input()), HasSubstr("'axes' must name two axes"));
  EXPECT_THAT(refusal(R"({"op": "rotate90", "k": 0.5})", input()), HasSubstr("'k' must be a whole number"));
  EXPECT_THAT(refusal(R"({"op": "crop", "start": 0, "size": -3})", input()), HasSubstr("'size' must be"));
  EXPECT_THAT(refusal(R"({"op": "crop", "start": -2, "size": 3})", input()), HasSubstr("keep inside it"));
  EXPECT_THAT(refusal(R"({"op": "crop", "start": [9, 0, 0], "size": 3, "clip": true})", input()),
              HasSubstr("nothing is left"));
  EXPECT_THAT(refusal(R"({"op": "crop", "box": [[0.2, 0, 0], [0.8, 3, 3]]})", input()), HasSubstr("nothing is left"));
  EXPECT_THAT(refusal(R"({"op": "crop", "box": [[0, 0, 0], [1e300, 3, 3]]})", input()), HasSubstr("'box' must be"));
}

}  // namespace
}  // namespace volpipe
