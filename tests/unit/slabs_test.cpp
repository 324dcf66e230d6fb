// Items computed slab by slab: the voxels of one run over the whole, in the memory that was given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/slab_regions.h"
#include "stages/pointwise/pieced_statistics.h"
#include "stages/pointwise/volume_statistics.h"
#include "stages/registry.h"
#include "support/slab_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::HasSubstr;

const Index3 kOdd{17, 13, 33};
const char* const kImageAndLabel = R"(, "inputs": {"image": {}, "label": {"suffix": "_seg", "kind": "label"}})";

class Slabs : public testing::Test {
 protected:
  VolumeInfo info(DataType dtype = DataType::float32, std::int64_t components = 1, const Index3& size = kOdd) {
    return {oblique_grid(size),
            dtype,
            components,
            ImageKind::image,
            components > 1 ? ComponentAxis::frames : ComponentAxis::none,
            1.0};
  }
  Images images(DataType dtype = DataType::float32, std::int64_t components = 1) {
    return random_images(*context_, {{"image", info(dtype, components)}}, 3);
  }
  Images image_and_label() {
    Images both = images();
    VolumeInfo label = info(DataType::uint8);
    label.kind = ImageKind::label;
    both.emplace("label", volume_of(label, [](std::int64_t i) { return i / 7 % 5; }));
    return both;
  }
  void expect_equal(const std::string& stages, const Images& images, bool counts_alike = true) {
    expect_slabs_equal_whole(*context_, pipeline_of(stages), images, {1, 2, 3, 7, 33}, counts_alike);
  }

  std::unique_ptr<DeviceContext> context_ = make_context(Device::cpu(), 2);
};

TEST_F(Slabs, PointwiseStages) {
  for (const DataType dtype : {DataType::float32, DataType::int16, DataType::float64, DataType::int32})
    for (const std::int64_t components : {1, 3})
      expect_equal(R"({"op": "clip", "min": -50, "max": 120}, {"op": "scale", "factor": 1.7},
                      {"op": "cast", "dtype": "int8"})",
                   images(dtype, components));
}

TEST_F(Slabs, VoxelsKnowTheirPlaces) {
  for (const std::int64_t components : {1, 2}) {
    expect_equal(R"({"op": "noise", "kind": "gaussian", "std": 3}, {"op": "cast", "dtype": "uint8"})",
                 images(DataType::float32, components));
    expect_equal(R"({"op": "noise", "kind": "poisson"})", images(DataType::float32, components));
    expect_equal(
        R"({"op": "bias_field", "magnitude": 0.4}, {"op": "smooth_intensity", "spacing": 9, "range": [0.5, 2]})",
        images(DataType::int16, components));
    expect_equal(R"({"op": "expression", "expr": "this + 100 * k + 10 * j + i"})",
                 images(DataType::float32, components));
  }
}

TEST_F(Slabs, NeighboursAreFoundInTheHalo) {
  for (const char* boundary : {"reflect", "mirror", "nearest", "constant", "wrap"}) {
    const std::string rule = std::string(R"(, "boundary": ")") + boundary + "\"}";
    expect_equal(R"({"op": "expression", "expr": "image[0,0,2] - image[1,-1,-3] + image[0,3,0]")" + rule, images());
  }
  expect_equal(R"({"op": "expression", "expr": "image[0,0,1] - image[0,0,-1]"}, {"op": "gaussian", "sigma": 2},
                  {"op": "expression", "expr": "image[0,0,1] + image[1,0,0] + max(image[0,0,-1]) * k"})",
               images(DataType::int16, 2));
}

TEST_F(Slabs, MapsOfTheGrid) {
  for (
      const char* stages : {
          R"({"op": "flip", "axes": "z"})",
          R"({"op": "reorient", "axes": "SPL"})",
          R"({"op": "permute", "order": "zxy"}, {"op": "pad", "before": 3, "after": [1, 2, 5], "boundary": "reflect"})",
          R"({"op": "crop", "start": [2, 3, 4], "size": [9, 8, 20]}, {"op": "pad", "before": 40, "fill": 7})",
          R"({"op": "resample", "spacing": 1.1, "interpolation": "bspline3"})",
          R"({"op": "resample", "spacing": [2.2, 0.7, 3.1], "interpolation": "linear"})",
          R"({"op": "resample", "spacing": 1, "interpolation": "bspline3"}, {"op": "reorient", "axes": "IAR"})",
          R"({"op": "reorient", "axes": "SPL"}, {"op": "resample", "spacing": 2, "interpolation": "cubic"})",
          R"({"op": "resize", "size": [9, 21, 40], "interpolation": "lanczos3"}, {"op": "flip", "axes": "yz"})",
          R"({"op": "gaussian", "sigma": [1.2, 0.8, 2.5]})",
          R"({"op": "gaussian", "sigma": 1.5, "precision": "double"})",
          R"({"op": "gaussian", "sigma": 1}, {"op": "permute", "order": "yzx"}, {"op": "gaussian", "sigma": 0.7})",
          R"({"op": "pad", "before": [1, 2, 3], "fill": "min"})",
      })
    for (const DataType dtype : {DataType::float32, DataType::int16})
      for (const std::int64_t components : {1, 2}) expect_equal(stages, images(dtype, components));
}

/// A filter makes 0 of -0, also in a slab where it happens to copy.
TEST_F(Slabs, KeepTheSignOfZero) {
  Images zeros;
  zeros.emplace("image", volume_of(info(), [](std::int64_t i) { return i % 3 ? -0.0 : 0.0; }));
  for (const char* stages :
       {R"({"op": "resample", "spacing": [0.9, 1.3, 1.05]})", R"({"op": "resample", "spacing": [0.9, 1.3, 1.05]},
           {"op": "reorient", "axes": "SPL"})"})
    expect_slabs_equal_whole(*context_, pipeline_of(stages), zeros, {2, 66, 80});
}

TEST_F(Slabs, QuestionsAboutTheWholeImage) {
  for (
      const char* stages : {
          R"({"op": "rescale", "from": "auto", "to": [0, 1]})",
          R"({"op": "clip", "percentiles": [1, 99]}, {"op": "rescale", "from": {"percentiles": [5, 50]}, "to": [0, 1]})",
          R"({"op": "normalize", "method": "median_iqr", "mask": {"above": 90}})",
          R"({"op": "normalize", "method": "median_iqr", "mask": "foreground"})",
          R"({"op": "histogram_equalize", "bins": 64})",
          R"({"op": "otsu"})",
          R"({"op": "gaussian", "sigma": 1}, {"op": "clip", "percentiles": [10, 90]}, {"op": "gaussian", "sigma": 1})",
          R"({"op": "noise", "kind": "gaussian", "std": 5}, {"op": "clip", "percentiles": [10, 90]})",
          R"({"op": "normalize", "mask": "nonzero"})",
          R"({"op": "normalize", "per": "component"}, {"op": "resample", "spacing": 1.5})",
          R"({"op": "crop", "start": [2, 2, 2], "size": 9}, {"op": "normalize"}, {"op": "reorient", "axes": "SPL"})",
      })
    for (const DataType dtype : {DataType::float32, DataType::int16})
      for (const std::int64_t components : {1, 3}) expect_equal(stages, images(dtype, components));
}

TEST_F(Slabs, LabelsBesideImages) {
  for (
      const char* stages : {
          R"({"op": "resample", "spacing": 1.2}, {"op": "flip", "axes": "z"})",
          R"({"op": "normalize", "mask": "label"}, {"op": "crop", "start": [1, 1, 1], "size": [9, 9, 21]})",
          R"({"op": "normalize", "method": "median_iqr", "mask": "label"})",
          R"({"op": "gaussian", "sigma": 1}, {"op": "expression", "expr": "image * label + image[0,0,1]", "on": "image"},
              {"op": "crop", "start": [3, 2, 1], "size": [8, 9, 30]})",
      })
    expect_slabs_equal_whole(*context_, pipeline_of(stages, kImageAndLabel), image_and_label());
}

TEST_F(Slabs, ImagesTakenTogether) {
  Images two = random_images(*context_, {{"image", info()}, {"other", info(DataType::int16, 2, {5, 6, 7})}}, 8);
  const char* inputs = R"(, "inputs": {"image": {}, "other": {"suffix": "_o"}})";
  expect_slabs_equal_whole(*context_, pipeline_of(R"({"op": "normalize", "per": "item"})", inputs), two);
}

TEST_F(Slabs, DegenerateVolumes) {
  for (const Index3& size : {Index3{1, 1, 1}, Index3{2, 1, 3}, Index3{1, 17, 2}})
    for (const char* stages : {R"({"op": "normalize"})", R"({"op": "gaussian", "sigma": 2})",
                               R"({"op": "clip", "percentiles": [1, 99]}, {"op": "resample", "spacing": 0.7})"}) {
      Images constant;
      constant.emplace("image", volume_of(info(DataType::float32, 1, size), [](std::int64_t) { return 4; }));
      expect_equal(stages, constant);
    }
  Images odd;
  odd.emplace("image", volume_of(info(), [](std::int64_t i) {
                return i % 5 == 0 ? std::nan("") : i % 7 == 0 ? INFINITY : double(i % 101);
              }));
  expect_equal(R"({"op": "clip", "percentiles": [20, 80]}, {"op": "cast", "dtype": "uint8"})", odd);
  Images none;
  none.emplace("image", volume_of(info(), [](std::int64_t) { return std::nan(""); }));
  expect_equal(R"({"op": "clip", "percentiles": [20, 80]})", none);
}

TEST_F(Slabs, EveryStageThatAllowsIt) {
  std::vector<std::string> refused;
  for (const StageDefinition& stage : stages())
    for (const DataType dtype : {DataType::float32, DataType::int16}) {
      if (stage.runs_given_code) continue;
      const Pipeline pipeline = example_pipeline(stage);
      VolumeInfo grid = info(dtype);
      grid.geometry = oblique_grid({19, 18, 17});
      const Images images = random_images(*context_, example_infos(stage, grid), 21);
      const ItemKey key{.seed = 5, .item_id = "item"};
      TestFiles files;
      const Plan plan = make_plan(pipeline, infos_of(images), key, &files);
      if (plan_slabs(pipeline, plan, std::size_t(1) << 40).plan)
        expect_slabs_equal_whole(*context_, pipeline, images, {2, 17}, false);
      else if (dtype == DataType::float32) refused.push_back(stage.op);
    }
  EXPECT_THAT(refused, testing::IsSupersetOf({"affine", "crop_foreground", "stack", "clahe"}));
  EXPECT_THAT(refused, testing::Not(testing::Contains("gaussian")));
}

TEST_F(Slabs, CountsSharedVoxelsOnce) {
  const Images all = images();
  const std::string saturating = R"({"op": "scale", "factor": 2}, {"op": "cast", "dtype": "int8"})";
  expect_equal(saturating + R"(, {"op": "gaussian", "sigma": 2})", all);
  expect_equal(saturating + R"(, {"op": "flip", "axes": "z"}, {"op": "gaussian", "sigma": 2})", all);
}

TEST_F(Slabs, AsFewAsFit) {
  const Images all = random_images(*context_, {{"image", info(DataType::float32, 1, {96, 90, 100})}}, 3);
  for (const char* stages : {R"({"op": "clip", "min": 0}, {"op": "gaussian", "sigma": 1}, {"op": "normalize"})",
                             R"({"op": "resample", "spacing": 1, "interpolation": "bspline3"})"}) {
    const Pipeline pipeline = pipeline_of(stages);
    const Plan plan = make_plan(pipeline, infos_of(all), {});
    const SlabChoice one = plan_slabs(pipeline, plan, std::size_t(1) << 40);
    ASSERT_TRUE(one.plan);
    std::int64_t before = 1;
    for (const double share : {0.9, 0.7, 0.5}) {
      const auto bytes = std::size_t(double(one.plan->peak_device_bytes) * share);
      const SlabChoice choice = plan_slabs(pipeline, plan, bytes);
      ASSERT_TRUE(choice.plan) << choice.why_not;
      EXPECT_LE(choice.plan->peak_device_bytes, bytes);
      EXPECT_GE(choice.plan->slabs, before);
      before = choice.plan->slabs;
      const SlabRun run = run_in_slabs(*context_, pipeline, plan, *choice.plan, all);
      const PipelineResult whole = run_pipeline(*context_, pipeline, copies_of(all));
      expect_alike(whole.images.at("image"), run.results.images.at("image"), !asks_for_moments(plan), stages);
    }
  }
  const Pipeline clip = pipeline_of(R"({"op": "clip", "min": 0})");
  const Plan plan = make_plan(clip, infos_of(all), {});
  const std::size_t slice = 96 * 90 * 4;
  ASSERT_TRUE(plan_slabs(clip, plan, 2 * slice).plan);
  EXPECT_EQ(plan_slabs(clip, plan, 2 * slice).plan->slabs, 100);
  EXPECT_EQ(plan_slabs(clip, plan, 10 * slice).plan->slabs, 20);
  EXPECT_THAT(plan_slabs(clip, plan, 2 * slice - 1).why_not, HasSubstr("even one slice"));
}

TEST_F(Slabs, SayWhyNot) {
  const auto why = [&](const char* stages) {
    const Pipeline pipeline = pipeline_of(stages);
    TestFiles files;
    return plan_slabs(pipeline, make_plan(pipeline, infos_of(images()), {}, &files), std::size_t(1) << 40).why_not;
  };
  EXPECT_THAT(why(R"({"op": "rotate", "angles": [10, 0, 25]})"), HasSubstr("'rotate' samples the volume"));
  EXPECT_THAT(why(R"({"op": "clahe"})"), HasSubstr("'clahe' works on whole volumes"));
  EXPECT_THAT(why(R"({"op": "crop_foreground"})"), HasSubstr("'crop_foreground' measures"));
  EXPECT_EQ(why(R"({"op": "clip", "min": 0})"), "");
}

TEST(PartOf, KeepsRowsAndColumns) {
  const std::vector<double> coordinates{0, 0.5, 1.25, 2, 3.75, 4.5, 6, 7};
  for (const Boundary boundary : {Boundary::reflect, Boundary::nearest, Boundary::constant}) {
    const AxisMatrix matrix = sample_axis(8, coordinates, Interpolation::cubic, boundary);
    for (std::int64_t begin = 0; begin < 8; ++begin)
      for (std::int64_t end = begin + 1; end <= 8; ++end) {
        const AxisRange columns = columns_of(matrix, {begin, end});
        const AxisMatrix part = part_of(matrix, {begin, end}, columns);
        ASSERT_EQ(part.output_size(), end - begin);
        ASSERT_EQ(part.input_size(), columns.length());
        for (std::int64_t j = begin; j < end; ++j) {
          const AxisMatrix::Row whole = matrix.row(j), rest = part.row(j - begin);
          ASSERT_EQ(whole.size(), rest.size());
          for (std::size_t t = 0; t < whole.size(); ++t) {
            EXPECT_EQ(whole[t].index, rest[t].index + columns.begin);
            EXPECT_EQ(whole[t].weight, rest[t].weight);
          }
          EXPECT_EQ(matrix.fill_weights()[std::size_t(j)], part.fill_weights()[std::size_t(j - begin)]);
        }
      }
  }
}

TEST(PartOf, RowsThatWrapReadTheWholeAxis) {
  const AxisMatrix matrix = AxisMatrix::from_rows(9, {{{8, 0.5}, {0, 0.5}}, {{3, 0.5}, {4, 0.5}}, {{5, 1.0}}}, true);
  EXPECT_EQ(columns_of(matrix, {0, 1}), (AxisRange{0, 9}));
  EXPECT_EQ(columns_of(matrix, {1, 3}), (AxisRange{3, 6}));
  EXPECT_TRUE(part_of(matrix, {0, 2}, {0, 9}).periodic());
}

TEST(PiecedStatistics, AreThoseOfTheWhole) {
  const auto context = make_context(Device::cpu(), 2);
  std::mt19937 random(7);
  for (const DataType dtype : {DataType::float32, DataType::float64, DataType::int16, DataType::uint32}) {
    const VolumeInfo info{Geometry({1001, 1, 1}, Affine{}), dtype};
    std::lognormal_distribution<double> wide(0, 4);
    const Volume volume = volume_of(info, [&](std::int64_t i) {
      return (i % 3 || dtype == DataType::uint32 ? 1 : -1) * std::min(wide(random), 3e4);
    });
    const std::vector<double> percents{0, 0.1, 25, 50, 99.9, 100};
    const auto piece = [&](std::int64_t begin, std::int64_t end, const auto& visit) {
      const std::array<ProgramInput, 1> inputs{
          ProgramInput{static_cast<const std::byte*>(volume.data()) + std::size_t(begin) * size_of(dtype), dtype}};
      visit(SampledValues{.inputs = inputs, .count = end - begin});
    };
    StatisticsRequest request{.moments = true, .percentiles = percents, .bins = 16};
    for (const Mask::Kind kind : {Mask::Kind::all, Mask::Kind::nonzero, Mask::Kind::foreground}) {
      request.mask.kind = kind;
      const auto in_pieces = measure_pieces(*context, request, [&](const auto& visit) {
        piece(0, 400, visit);
        piece(400, 401, visit);
        piece(401, 1001, visit);
      });
      const auto whole = measure_pieces(*context, request, [&](const auto& visit) { piece(0, 1001, visit); });
      const std::array<ProgramInput, 1> inputs{ProgramInput{volume.data(), dtype}};
      SampledValues values{.inputs = inputs, .count = 1001};
      values.selection = selection_by_value(*context, request.mask, values);
      EXPECT_EQ(in_pieces.percentiles, compute_percentiles(*context, values, percents));
      EXPECT_EQ(whole.moments, compute_moments(*context, values));
      EXPECT_EQ(in_pieces.histogram, whole.histogram);
      EXPECT_EQ(in_pieces.moments.count, whole.moments.count);
      EXPECT_EQ(in_pieces.moments.min, whole.moments.min);
      EXPECT_EQ(in_pieces.moments.max, whole.moments.max);
      // The mean is rounded before it meets other pieces' means.
      const double mean = std::abs(whole.moments.mean), squares = whole.moments.sum_squares, ulp = 0x1p-52;
      EXPECT_NEAR(in_pieces.moments.mean, whole.moments.mean, 8 * ulp * (mean + whole.moments.std()));
      EXPECT_NEAR(in_pieces.moments.sum_squares, squares, 8 * ulp * (squares + mean * std::sqrt(1001 * squares)));
    }
  }
}

}  // namespace
}  // namespace volpipe
