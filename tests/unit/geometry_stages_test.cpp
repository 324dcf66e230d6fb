// What the stages that keep the axes apart do to grids and voxels.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/oriented_grids.h"
#include "support/separable_reference.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing;
using testing_support::orientation_codes;

VolumeInfo oriented(const std::string& code, const Index3& size = {7, 5, 6}) {
  VolumeInfo info = info_of(size);
  info.geometry = testing_support::oriented_grid(code, size);
  return info;
}

/// World position of the one voxel that is not 0.
Vec3 marker_position(const Volume& volume) {
  const std::vector<double> values = values_of(volume);
  const std::int64_t i = std::max_element(values.begin(), values.end()) - values.begin();
  const Index3& n = volume.geometry().size();
  return volume.geometry().to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])});
}

Volume marked(const VolumeInfo& info, const Index3& at) {
  const Index3& n = info.geometry.size();
  const std::int64_t marker = at[0] + n[0] * (at[1] + n[1] * at[2]);
  return volume_from(info, [&](std::int64_t i) { return i == marker ? 9 : 0; });
}

void expect_near(const Vec3& a, const Vec3& b, double tolerance = 1e-9) { EXPECT_LE(norm(a - b), tolerance); }

std::string fault_of(const char* entry) {
  const Json json = Json::parse(entry);
  Faults faults;
  find_stage(json.at("op").get<std::string>())->make(json, "/stages/0", faults);
  return faults.empty() ? "" : faults.list().front().pointer + ": " + faults.list().front().message;
}

std::string refusal_of(const char* entry, const VolumeInfo& input) {
  try {
    spatial_map_of(Json::parse(entry), input);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(Lattice, KeepsEveryVoxelInItsPlace) {
  const auto context = make_context(Device::cpu());
  const std::vector<const char*> stages{R"({"op":"flip","axes":"x"})",
                                        R"({"op":"flip","axes":"yz"})",
                                        R"({"op":"permute","order":"zxy"})",
                                        R"({"op":"permute","order":[1,0,2]})",
                                        R"({"op":"rotate90"})",
                                        R"({"op":"rotate90","axes":"yz","k":2})",
                                        R"({"op":"rotate90","axes":"xz","k":-1})",
                                        R"({"op":"reorient","axes":"RAS"})",
                                        R"({"op":"reorient","axes":"IPL"})",
                                        R"({"op":"crop","start":[1,1,1],"size":4})",
                                        R"({"op":"crop","center":[3,2,3],"size":[4,3,4]})",
                                        R"({"op":"pad","before":[1,2,3],"after":2})",
                                        R"({"op":"crop_or_pad","size":[4,9,5]})",
                                        R"({"op":"crop_or_pad","size":[4,9,5],"align":"end"})",
                                        R"({"op":"pad_to","size":8})",
                                        R"({"op":"pad_divisible","k":4})"};
  for (const std::string& code : orientation_codes()) {
    const Volume input = marked(oriented(code), {3, 2, 3});
    ASSERT_EQ(input.geometry().orientation(), code);
    for (const char* entry : stages) {
      const Volume output = apply_map(*context, input, map_of(entry, input.info()), 0);
      expect_near(marker_position(output), marker_position(input));
      EXPECT_EQ(output.dtype(), input.dtype());
      const std::vector<double> values = values_of(output);
      EXPECT_EQ(std::count(values.begin(), values.end(), 9.0), 1) << entry << code;
    }
  }
}

TEST(Reorient, ReachesAll48AndComesBack) {
  const auto context = make_context(Device::cpu());
  const Volume input = random_volume(oriented("RAS"));
  for (const std::string& code : orientation_codes()) {
    const Volume there =
        apply_map(*context, input, map_of((R"({"op":"reorient","axes":")" + code + "\"}").c_str(), input.info()), 0);
    EXPECT_EQ(there.geometry().orientation(), code);
    const Volume back = apply_map(*context, there, map_of(R"({"op":"reorient","closest":true})", there.info()), 0);
    EXPECT_TRUE(same_grid(back.geometry(), input.geometry(), 1e-9));
    EXPECT_EQ(values_of(back), values_of(input));
  }
}

TEST(Crop, BoxTakesVoxelsWhoseCentresLieInside) {
  VolumeInfo input = info_of({10, 10, 10});
  input.geometry = Geometry::from_spacing({10, 10, 10}, {2, 2, 2}, {-9, -9, -9});
  const GridMap map = map_of(R"({"op":"crop","box":[[-4.9,0,3],[5,-9,6]]})", input);
  EXPECT_EQ(map.output.geometry.size(), (Index3{5, 5, 2}));
  expect_near(map.output.geometry.origin(), {-3, -9, 3});
}

TEST(Crop, NamesTheLimits) {
  const VolumeInfo input = info_of({10, 10, 10});
  EXPECT_EQ(refusal_of(R"({"op":"crop","start":[0,0,5],"size":6})", input),
            "the crop starts at voxel [0, 0, 5] with size 6 x 6 x 6, the image has size 10 x 10 x 10: keep inside it, "
            "or set \"clip\": true");
  EXPECT_EQ(map_of(R"({"op":"crop","start":1,"size":6})", input).matrices[2].start().front(), 1);
  EXPECT_EQ(map_of(R"({"op":"crop","start":[-2,0,5],"size":6,"clip":true})", input).output.geometry.size(),
            (Index3{4, 6, 5}));
  EXPECT_NE(refusal_of(R"({"op":"crop","start":[10,0,0],"size":6,"clip":true})", input).find("nothing is left"),
            std::string::npos);
  EXPECT_NE(fault_of(R"({"op":"crop","size":6})").find("'start' and 'size'"), std::string::npos);
  EXPECT_NE(fault_of(R"({"op":"crop","box":[[0,0,0],[1,1,1]],"size":6})"), "");
}

TEST(CropOrPad, GoesThereAndBack) {
  for (const char* align : {"center", "start", "end"})
    for (const std::int64_t n : {1, 2, 3, 7, 8})
      for (const std::int64_t m : {1, 2, 3, 7, 8}) {
        const auto resized = [&](const VolumeInfo& info, std::int64_t size) {
          return map_of((R"({"op":"crop_or_pad","align":")" + std::string(align) + R"(","size":)" +
                         std::to_string(size) + "}")
                            .c_str(),
                        info)
              .output;
        };
        const VolumeInfo input = info_of({n, n, n});
        EXPECT_EQ(resized(resized(input, m), n), input) << align << n << m;
      }
}

TEST(Pad, FollowsNumpy) {
  const auto context = make_context(Device::cpu());
  const Volume input = volume_from(info_of({3, 1, 1}, DataType::uint8), [](std::int64_t i) { return i + 1; });
  const auto padded = [&](const char* boundary) {
    const std::string entry =
        R"({"op":"pad","before":[4,0,0],"after":[4,0,0],"fill":9,"boundary":")" + std::string(boundary) + "\"}";
    return values_of(apply_map(*context, input, map_of(entry.c_str(), input.info()), 9));
  };
  EXPECT_EQ(padded("constant"), (std::vector<double>{9, 9, 9, 9, 1, 2, 3, 9, 9, 9, 9}));
  EXPECT_EQ(padded("nearest"), (std::vector<double>{1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3}));
  EXPECT_EQ(padded("reflect"), (std::vector<double>{3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1}));
  EXPECT_EQ(padded("mirror"), (std::vector<double>{1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3}));
  EXPECT_EQ(padded("wrap"), (std::vector<double>{3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1}));
}

TEST(Pad, RefusesAFillThePixelTypeCannotHold) {
  const VolumeInfo input = info_of({3, 1, 1}, DataType::uint8);
  for (const char* fill : {"300", "-5", "0.5"}) {
    const std::string pad = R"({"op":"pad","after":1,"fill":)" + std::string(fill) + "}";
    EXPECT_EQ(refusal_of(pad.c_str(), input), "'fill' " + std::string(fill) +
                                                  " is no value of uint8 voxels: choose one that is, or cast the image "
                                                  "first");
    EXPECT_EQ(refusal_of(pad.c_str(), info_of({3, 1, 1})), "");
  }
  EXPECT_EQ(refusal_of(R"({"op":"pad","after":1,"fill":255})", input), "");
  EXPECT_EQ(refusal_of(R"({"op":"crop_or_pad","size":1,"fill":300})", input), "");  // nothing is filled
  EXPECT_NE(refusal_of(R"({"op":"pad","after":1,"fill":1e39})", info_of({3, 1, 1})), "");
  EXPECT_NE(
      refusal_of(R"({"op":"resample","spacing":0.4,"interpolation":"nearest","boundary":"constant","fill":-1})", input),
      "");
}

TEST(Resample, SizesRoundHalfUpWithTolerance) {
  const auto size_at = [](double from, double to, std::int64_t n, const char* grid) {
    VolumeInfo input = info_of({n, 1, 1});
    input.geometry = Geometry::from_spacing({n, 1, 1}, {from, 1, 1});
    Json entry = {{"op", "resample"}, {"spacing", {to, nullptr, nullptr}}, {"grid", grid}};
    return map_of(entry.dump().c_str(), input).output.geometry.size()[0];
  };
  EXPECT_EQ(size_at(1, 2, 100, "extent"), 50);
  EXPECT_EQ(size_at(1, 2, 101, "extent"), 51);           // 50.5
  EXPECT_EQ(size_at(1, 2.00000001, 101, "extent"), 51);  // 50.4999997
  EXPECT_EQ(size_at(1.000000001, 1, 100, "extent"), 100);
  EXPECT_EQ(size_at(1, 300, 100, "extent"), 1);
  EXPECT_EQ(size_at(0.0005, 0.00025, 100, "extent"), 200);
  EXPECT_EQ(size_at(1, 2, 100, "center"), 51);  // 49.5 steps
  EXPECT_EQ(size_at(1, 300, 100, "center"), 1);
}

TEST(Resample, ExtentAndCenterPlaceTheFirstVoxel) {
  const VolumeInfo input = oriented("LAS", {20, 30, 10});
  const Vec3 from = input.geometry.spacing();
  const GridMap extent = map_of(R"({"op":"resample","spacing":[1,2,null]})", input);
  const Vec3 to = extent.output.geometry.spacing();
  expect_near(to, {1, 2, from[2]}, 1e-12);
  const Vec3 half{(to[0] / from[0] - 1) / 2, (to[1] / from[1] - 1) / 2, 0};
  expect_near(extent.output.geometry.origin(), input.geometry.to_world(half), 1e-9);
  EXPECT_EQ(extent.output.geometry.direction().column(2), input.geometry.direction().column(2));
  expect_near(map_of(R"({"op":"resample","spacing":2,"grid":"center"})", input).output.geometry.origin(),
              input.geometry.origin(), 1e-12);
}

TEST(Resample, RoundedAffinesGiveTheSameGrid) {
  const Geometry exact =
      Geometry::from_spacing({512, 401, 129}, {0.7, 0.9, 2.5}, {100, -200, 30}, testing_support::oblique_rotation());
  Affine rounded = exact.index_to_world();
  for (int i = 0; i < 3; ++i) {
    rounded.offset[std::size_t(i)] = double(float(rounded.offset[std::size_t(i)]));
    for (std::size_t j = 0; j < 3; ++j) rounded.linear[i][j] = double(float(rounded.linear[i][j]));
  }
  for (const char* entry : {R"({"op":"resample","spacing":1})", R"({"op":"resample","spacing":0.5,"grid":"center"})",
                            R"({"op":"resample","spacing":[0.7,0.9,2.5]})", R"({"op":"resample","spacing":1.4})",
                            R"({"op":"resample","spacing":[1.4,1.8,5]})"}) {
    VolumeInfo a = info_of({512, 401, 129}), b = a;
    a.geometry = exact;
    b.geometry = Geometry(exact.size(), rounded);
    EXPECT_EQ(map_of(entry, a).output.geometry.size(), map_of(entry, b).output.geometry.size()) << entry;
  }
}

TEST(Resample, RefusesWhatCannotFit) {
  const std::string message = refusal_of(R"({"op":"resample","spacing":0.0001})", info_of({100, 100, 100}));
  EXPECT_NE(message.find("1000000 x 1000000 x 1000000"), std::string::npos) << message;
  EXPECT_NE(fault_of(R"({"op":"resample","spacing":0})"), "");
  EXPECT_NE(fault_of(R"({"op":"resample"})"), "");
}

TEST(Grids, ThatCannotFitAreRefusedBeforeTheirTables) {
  const VolumeInfo input = info_of({6, 5, 4}, DataType::int16);
  EXPECT_EQ(refusal_of(R"({"op":"pad","before":[100000000,0,0]})", input),
            "the result would have 100000006 x 5 x 4 voxels (3.73 GiB), at most 16777216 an axis and 1099511627776 in "
            "all are possible: change the sizes or the spacing");
  for (const char* entry : {R"({"op":"pad","after":1000000000})", R"({"op":"pad_to","size":[1,1,1000000000]})",
                            R"({"op":"pad_divisible","k":1000000000})", R"({"op":"crop_or_pad","size":1000000000})",
                            R"({"op":"resize","size":[1000000000,1,1]})", R"({"op":"resize","scale":1e300})",
                            R"({"op":"resize","size":16000000})", R"({"op":"resample","spacing":1e-300})"}) {
    const std::string message = refusal_of(entry, input);
    EXPECT_NE(message.find("GiB"), std::string::npos) << entry << ": " << message;
    EXPECT_LT(message.size(), 220u) << message;
  }
}

TEST(Resample, ToOneVoxelFromAnySpacing) {
  const auto context = make_context(Device::cpu());
  const Volume input = volume_from(info_of({6, 5, 4}), [](std::int64_t) { return 3; });
  for (const char* spacing : {"1e6", "1e9", "1e10", "1e12"}) {
    const GridMap map = map_of((R"({"op":"resample","spacing":)" + std::string(spacing) + "}").c_str(), input.info());
    const std::vector<double> values = values_of(apply_map(*context, input, map, 0));
    ASSERT_EQ(values.size(), 1u);
    EXPECT_NEAR(values[0], 3, 1e-6);
  }
}

TEST(Resample, RampsKeepTheirWorldValues) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = oriented("RPI", {40, 41, 42});
  const auto world_ramp = [](const Geometry& geometry, std::int64_t i) {
    const Index3& n = geometry.size();
    const Vec3 p = geometry.to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])});
    return 100 + p[0] + 2 * p[1] - p[2];
  };
  const Volume input = volume_from(info, [&](std::int64_t i) { return world_ramp(info.geometry, i); });
  for (const char* entry : {R"({"op":"resample","spacing":[0.5,0.9,1.1]})", R"({"op":"resample","spacing":[2,2,2]})",
                            R"({"op":"resize","scale":1.3})",
                            R"({"op":"resize","size":[20,60,37],"align":"centers","interpolation":"bspline3"})",
                            R"({"op":"resample","spacing":[0.5,0.9,1.1],"grid":"center"})"}) {
    const Volume output = apply_map(*context, input, map_of(entry, info), 0);
    const Index3& n = output.geometry().size();
    for (std::int64_t z = n[2] / 3; z < n[2] * 2 / 3; ++z)
      for (std::int64_t y = n[1] / 3; y < n[1] * 2 / 3; ++y)
        for (std::int64_t x = n[0] / 3; x < n[0] * 2 / 3; ++x) {
          const std::int64_t i = x + n[0] * (y + n[1] * z);
          ASSERT_NEAR(output.data_as<float>()[i], world_ramp(output.geometry(), i), 2e-3) << entry;
        }
  }
}

TEST(Resize, FollowsZoom) {
  const auto context = make_context(Device::cpu());
  const Volume input = volume_from(info_of({5, 1, 1}), [](std::int64_t i) { return i + 1; });
  const auto resized = [&](const char* entry) {
    return values_of(apply_map(*context, input, map_of(entry, input.info()), 0));
  };
  EXPECT_EQ(resized(R"({"op":"resize","size":[9,1,1],"align":"centers"})"),
            (std::vector<double>{1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5}));
  EXPECT_EQ(resized(R"({"op":"resize","size":[10,1,1]})"),
            (std::vector<double>{1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.25, 4.75, 5}));
  EXPECT_EQ(resized(R"({"op":"resize","size":[1,1,1],"align":"centers","antialias":false})"), (std::vector<double>{1}));
  EXPECT_EQ(map_of(R"({"op":"resize","longest":10})", info_of({40, 20, 3})).output.geometry.size(), (Index3{10, 5, 1}));
  EXPECT_EQ(map_of(R"({"op":"resize","size":[10,null,null]})", info_of({40, 20, 3})).output.geometry.size(),
            (Index3{10, 20, 3}));
  EXPECT_NE(fault_of(R"({"op":"resize"})"), "");
  EXPECT_NE(fault_of(R"({"op":"resize","size":4,"scale":2})"), "");
}

TEST(Resize, GeometryKeepsEdgesOrCenters) {
  const VolumeInfo input = oriented("RAS", {20, 30, 10});
  const Geometry edges = map_of(R"({"op":"resize","size":[10,45,7]})", input).output.geometry;
  expect_near(edges.to_world({-0.5, -0.5, -0.5}), input.geometry.to_world({-0.5, -0.5, -0.5}));
  expect_near(edges.to_world({9.5, 44.5, 6.5}), input.geometry.to_world({19.5, 29.5, 9.5}));
  const Geometry centers = map_of(R"({"op":"resize","size":[10,45,7],"align":"centers"})", input).output.geometry;
  expect_near(centers.to_world({0, 0, 0}), input.geometry.to_world({0, 0, 0}));
  expect_near(centers.to_world({9, 44, 6}), input.geometry.to_world({19, 29, 9}));
}

TEST(Resize, AntialiasSmoothsOnlyWhatShrinks) {
  const VolumeInfo input = info_of({30, 30, 30});
  const GridMap map = map_of(R"({"op":"resize","size":[10,30,60]})", input);
  EXPECT_GE(map.matrices[0].taps(), 9);
  EXPECT_TRUE(map.matrices[1].is_identity());
  EXPECT_EQ(map.matrices[2].taps(), 2);
  EXPECT_TRUE(map_of(R"({"op":"resize","size":[10,30,60],"antialias":false})", input)
                  .matrices[0]
                  .copies());  // every third voxel
}

TEST(Labels, KeepTheirValuesAndType) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = info_of({9, 8, 7}, DataType::int32);
  info.kind = ImageKind::label;
  const Volume labels = volume_from(info, [](std::int64_t i) { return 16777217 + i % 5 * 2; });
  for (const char* entry :
       {R"({"op":"resize","scale":1.7})", R"({"op":"resample","spacing":[0.4,2.2,null]})",
        R"({"op":"resample","spacing":2,"antialias":true})", R"({"op":"resize","scale":2,"interpolation":"linear"})"}) {
    const Volume output = apply_map(*context, labels, map_of(entry, info), 0);
    EXPECT_EQ(output.dtype(), DataType::int32);
    for (const double value : values_of(output))
      EXPECT_TRUE(value >= 16777217 && value <= 16777225 && std::fmod(value, 2) == 1);
  }
  EXPECT_NE(refusal_of(R"({"op":"gaussian","sigma":1})", info).find("label"), std::string::npos);
}

TEST(Interpolations, AreAllKnownByName) {
  const VolumeInfo image = info_of({5, 6, 7});
  VolumeInfo label = image;
  label.kind = ImageKind::label;
  for (const char* name : EnumNames<Interpolation>::names)
    for (const char* op : {R"("resample","spacing":0.7)", R"("resize","size":9)"}) {
      const std::string entry = R"({"op":)" + std::string(op) + R"(,"interpolation":")" + name + "\"}";
      EXPECT_EQ(refusal_of(entry.c_str(), label), "");
      if (std::string(name) != "label_linear") EXPECT_EQ(refusal_of(entry.c_str(), image), "");
      else EXPECT_NE(refusal_of(entry.c_str(), image).find("is for labels"), std::string::npos);
    }
}

TEST(SamplingMap, TakesTheToleranceOfDoubles) {
  const VolumeInfo input = info_of({100, 1, 1});
  const AxisSamples kept = regular_samples(1, 1, 0);
  const std::array<AxisSamples, 3> axes{regular_samples(150, 0.66, 0.1), kept, kept};
  const SamplingParams spline{.interpolation = Interpolation::bspline5};
  EXPECT_EQ(sampling_map(input, {0, 1, 2}, axes, spline).matrices[0].taps(), 40);
  EXPECT_GT(sampling_map(input, {0, 1, 2}, axes, spline, 1e-15).matrices[0].taps(), 70);
}

TEST(Images, ComeOutInFloat32) {
  for (const DataType type : all_types()) {
    EXPECT_EQ(map_of(R"({"op":"resize","size":8})", info_of({8, 8, 8}, type)).output.dtype, DataType::float32);
    EXPECT_EQ(map_of(R"({"op":"gaussian","sigma":0})", info_of({8, 8, 8}, type)).output.dtype, DataType::float32);
    EXPECT_EQ(map_of(R"({"op":"resize","size":4,"interpolation":"nearest"})", info_of({8, 8, 8}, type)).output.dtype,
              type);
  }
}

TEST(GaussianStage, TakesMillimetresOrVoxels) {
  VolumeInfo input = info_of({30, 30, 30});
  input.geometry = Geometry::from_spacing({30, 30, 30}, {0.5, 1, 2});
  const GridMap mm = map_of(R"({"op":"gaussian","sigma":1})", input);
  EXPECT_EQ(mm.matrices[0].taps(), 17);
  EXPECT_EQ(mm.matrices[1].taps(), 9);
  EXPECT_EQ(mm.matrices[2].taps(), 5);
  EXPECT_EQ(map_of(R"({"op":"gaussian","sigma":1,"units":"voxel"})", input).matrices[0].taps(), 9);
  EXPECT_EQ(map_of(R"({"op":"gaussian","sigma":0.1,"units":"voxel"})", input).matrices[0].taps(), 1);
}

TEST(GaussianStage, DifferentiatesInItsUnits) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = info_of({30, 5, 5});
  info.geometry = Geometry::from_spacing({30, 5, 5}, {0.5, 1, 1});
  const Volume input = volume_from(info, [](std::int64_t i) { return double(i % 30) * 0.5; });  // 1 per mm along x
  const auto middle = [&](const char* entry) {
    return apply_map(*context, input, map_of(entry, info), 0).data_as<float>()[15 + 30 * 12];
  };
  EXPECT_NEAR(middle(R"({"op":"gaussian","sigma":1,"order":[1,0,0]})"), 1, 1e-3);
  EXPECT_NEAR(middle(R"({"op":"gaussian","sigma":2,"units":"voxel","order":[1,0,0]})"), 0.5, 1e-3);
}

/// One pass of scipy.ndimage.correlate1d(mode="constant", cval=fill) over an array of size n.
std::vector<double> correlated(const std::vector<double>& in, const Index3& n, std::size_t axis,
                               const std::vector<double>& kernel, double fill) {
  const std::int64_t stride = axis == 0 ? 1 : axis == 1 ? n[0] : n[0] * n[1];
  const std::int64_t radius = std::int64_t(kernel.size()) / 2;
  std::vector<double> out(in.size());
  for (std::int64_t i = 0; i < std::int64_t(in.size()); ++i)
    for (std::int64_t t = -radius; t <= radius; ++t) {
      const std::int64_t at = i / stride % n[axis] + t;
      const double value = at < 0 || at >= n[axis] ? fill : in[std::size_t(i + t * stride)];
      out[std::size_t(i)] += kernel[std::size_t(t + radius)] * value;
    }
  return out;
}

TEST(GaussianStage, FillsEveryPassAsSciPy) {
  const auto context = make_context(Device::cpu());
  const Index3 n{7, 5, 3};
  const Vec3 spacing{0.5, 2, 1.3}, sigma{1.1, 2, 0.7};
  VolumeInfo info = info_of(n);
  info.geometry = Geometry::from_spacing(n, spacing);
  const Volume input = random_volume(info);
  for (const std::array<int, 3>& order :
       {std::array{0, 0, 0}, std::array{1, 0, 0}, std::array{0, 1, 0}, std::array{0, 2, 1}, std::array{3, 1, 2}}) {
    const Json entry = {
        {"op", "gaussian"}, {"sigma", sigma}, {"order", order}, {"boundary", "constant"}, {"fill", 3.5}};
    GridMap map = map_of(entry.dump().c_str(), info);
    map.output.dtype = DataType::float64;
    std::vector<double> expected = values_of(input);
    double per_mm = 1;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      expected = correlated(expected, n, axis, gaussian_kernel(sigma[axis] / spacing[axis], order[axis]), 3.5);
      per_mm *= std::pow(spacing[axis], -order[axis]);
    }
    for (double& value : expected) value *= per_mm;
    EXPECT_LE(relative_difference(values_of(apply_map(*context, input, map, 3.5)), expected), 1e-12) << entry;
    const GridMap flip = map_of(R"({"op":"flip","axes":"x"})", map.output);
    EXPECT_EQ(compose(flip, map).has_value(), order == (std::array{0, 0, 0})) << entry;
  }
}

TEST(GaussianStage, RefusesNonsense) {
  EXPECT_NE(fault_of(R"({"op":"gaussian","sigma":-1})"), "");
  EXPECT_NE(fault_of(R"({"op":"gaussian","sigma":[0,1,1],"order":[1,0,0]})"), "");
  EXPECT_NE(fault_of(R"({"op":"gaussian","sigma":1,"order":4})"), "");
  EXPECT_NE(refusal_of(R"({"op":"gaussian","sigma":1e7})", info_of({3, 3, 3})), "");
  EXPECT_NE(refusal_of(R"({"op":"gaussian","sigma":1e300})", info_of({3, 3, 3})).find("over 4e+300 voxels"),
            std::string::npos);
}

TEST(Stages, SayWhatIsWrong) {
  EXPECT_NE(fault_of(R"({"op":"reorient","axes":"RLS"})").find("/stages/0/axes"), std::string::npos);
  EXPECT_NE(fault_of(R"({"op":"reorient","axes":"LPS","closest":true})"), "");
  EXPECT_NE(fault_of(R"({"op":"permute","order":"xy"})"), "");
  EXPECT_NE(fault_of(R"({"op":"flip"})"), "");
  EXPECT_NE(fault_of(R"({"op":"pad","before":-1})"), "");
  EXPECT_NE(fault_of(R"({"op":"pad_divisible","k":0})"), "");
  EXPECT_NE(fault_of(R"({"op":"resize","size":4,"boundary":"reflected"})").find("did you mean 'reflect'"),
            std::string::npos);
}

}  // namespace
}  // namespace volpipe
