// Chains of geometric stages: what is one pass, that fusing changes nothing, that all images of an item move alike, and
// that stages can be undone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::HasSubstr;

const char* const kTwoImages = R"(, "inputs": {"image": {}, "label": {"suffix": "_seg", "kind": "label"}})";

VolumeInfo info_of(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
  return {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
}

Images image_on(DeviceContext& context, const VolumeInfo& info, unsigned seed = 1) {
  return random_images(context, {{"image", info}}, seed);
}

/// Smooth, so that sampling it twice loses little.
Volume smooth_volume(DeviceContext& context, const VolumeInfo& info) {
  Volume volume(info, context.allocate_host(info.bytes()));
  auto* voxel = volume.data_as<float>();
  const Index3& n = info.geometry.size();
  for (std::int64_t k = 0; k < n[2]; ++k)
    for (std::int64_t j = 0; j < n[1]; ++j)
      for (std::int64_t i = 0; i < n[0]; ++i) {
        const Vec3 p = info.geometry.to_world({double(i), double(j), double(k)});
        *voxel++ = float(std::sin(p[0] / 9) + std::cos(p[1] / 8) * std::sin(p[2] / 10 + 1));
      }
  return volume;
}

double largest_difference(const Volume& a, const Volume& b) {
  const std::vector<double> x = values_of(a), y = values_of(b);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

const char* const kChains[] = {
    R"({"op": "reorient", "axes": "LPI"}, {"op": "crop", "start": [1, 2, 1], "size": [9, 8, 7]}, {"op": "rotate", "angles": [10, 20, -30]}, {"op": "flip", "axes": "xz"}, {"op": "permute", "order": "zxy"})",
    R"({"op": "pad", "before": 2, "after": [1, 0, 3], "fill": 5}, {"op": "rotate", "angles": 33, "axes": "z", "fill": 2}, {"op": "crop_or_pad", "size": [20, 7, 12], "fill": 9})",
    R"({"op": "pad", "before": 3, "boundary": "reflect"}, {"op": "affine", "rotate": [0, 0, 20], "scale": 0.9, "interpolation": "bspline3", "boundary": "mirror"}, {"op": "pad_to", "size": 24})",
    R"({"op": "crop", "start": [1, 1, 1], "size": [8, 9, 6]}, {"op": "affine", "rotate": [5, 0, 20], "interpolation": "cubic", "boundary": "grid-constant", "fill": 3}, {"op": "crop", "start": [0, 2, 1], "size": [7, 6, 5]})",
    R"({"op": "flip", "axes": "y"}, {"op": "elastic", "spacing": 6, "magnitude": 2, "boundary": "reflect"}, {"op": "pad", "before": [0, 1, 2]}, {"op": "flip", "axes": "x"})",
    R"({"op": "permute", "order": "yzx"}, {"op": "affine", "scale": 0.4, "rotate": [20, 0, 0], "interpolation": "lanczos3"}, {"op": "reorient"})",
    R"({"op": "rotate90", "axes": "yz"}, {"op": "grid_distortion", "limits": 0.4, "boundary": "grid-wrap"}, {"op": "rotate90"})"};

TEST(SpatialPlan, MovingVoxelsCostsNothingInsideAGroup) {
  const auto context = make_context(Device::cpu());
  for (const char* chain : kChains)
    for (const DataType dtype : {DataType::float32, DataType::int16, DataType::uint8}) {
      SCOPED_TRACE(chain);
      const PipelineResult fused =
          run_pipeline(*context, pipeline_of(chain), image_on(*context, info_of({12, 11, 10}, dtype)));
      const PipelineResult staged = run_pipeline(*context, pipeline_of(chain, R"(, "fuse": "none")"),
                                                 image_on(*context, info_of({12, 11, 10}, dtype)));
      EXPECT_EQ(fused.plan.groups.size(), 1u);
      EXPECT_GT(staged.plan.groups.size(), 2u);
      const Volume &a = fused.images.at("image"), &b = staged.images.at("image");
      ASSERT_EQ(a.info(), b.info());
      const std::vector<double> values = values_of(b);
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      EXPECT_LE(largest_difference(a, b), 1e-5 * (*high - *low));
    }
}

TEST(SpatialPlan, LabelsMoveBitForBitInAGroup) {
  const auto context = make_context(Device::cpu());
  for (const char* chain : kChains)
    for (const DataType dtype : {DataType::uint8, DataType::uint32, DataType::int16, DataType::float64}) {
      SCOPED_TRACE(chain);
      const std::string inputs = R"(, "inputs": {"image": {"kind": "label"}})";
      const VolumeInfo info = info_of({12, 11, 10}, dtype);
      const PipelineResult fused = run_pipeline(*context, pipeline_of(chain, inputs), image_on(*context, info));
      const PipelineResult staged =
          run_pipeline(*context, pipeline_of(chain, inputs + R"(, "fuse": "none")"), image_on(*context, info));
      EXPECT_EQ(fused.plan.groups.size(), 1u);
      EXPECT_TRUE(same_bytes(fused.images.at("image"), staged.images.at("image")));
      EXPECT_EQ(fused.images.at("image").dtype(), dtype);
    }
}

/// What the hostile tester found: nearest samplings and crops after a gather.
TEST(SpatialPlan, WhatFollowsAGatherIsTakenVoxelByVoxel) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = info_of({6, 6, 6}, DataType::uint8);
  info.geometry = Geometry({6, 6, 6}, {});
  for (
      const char* second :
      {R"({"op": "affine", "translate": [0.4, 0, 0]})", R"({"op": "resample", "spacing": 1.02})",
       R"({"op": "affine", "translate": [1.6, -0.7, 0]}, {"op": "flip", "axes": "x"})",
       R"({"op": "pad", "before": 5}, {"op": "crop", "start": [0, 0, 0], "size": [3, 6, 6]})",
       R"({"op": "crop_or_pad", "size": 20}, {"op": "crop", "start": [0, 0, 0], "size": [3, 6, 20]})",
       R"({"op": "pad", "before": 3, "fill": 7}, {"op": "pad", "after": 2, "fill": 7}, {"op": "flip", "axes": "yz"})"}) {
    SCOPED_TRACE(second);
    const std::string chain = std::string(R"({"op": "rotate", "angles": [0, 0, 10], "name": "turn"}, )") + second;
    const std::string inputs = R"(, "inputs": {"image": {"kind": "label"}})";
    const PipelineResult fused = run_pipeline(*context, pipeline_of(chain, inputs), image_on(*context, info));
    const PipelineResult staged =
        run_pipeline(*context, pipeline_of(chain, inputs + R"(, "fuse": "none")"), image_on(*context, info));
    EXPECT_TRUE(same_bytes(fused.images.at("image"), staged.images.at("image")));
  }
}

TEST(SpatialPlan, AFieldDeformsTheOthersBeforeItself) {
  const auto context = make_context(Device::cpu());
  const Pipeline warp = pipeline_of(R"({"op": "warp", "field": "field", "convention": "ras"})",
                                    R"(, "inputs": {"field": {"suffix": "_f"}, "image": {}, "z": {"suffix": "_z"}})");
  const Pipeline alone = pipeline_of(R"({"op": "warp", "field": "field", "convention": "ras", "on": ["image", "z"]})",
                                     R"(, "inputs": {"field": {"suffix": "_f"}, "image": {}, "z": {"suffix": "_z"}})");
  const auto images = [&] {
    Images images = random_images(
        *context,
        {{"field", info_of({6, 7, 5}, DataType::float32, 3)}, {"image", info_of({6, 7, 5})}, {"z", info_of({6, 7, 5})}},
        2);
    float* vectors = images.at("field").data_as<float>();
    for (std::int64_t i = 0; i < images.at("field").info().value_count(); ++i) vectors[i] /= 90;
    return images;
  };
  const PipelineResult got = run_pipeline(*context, warp, images()), wanted = run_pipeline(*context, alone, images());
  EXPECT_TRUE(same_bytes(got.images.at("image"), wanted.images.at("image")));
  EXPECT_TRUE(same_bytes(got.images.at("z"), wanted.images.at("z")));
}

TEST(SpatialPlan, TwoInterpolationsStayTwoUnlessAskedFor) {
  const auto context = make_context(Device::cpu());
  const std::string twice = R"({"op": "rotate", "angles": 12, "axes": "z", "name": "first", "boundary": "nearest"},
                               {"op": "rotate", "angles": 23, "axes": "z", "name": "second", "boundary": "nearest"})";
  const std::string once = R"({"op": "rotate", "angles": 35, "axes": "z", "boundary": "nearest"})";
  const auto input = [&] { return image_on(*context, info_of({12, 11, 10})); };
  const PipelineResult exact = run_pipeline(*context, pipeline_of(twice), input());
  ASSERT_EQ(exact.plan.groups.size(), 2u);
  EXPECT_THAT(exact.plan.groups[0].ended_by, HasSubstr("second samples again (\"fuse\": \"all\""));
  const PipelineResult all = run_pipeline(*context, pipeline_of(twice, R"(, "fuse": "all")"), input());
  ASSERT_EQ(all.plan.groups.size(), 1u);
  const PipelineResult single = run_pipeline(*context, pipeline_of(once), input());
  EXPECT_LE(largest_difference(all.images.at("image"), single.images.at("image")), 1e-3);
  EXPECT_GT(largest_difference(exact.images.at("image"), single.images.at("image")), 1);
}

TEST(SpatialPlan, AffineChainsAndFieldsAreOneGatherWhenAskedFor) {
  const auto context = make_context(Device::cpu());
  const char* const chain =
      R"({"op": "resample", "spacing": 0.8, "interpolation": "bspline3"}, {"op": "affine", "scale": 1.1, "boundary": "nearest", "interpolation": "bspline3"},
         {"op": "rotate", "angles": 12, "axes": "z", "boundary": "nearest", "interpolation": "bspline3"},
         {"op": "elastic", "spacing": 9, "magnitude": 1, "boundary": "nearest", "interpolation": "bspline3"},
         {"op": "flip", "axes": "x"}, {"op": "affine", "translate": [1, 2, 0], "boundary": "nearest", "interpolation": "bspline3"},
         {"op": "elastic", "spacing": 12, "magnitude": 1, "boundary": "nearest", "interpolation": "bspline3", "name": "again"})";
  Images images;
  images.emplace("image", smooth_volume(*context, info_of({24, 22, 20})));
  Images again;
  again.emplace("image", smooth_volume(*context, info_of({24, 22, 20})));
  const PipelineResult fused = run_pipeline(*context, pipeline_of(chain, R"(, "fuse": "all")"), std::move(images));
  const PipelineResult staged = run_pipeline(*context, pipeline_of(chain), std::move(again));
  EXPECT_EQ(fused.plan.groups.size(), 1u);
  EXPECT_EQ(staged.plan.groups.size(), 6u);
  ASSERT_EQ(fused.images.at("image").info(), staged.images.at("image").info());
  // Away from the edges, where each stage by itself repeats what the last one left.
  const Volume &a = fused.images.at("image"), &b = staged.images.at("image");
  const std::vector<double> x = values_of(a), y = values_of(b);
  const Index3& n = a.geometry().size();
  for (std::int64_t k = 8; k < n[2] - 8; ++k)
    for (std::int64_t j = 8; j < n[1] - 8; ++j)
      for (std::int64_t i = 8; i < n[0] - 8; ++i) {
        const auto at = std::size_t((k * n[1] + j) * n[0] + i);
        ASSERT_NEAR(x[at], y[at], 2e-3) << i << " " << j << " " << k;
      }
}

TEST(SpatialPlan, WhatSamplesOtherwiseIsNeverComposed) {
  for (const char* second : {R"({"op": "rotate", "angles": 5, "axes": "x", "interpolation": "nearest"})",
                             R"({"op": "rotate", "angles": 5, "axes": "x", "boundary": "reflect"})",
                             R"({"op": "rotate", "angles": 5, "axes": "x", "fill": 7})",
                             R"({"op": "rotate", "angles": 5, "axes": "x", "fill": "min"})",
                             R"({"op": "affine", "scale": 0.3})", R"({"op": "gaussian", "sigma": 1})"}) {
    const Plan plan = make_plan(
        pipeline_of(std::string(R"({"op": "rotate", "angles": 5, "axes": "z"}, )") + second, R"(, "fuse": "all")"),
        {{"image", info_of({9, 8, 7})}}, {});
    EXPECT_EQ(plan.groups.size(), 2u) << second;
  }
}

TEST(SpatialPlan, ImagesThatShareAGridShareItAfterEveryStage) {
  const Pipeline pipeline = pipeline_of(
      R"({"op": "reorient", "axes": "PIR"}, {"op": "resample", "spacing": [0.7, null, 1.9]}, {"op": "rotate", "angles": [3, 40, 5], "grid": "fit"},
         {"op": "crop_or_pad", "size": [15, 14, 13]}, {"op": "elastic"}, {"op": "resize", "scale": 0.77}, {"op": "rotate90", "axes": "xz"},
         {"op": "affine", "shear": [0.1, 0, 0.2], "grid": "fit"}, {"op": "pad_divisible", "k": 8}, {"op": "resample_to", "reference": "label"},
         {"op": "smooth_deform"}, {"op": "grid_distortion"}, {"op": "flip", "axes": "y", "move_world": true})",
      kTwoImages);
  const Plan plan =
      make_plan(pipeline, {{"image", info_of({13, 12, 11})}, {"label", info_of({13, 12, 11}, DataType::uint8)}}, {});
  for (const ImageInfos& after : plan.after_stage) EXPECT_EQ(after.at("image").geometry, after.at("label").geometry);
}

/// World position of the centre of what is not 0.
Vec3 centre_of_mass(const Volume& volume) {
  const std::vector<double> values = values_of(volume);
  const Index3& n = volume.geometry().size();
  Vec3 sum{};
  double total = 0;
  for (std::int64_t i = 0; i < std::int64_t(values.size()); ++i) {
    const double value = values[std::size_t(i)];
    sum =
        sum + value * volume.geometry().to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])});
    total += value;
  }
  return (1 / total) * sum;
}

/// A ball of 5 mm about a world position.
Volume ball(DeviceContext& context, const VolumeInfo& info, const Vec3& centre) {
  Volume volume(info, context.allocate_host(info.bytes()));
  const Index3& n = info.geometry.size();
  visit(info.dtype, [&]<class Tag>(Tag) {
    auto* voxel = volume.data_as<typename Tag::type>();
    for (std::int64_t i = 0; i < n[0] * n[1] * n[2]; ++i) {
      const Vec3 p = info.geometry.to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])});
      voxel[i] = norm(p - centre) < 5 ? 1 : 0;
    }
  });
  return volume;
}

TEST(SpatialPlan, ImagesOnDifferentGridsMoveAlikeInTheWorld) {
  const auto context = make_context(Device::cpu());
  const Vec3 centre{4, -3, 5};
  VolumeInfo fine = info_of({50, 48, 46}, DataType::float32), coarse = info_of({17, 18, 19}, DataType::uint8);
  fine.geometry = Geometry::from_spacing({50, 48, 46}, {1, 1, 1}, {-25, -24, -23});
  coarse.geometry =
      Geometry::from_spacing({30, 26, 28}, {2, 2, 2}, {28, -27, -25}, {{{{-1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}});
  for (const char* stage :
       {R"({"op": "rotate", "angles": [10, 25, -40]})",
        R"({"op": "affine", "translate": [3, -4, 4], "rotate": [0, 0, 30]})",
        R"({"op": "elastic", "spacing": 20, "magnitude": 6})", R"({"op": "smooth_deform", "limits": 5})",
        R"({"op": "grid_distortion", "steps": 3, "limits": 0.3})"}) {
    Images images;
    images.emplace("image", ball(*context, fine, centre));
    images.emplace("label", ball(*context, coarse, centre));
    const PipelineResult result = run_pipeline(*context, pipeline_of(stage, kTwoImages), std::move(images));
    const Vec3 a = centre_of_mass(result.images.at("image")), b = centre_of_mass(result.images.at("label"));
    EXPECT_GT(norm(a - centre), 0.3) << stage;
    EXPECT_LT(norm(a - b), 0.5) << stage;  // the nearest of voxels of 2 mm
  }
}

/// However the voxels of an image are stored, what a stage does in the world is the same.
TEST(SpatialPlan, TheOrientationOfTheVoxelsDoesNotMatter) {
  const auto context = make_context(Device::cpu());
  const char* const inputs = R"(, "inputs": {"image": {}, "field": {"suffix": "_field"}}, "fuse": "none")";
  const auto images = [&] {
    VolumeInfo field = info_of({7, 6, 5}, DataType::float32, 3);
    field.geometry = field.geometry.remapped({9, 8, 7}, {Matrix3::identity(), {-1, -1, -1}});
    Images images = random_images(*context, {{"image", info_of({7, 6, 5})}, {"field", field}}, 5);
    for (float* v = images.at("field").data_as<float>(); v != images.at("field").data_as<float>() + field.value_count();
         ++v)
      *v /= 60;
    return images;
  };
  for (
      const char* stage :
      {R"({"op": "rotate", "angles": [10, -25, 40], "boundary": "reflect"})",
       R"({"op": "rotate", "angles": [10, -25, 40], "grid": "fit", "interpolation": "bspline3"})",
       R"({"op": "affine", "shear": [0.1, 0.2, -0.1], "scale": [1.2, 0.9, 1], "translate": [1, 2, 3], "interpolation": "cubic"})",
       R"({"op": "affine", "scale": 0.4, "boundary": "nearest"})",
       R"({"op": "resize", "scale": 2, "interpolation": "lanczos3"})",
       R"({"op": "warp", "field": "field", "interpolation": "bspline2"})",
       R"({"op": "resample_to", "reference": "field", "interpolation": "bspline5"})"}) {
    const auto run = [&](const std::string& code) {
      return run_pipeline(
          *context,
          pipeline_of(R"({"op": "reorient", "axes": ")" + code + R"("}, )" +
                          std::string(stage).insert(1, R"("on": "image", )") + R"(, {"op": "reorient", "axes": "RAS"})",
                      inputs),
          images());
    };
    const PipelineResult wanted = run("RAS");
    const std::vector<double> values = values_of(wanted.images.at("image"));
    for (const std::string order : {"RAS", "RSA", "ARS", "ASR", "SRA", "SAR"})
      for (int signs = 0; signs < 8; ++signs) {
        std::string code = order;
        for (std::size_t i = 0; i < 3; ++i)
          if (signs >> i & 1) code[i] = code[i] == 'R' ? 'L' : code[i] == 'A' ? 'P' : 'I';
        SCOPED_TRACE(code + " " + stage);
        const PipelineResult got = run(code);
        const Volume &a = got.images.at("image"), &b = wanted.images.at("image");
        ASSERT_EQ(a.geometry().size(), b.geometry().size());
        EXPECT_LT(max_corner_distance_mm(a.geometry(), b.geometry()), 1e-9);
        EXPECT_LE(largest_difference(a, b), 2e-3);  // 1e-5 of the range, 200
      }
  }
}

/// Each label smoothed by itself and sampled, the largest share wins: against images of 0 and 1 by themselves.
TEST(Labels, AreSmoothedOneByOneWhereTheyAreReduced) {
  const auto context = make_context(Device::cpu());
  const VolumeInfo info = info_of({24, 22, 20}, DataType::uint32);
  const std::uint32_t values[] = {0, 2, 5, 70001};
  const auto labels = [&] {
    Volume volume(info, context->allocate_host(info.bytes()));
    for (std::int64_t i = 0; i < info.value_count(); ++i) {
      const std::int64_t x = i % 24, y = i / 24 % 22, z = i / 24 / 22;
      volume.data_as<std::uint32_t>()[i] = values[x > 12 ? 1 + (y + z > 20) : z > 9 ? 3 : 0];
    }
    return volume;
  };
  for (const char* stage :
       {R"({"op": "resize", "scale": 0.4, "interpolation": ")",
        R"({"op": "affine", "scale": 0.35, "rotate": [10, 20, 30], "boundary": "nearest", "interpolation": ")"}) {
    Images images;
    images.emplace("image", labels());
    const Pipeline vote = pipeline_of(std::string(stage) + R"(label_linear", "antialias": true})",
                                      R"(, "inputs": {"image": {"kind": "label"}})");
    const Volume got = std::move(run_pipeline(*context, vote, std::move(images)).images.at("image"));
    std::vector<std::vector<double>> shares;
    for (const std::uint32_t value : values) {
      Volume one = labels();
      for (std::int64_t i = 0; i < info.value_count(); ++i)
        one.data_as<std::uint32_t>()[i] = one.data_as<std::uint32_t>()[i] == value;
      Images indicator;
      indicator.emplace("image", std::move(one));
      const Pipeline share = pipeline_of(std::string(stage) + R"(linear"})");
      shares.push_back(values_of(run_pipeline(*context, share, std::move(indicator)).images.at("image")));
    }
    ASSERT_EQ(got.dtype(), DataType::uint32);
    for (std::int64_t i = 0; i < got.info().value_count(); ++i) {
      const std::uint32_t label = got.data_as<std::uint32_t>()[i];
      const auto place = std::size_t(std::find(std::begin(values), std::end(values), label) - std::begin(values));
      ASSERT_LT(place, 4u) << label;
      for (const auto& share : shares) ASSERT_GE(shares[place][std::size_t(i)], share[std::size_t(i)] - 2e-6);
    }
  }
}

TEST(Labels, FillIsALabelLikeAnyOther) {
  const auto context = make_context(Device::cpu());
  const std::string inputs = R"(, "inputs": {"image": {"kind": "label"}})";
  const auto run = [&](const std::string& stages, const std::string& more, DataType dtype,
                       const std::function<double(std::int64_t)>& value) {
    Volume volume(info_of({8, 8, 8}, dtype), context->allocate_host(info_of({8, 8, 8}, dtype).bytes()));
    visit(dtype, [&]<class Tag>(Tag) {
      for (std::int64_t i = 0; i < 512; ++i) volume.data_as<typename Tag::type>()[i] = typename Tag::type(value(i));
    });
    Images images;
    images.emplace("image", std::move(volume));
    return run_pipeline(*context, pipeline_of(stages, inputs + more), std::move(images));
  };
  const std::string smoothed = R"({"op": "affine", "scale": 0.5, "interpolation": "label_linear", "antialias": true)";
  const auto far =
      run(smoothed + R"(, "translate": [90, 0, 0], "fill": 9})", "", DataType::uint8, [](std::int64_t) { return 5; });
  for (const double label : values_of(far.images.at("image"))) ASSERT_EQ(label, 9);
  for (const char* pads : {R"(, {"op": "pad", "before": 2})", R"(, {"op": "pad", "before": 4, "fill": 9})",
                           R"(, {"op": "crop_or_pad", "size": 14, "fill": 3})"}) {
    const auto value = [](std::int64_t i) { return i % 8 > 3 ? -1 : 0; };
    EXPECT_TRUE(
        same_bytes(run(smoothed + "}" + pads, "", DataType::int16, value).images.at("image"),
                   run(smoothed + "}" + pads, R"(, "fuse": "none")", DataType::int16, value).images.at("image")))
        << pads;
  }
  EXPECT_THROW(run(smoothed + "}", "", DataType::float32, [](std::int64_t) { return std::nan(""); }), Error);
  EXPECT_THROW(run(smoothed + "}", "", DataType::float32, [](std::int64_t i) { return i % 2 ? 1.5 : 3.25; }), Error);
}

TEST(SpatialPlan, TheFieldIsTheSeedsAlone) {
  const auto one = make_context(Device::cpu(), 1), seven = make_context(Device::cpu(), 7);
  const Pipeline pipeline = pipeline_of(R"({"op": "elastic", "spacing": {"uniform": [6.0, 9.0]}, "magnitude": 2})");
  const auto run = [&](DeviceContext& context, const ItemKey& key) {
    return run_pipeline(context, pipeline, image_on(context, info_of({12, 11, 10})), key);
  };
  const PipelineResult first = run(*one, {1, "a", 0});
  EXPECT_TRUE(same_bytes(first.images.at("image"), run(*seven, {1, "a", 0}).images.at("image")));
  for (const ItemKey& other : {ItemKey{2, "a", 0}, ItemKey{1, "b", 0}, ItemKey{1, "a", 1}})
    EXPECT_FALSE(same_bytes(first.images.at("image"), run(*one, other).images.at("image")));
}

TEST(Invert, LatticeStagesBitForBit) {
  const auto context = make_context(Device::cpu());
  for (const char* stage :
       {R"({"op": "flip", "axes": "xz", "name": "s"})", R"({"op": "permute", "order": "zxy", "name": "s"})",
        R"({"op": "reorient", "axes": "SPL", "name": "s"})", R"({"op": "rotate90", "k": 3, "axes": "xz", "name": "s"})",
        R"({"op": "pad", "before": 3, "after": [1, 2, 0], "boundary": "reflect", "name": "s"})",
        R"({"op": "flip", "axes": "y", "move_world": true, "name": "s"})",
        R"({"op": "permute", "order": "zxy", "move_world": true, "name": "s"})",
        R"({"op": "rotate90", "axes": "yz", "move_world": true, "name": "s"})"})
    for (const DataType dtype : {DataType::uint8, DataType::int16, DataType::float32, DataType::uint32}) {
      const Pipeline pipeline =
          pipeline_of(std::string(stage) + R"(, {"op": "crop_or_pad", "size": 30}, {"op": "invert", "of": "s"})");
      const PipelineResult result = run_pipeline(*context, pipeline, image_on(*context, info_of({7, 6, 5}, dtype), 3));
      const Images wanted = image_on(*context, info_of({7, 6, 5}, dtype), 3);
      const Volume &a = result.images.at("image"), &b = wanted.at("image");
      EXPECT_EQ(a.dtype(), b.dtype()) << stage;
      EXPECT_EQ(a.geometry(), b.geometry()) << stage;
      EXPECT_EQ(values_of(a), values_of(b)) << stage;
    }
}

TEST(Invert, OfSamplingGivesTheGridBack) {
  const auto context = make_context(Device::cpu());
  const std::pair<const char*, double> stages[] = {
      {R"({"op": "resample", "spacing": [1.2, 1.01, 0.9], "interpolation": "bspline3", "antialias": false, "name": "s"})",
       0.02},
      {R"({"op": "rotate", "angles": [10, -5, 20], "interpolation": "bspline3", "boundary": "nearest", "grid": "fit", "name": "s"})",
       0.02},
      {R"({"op": "elastic", "spacing": 8, "magnitude": 1.5, "interpolation": "bspline3", "boundary": "nearest", "name": "s"})",
       0.02},
      {R"({"op": "affine", "scale": [1.1, 1, 0.95], "shear": [0.1, 0, 0], "interpolation": "bspline3", "boundary": "nearest", "name": "s"})",
       0.02}};
  for (const auto& [stage, tolerance] : stages) {
    SCOPED_TRACE(stage);
    const VolumeInfo info = info_of({100, 101, 107});
    Images images;
    images.emplace("image", smooth_volume(*context, info));
    const Pipeline pipeline = pipeline_of(
        std::string(stage) +
        R"(, {"op": "invert", "of": "s", "interpolation": "bspline3", "boundary": "nearest", "antialias": false})");
    const PipelineResult result = run_pipeline(*context, pipeline, std::move(images));
    const Volume& back = result.images.at("image");
    ASSERT_EQ(back.geometry(), info.geometry);
    const std::vector<double> got = values_of(back), wanted = values_of(smooth_volume(*context, info));
    for (std::int64_t k = 12; k < 95; k += 3)
      for (std::int64_t j = 12; j < 89; j += 3)
        for (std::int64_t i = 12; i < 88; i += 3) {
          const auto at = std::size_t((k * 101 + j) * 100 + i);
          ASSERT_NEAR(got[at], wanted[at], tolerance) << i << " " << j << " " << k;
        }
  }
}

TEST(Invert, OfAStageLeftOutChangesNothing) {
  const auto context = make_context(Device::cpu());
  const Pipeline pipeline = pipeline_of(
      R"({"op": "rotate", "angles": [90, 0, 0], "probability": 0, "name": "s"}, {"op": "invert", "of": "s"})");
  EXPECT_TRUE(same_bytes(run_pipeline(*context, pipeline, image_on(*context, info_of({5, 6, 7}))).images.at("image"),
                         image_on(*context, info_of({5, 6, 7})).at("image")));
}

TEST(Rotate, QuarterTurnsMoveVoxelsExactly) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = info_of({5, 5, 3}, DataType::int16);
  info.geometry = Geometry::from_spacing({5, 5, 3}, {2, 2, 3}, {1, 2, 3});
  const PipelineResult turned =
      run_pipeline(*context, pipeline_of(R"({"op": "rotate", "angles": 90, "axes": "z", "interpolation": "nearest"})"),
                   image_on(*context, info));
  // The right-hand rule about Superior takes Right to Anterior: (x, y) -> (-y, x).
  const Images before = image_on(*context, info);
  const auto* from = before.at("image").data_as<std::int16_t>();
  const auto* to = turned.images.at("image").data_as<std::int16_t>();
  for (int k = 0; k < 3; ++k)
    for (int j = 0; j < 5; ++j)
      for (int i = 0; i < 5; ++i) EXPECT_EQ(to[(k * 5 + i) * 5 + (4 - j)], from[(k * 5 + j) * 5 + i]);
}

TEST(Resample, KeepsTheExtentToHalfAVoxel) {
  VolumeInfo info = info_of({25, 25, 16});
  info.geometry = Geometry::from_spacing({25, 25, 16}, {0.1, 0.1, 0.1});
  const Plan plan = make_plan(pipeline_of(R"({"op": "resample", "spacing": 0.01})"), {{"image", info}}, {});
  EXPECT_EQ(plan.outputs.at("image").geometry.size(), (Index3{250, 250, 160}));
}

TEST(Resample, WorksOnVoxelsOfHalfAMicrometre) {
  const auto context = make_context(Device::cpu());
  VolumeInfo info = info_of({8, 8, 8});
  info.geometry = Geometry::from_spacing({8, 8, 8}, {0.0005, 0.0005, 0.0005}, {0.1, -0.2, 0.3});
  const PipelineResult halved =
      run_pipeline(*context, pipeline_of(R"({"op": "resample", "spacing": 0.001})"), image_on(*context, info));
  EXPECT_EQ(halved.images.at("image").geometry().size(), (Index3{4, 4, 4}));
  const PipelineResult shifted =
      run_pipeline(*context, pipeline_of(R"({"op": "affine", "translate": [0.0005, 0, 0]})"), image_on(*context, info));
  const std::vector<double> a = values_of(shifted.images.at("image")),
                            b = values_of(image_on(*context, info).at("image"));
  for (std::size_t i = 1; i < 8; ++i) EXPECT_FLOAT_EQ(float(a[i]), float(b[i - 1]));
  EXPECT_EQ(a[0], 0);
}

TEST(Spatial, RefusesWhatCannotBe) {
  const auto refusal = [](const std::string& stages, const VolumeInfo& info) {
    try {
      make_plan(pipeline_of(stages), {{"image", info}}, {});
    } catch (const Error& error) { return error.stage() + ": " + error.what(); }
    return std::string();
  };
  EXPECT_THAT(refusal(R"({"op": "resample", "spacing": 0.001})", info_of({512, 512, 512})), HasSubstr("GiB"));
  EXPECT_THAT(refusal(R"({"op": "elastic", "spacing": 0.01})", info_of({64, 64, 64})),
              HasSubstr("elastic: there would be more"));
  EXPECT_THAT(refusal(R"({"op": "crop", "start": [9, 0, 0], "size": 4})", info_of({8, 8, 8})),
              HasSubstr("nothing is left"));
  const auto fault = [](const std::string& stages) {
    try {
      pipeline_of(stages);
    } catch (const SpecError& error) { return error.lines().front(); }
    return std::string();
  };
  EXPECT_THAT(fault(R"({"op": "affine", "matrix": [[1, 0, 0, 0], [2, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]})"),
              HasSubstr("/matrix: 'matrix' is singular"));
  EXPECT_THAT(fault(R"({"op": "affine", "matrix": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]})"),
              HasSubstr("the last 0 0 0 1"));
  EXPECT_THAT(fault(R"({"op": "affine", "scale": 0})"), HasSubstr("'scale' must not be 0"));
  EXPECT_THAT(fault(R"({"op": "affine"})"), HasSubstr("give one of 'matrix', 'file'"));
  EXPECT_THAT(fault(R"({"op": "rotate", "angles": [1, 2], "axes": "z"})"), HasSubstr("give one angle for each axis"));
  EXPECT_THAT(fault(R"({"op": "resample_to", "reference": "imag"})"), HasSubstr("did you mean 'image'"));
  EXPECT_THAT(fault(R"({"op": "affine", "file": "none.tfm"})"), HasSubstr("there is no file '"));
  EXPECT_THAT(fault(R"({"op": "invert", "of": "flip"})"), HasSubstr("there is no earlier stage 'flip'"));
  EXPECT_THAT(fault(R"({"op": "resample", "spacing": 1, "interpolation": "bspline6"})"), HasSubstr("did you mean"));
  EXPECT_THAT(fault(R"({"op": "crop", "start": 0, "size": -3})"), HasSubstr("'size' must be"));
}

}  // namespace
}  // namespace volpipe
