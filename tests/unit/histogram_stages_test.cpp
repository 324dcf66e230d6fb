// The stages that look at histograms and quantiles: Otsu's classes, equalisation, matching, landmarks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/intensity/landmarks.h"
#include "support/stage_runs.h"
#include "unit/file_helpers.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

/// Several normal populations, one after another.
std::vector<float> populations(const std::vector<double>& means, double std, int each, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (const double mean : means) {
    std::normal_distribution<double> normal(mean, std);
    for (int i = 0; i < each; ++i) values.push_back(float(normal(random)));
  }
  return values;
}

/// numpy's percentile of sorted values.
double percentile(const std::vector<double>& sorted, double percent) {
  const double place = percent / 100 * double(sorted.size() - 1);
  const auto below = std::size_t(place);
  return below + 1 < sorted.size() ? sorted[below] + (place - double(below)) * (sorted[below + 1] - sorted[below])
                                   : sorted[below];
}

std::vector<double> sorted(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  std::sort(values.begin(), values.end());
  return values;
}

/// numpy's interp, and beyond the ends as the end pieces where `extrapolate`.
double interpolated(double v, const std::vector<double>& x, const std::vector<double>& y, bool extrapolate = false) {
  if (!extrapolate && v <= x.front()) return y.front();
  if (!extrapolate && v >= x.back()) return y.back();
  std::size_t piece = 0;
  while (piece + 2 < x.size() && v >= x[piece + 1]) ++piece;
  return y[piece] + (v - x[piece]) / (x[piece + 1] - x[piece]) * (y[piece + 1] - y[piece]);
}

TEST(Otsu, PartsPopulations) {
  const std::vector<float> values = populations({0, 50, 120, 200}, 4, 500, 1);
  const StageOutcome two = run_stage({{"op", "otsu"}}, volume_of(populations({10, 90}, 4, 500, 2)));
  EXPECT_EQ(two.dtype(), DataType::uint8);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(two.at(i), i / 500);
  const std::vector<double> four = run_stage({{"op", "multi_otsu"}, {"classes", 4}}, volume_of(values)).values();
  for (std::size_t i = 0; i < four.size(); ++i) ASSERT_EQ(four[i], double(i / 500));
  const StageOutcome two_of_two = run_stage({{"op", "multi_otsu"}, {"classes", 2}}, volume_of(values));
  EXPECT_EQ(two_of_two.values(), run_stage({{"op", "otsu"}}, volume_of(values)).values());
}

TEST(Otsu, LooksUnderAMaskAndActsOnAll) {
  std::vector<float> values = populations({0, 50, 1000}, 3, 300, 3);
  std::vector<std::uint8_t> mask(900, 1);
  std::fill(mask.begin() + 600, mask.end(), std::uint8_t(0));
  values.push_back(kNan), values.push_back(kInfinity), values.push_back(-kInfinity);
  for (int i = 0; i < 3; ++i) mask.push_back(1);
  const StageOutcome outcome = run_stages({{{"op", "otsu"}, {"mask", "label"}}},
                                          images_of("image", volume_of(values), "label", volume_of(mask)));
  const std::vector<double> found = outcome.values();
  for (std::size_t i = 0; i < 900; ++i) ASSERT_EQ(found[i], i < 300 ? 0 : 1);
  EXPECT_EQ(found[900], 0);
  EXPECT_EQ(found[901], 1);
  EXPECT_EQ(found[902], 0);
}

TEST(Otsu, OfEachComponent) {
  std::vector<float> values = populations({0, 10, 1000, 1010}, 0.5, 50, 4);
  const std::vector<double> found =
      run_stage({{"op", "otsu"}, {"per", "component"}}, volume_of(values, {100, 1, 1}, 2)).values();
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(found[i], double(i / 50 % 2));
}

TEST(Otsu, OfDegenerateImages) {
  const StageOutcome constant = run_stage({{"op", "otsu"}}, volume_of<std::int16_t>({7, 7}));
  EXPECT_THAT(constant.values(), ElementsAre(0, 0));
  EXPECT_THAT(constant.codes(), ElementsAre("few_values"));
  const StageOutcome nothing = run_stage({{"op", "multi_otsu"}}, volume_of<float>({kNan, kInfinity}));
  EXPECT_THAT(nothing.values(), ElementsAre(0, 0));
  EXPECT_THAT(nothing.codes(), ElementsAre("no_voxels"));
  const StageOutcome few = run_stage({{"op", "multi_otsu"}, {"classes", 5}}, volume_of<std::int16_t>({3, 9, 3, 40}));
  EXPECT_THAT(few.values(), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(few.codes(), ElementsAre("few_values"));
  EXPECT_THAT(run_stage({{"op", "otsu"}}, volume_of<std::int32_t>({16777217, 16777218})).values(), ElementsAre(0, 1));
}

TEST(HistogramEqualize, IsTheDistributionThroughTheBinsMiddles) {
  std::vector<float> values = populations({0, 30}, 8, 700, 5);
  values.push_back(kNan), values.push_back(kInfinity), values.push_back(-kInfinity);
  const std::vector<double> all = sorted({values.begin(), values.end()});
  constexpr int kBins = 40;
  const double width = (all.back() - all.front()) / kBins;
  std::vector<double> x, y;
  for (int bin = 0; bin < kBins; ++bin) {
    x.push_back(all.front() + (bin + 0.5) * width);
    const auto below = std::count_if(all.begin(), all.end(), [&](double v) {
      return std::min(int((v - all.front()) * (kBins / (all.back() - all.front()))), kBins - 1) <= bin;
    });
    y.push_back(-1 + 3 * double(below) / double(all.size()));
  }
  const std::vector<double> found =
      run_stage({{"op", "histogram_equalize"}, {"bins", kBins}, {"to", {-1, 2}}}, volume_of(values)).values();
  for (std::size_t i = 0; i < 1400; ++i) ASSERT_NEAR(found[i], interpolated(double(values[i]), x, y), 5e-7);
  EXPECT_TRUE(std::isnan(found[1400]));
  EXPECT_EQ(found[1401], 2);
  EXPECT_NEAR(found[1402], y.front(), 1e-7);
}

TEST(HistogramEqualize, MakesManyVoxelsUniform) {
  const std::vector<double> found =
      run_stage({{"op", "histogram_equalize"}, {"bins", 4096}}, volume_of(populations({0}, 1, 20000, 6))).values();
  for (const double share : {0.1, 0.25, 0.5, 0.9})  // to a bin's share of the voxels
    EXPECT_NEAR(double(std::count_if(found.begin(), found.end(), [&](double v) { return v <= share; })) / 20000, share,
                2e-3);
}

TEST(HistogramEqualize, UnderAMaskAndOfDegenerateImages) {
  const Json stage = {{"op", "histogram_equalize"}, {"bins", 2}, {"mask", "nonzero"}};
  const StageOutcome masked = run_stage(stage, volume_of<float>({0, 1, 1, 1, 3, -5}));
  EXPECT_NEAR(masked.at(0), 0.8, 1e-6);  // bins [-5, -1) and [-1, 3] hold 1 and 4: from 0.2 at -3 to 1 at 1
  EXPECT_EQ(masked.at(1), 1);
  const StageOutcome constant =
      run_stage({{"op", "histogram_equalize"}, {"to", {4, 5}}}, volume_of<float>({2, 2, kNan}));
  EXPECT_EQ(constant.at(0), 4);
  EXPECT_TRUE(std::isnan(constant.at(2)));
  EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
  const StageOutcome nothing = run_stage(stage, volume_of<float>({0, 0}));
  EXPECT_EQ(nothing.at(0), 0);
  EXPECT_THAT(nothing.codes(), ElementsAre("no_voxels"));
}

std::vector<double> quantiles(const std::vector<double>& sorted, int points) {
  std::vector<double> values;
  for (int i = 0; i <= points; ++i) values.push_back(percentile(sorted, 100.0 * i / points));
  return values;
}

TEST(HistogramMatch, MapsQuantilesToThoseOfAnImageOfTheItem) {
  const std::vector<float> values = populations({0, 40}, 6, 500, 7), others = populations({-100, 300, 350}, 20, 333, 8);
  std::vector<float> reference = others;
  reference.push_back(kNan);
  const StageOutcome outcome = run_stages({{{"op", "histogram_match"}, {"reference", "other"}, {"points", 32}}},
                                          images_of("image", volume_of(values), "other", volume_of(reference)));
  const std::vector<double> x = quantiles(sorted({values.begin(), values.end()}), 32);
  const std::vector<double> y = quantiles(sorted({others.begin(), others.end()}), 32);
  const std::vector<double> found = outcome.values();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(found[i], interpolated(double(values[i]), x, y), 1e-4);
  EXPECT_EQ(outcome.values("other")[7], double(reference[7]));  // the reference itself stays
}

TEST(HistogramMatch, ToItselfIsTheIdentity) {
  const std::vector<float> values = populations({0, 40}, 6, 500, 9);
  const StageOutcome outcome = run_stages({{{"op", "histogram_match"}, {"reference", "other"}}},
                                          images_of("image", volume_of(values), "other", volume_of(values)));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(outcome.at(std::int64_t(i)), double(values[i]), 1e-5);
}

/// A file that exists, for the spec's reader; its voxels are those given.
struct ReferenceFile {
  const test::TemporaryFolder folder;
  std::string path = folder / "reference.nii";
  TestFiles files;
  explicit ReferenceFile(Volume volume) {
    test::write_bytes(path, "");
    files.volumes[path] = std::make_shared<const Volume>(std::move(volume));
  }
};

TEST(HistogramMatch, ToAFileOnAnotherGrid) {
  const std::vector<float> values = populations({5}, 2, 600, 10), others = populations({50, 90}, 9, 400, 11);
  const ReferenceFile reference(volume_of(others, {40, 10, 2}));
  const StageOutcome outcome = run_stages({{{"op", "histogram_match"}, {"reference", reference.path}, {"points", 16}}},
                                          images_of("image", volume_of(values)), {}, reference.files);
  const std::vector<double> x = quantiles(sorted({values.begin(), values.end()}), 16);
  const std::vector<double> y = quantiles(sorted({others.begin(), others.end()}), 16);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(outcome.at(std::int64_t(i)), interpolated(double(values[i]), x, y), 3e-5);
}

TEST(HistogramMatch, ManyEqualVoxelsGoToTheMeanOfTheirQuantiles) {
  // Quantiles 0, 1/4, ... of the image: 0 0 0 8 16; of the reference: 10 20 30 40 50.
  const StageOutcome outcome = run_stages(
      {{{"op", "histogram_match"}, {"reference", "other"}, {"points", 4}}},
      images_of("image", volume_of<float>({0, 0, 0, 8, 16}), "other", volume_of<float>({50, 20, 30, 40, 10})));
  EXPECT_THAT(outcome.values(), ElementsAre(20, 20, 20, 40, 50));
}

TEST(HistogramMatch, BeyondAMaskGoesToTheEndsOfTheRanges) {
  // Above 5 the quantiles 0, 1/2, 1 are 10 20 30 and 100 150 300; below them 0 goes to the least, -50.
  const StageOutcome outcome = run_stages(
      {{{"op", "histogram_match"}, {"reference", "other"}, {"points", 2}, {"mask", {{"above", 5}}}}},
      images_of("image", volume_of<float>({0, 5, 10, 20, 30}), "other", volume_of<float>({-50, 100, 0, 150, 300})));
  EXPECT_THAT(outcome.values(), ElementsAre(-50, 25, 100, 150, 300));
}

TEST(HistogramMatch, OfEachComponent) {
  const StageOutcome outcome =
      run_stages({{{"op", "histogram_match"}, {"reference", "other"}, {"points", 2}, {"per", "component"}}},
                 images_of("image", volume_of<float>({0, 1, 2, 0, 10, 30}, {3, 1, 1}, 2), "other",
                           volume_of<float>({5, 6, 9, 60, 70, 80}, {3, 1, 1}, 2)));
  EXPECT_THAT(outcome.values(), ElementsAre(5, 6, 9, 60, 70, 80));
}

TEST(HistogramMatch, OfDegenerateImages) {
  const auto match = [](Volume image, Volume other) {
    return run_stages({{{"op", "histogram_match"}, {"reference", "other"}}},
                      images_of("image", std::move(image), "other", std::move(other)));
  };
  const StageOutcome constant = match(volume_of<float>({3, 3}), volume_of<float>({1, 2}));
  EXPECT_THAT(constant.values(), ElementsAre(3, 3));
  EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
  EXPECT_THAT(match(volume_of<float>({kNan, kNan}), volume_of<float>({1, 2})).codes(), ElementsAre("no_voxels"));
  EXPECT_THAT(match(volume_of<float>({1, 2}), volume_of<float>({kNan, kNan})).codes(), ElementsAre("no_voxels"));
  EXPECT_THAT(match(volume_of<float>({1, 2}), volume_of<float>({7, 7})).values(), ElementsAre(7, 7));
  const ReferenceFile empty(volume_of<float>({kNan}));
  EXPECT_THROW(run_stages({{{"op", "histogram_match"}, {"reference", empty.path}}},
                          images_of("image", volume_of<float>({1, 2})), {}, empty.files),
               Error);
}

TEST(MatchLandmarks, IsStraightBetweenThem) {
  const std::vector<double> from{-20, 10, 100}, to{0, 5, 6};
  const Json stage = {{"op", "match_landmarks"}, {"from", from}, {"to", to}};
  expect_formula(stage, ramp(), [&](double v) { return interpolated(v, from, to, true); });
  Json clipped = stage;
  clipped["clip"] = true;
  expect_formula(clipped, ramp(), [&](double v) { return interpolated(v, from, to); });
  const Json falling = {{"op", "match_landmarks"}, {"from", {0, 1}}, {"to", {1, 0}}};
  const StageOutcome odd = run_stage(falling, volume_of<float>({kNan, kInfinity, -kInfinity, 0.25f}));
  EXPECT_TRUE(std::isnan(odd.at(0)));
  EXPECT_EQ(odd.at(1), -kInfinity);
  EXPECT_EQ(odd.at(2), kInfinity);
  EXPECT_EQ(odd.at(3), 0.75);
}

TEST(MatchLandmarks, OfPercentiles) {
  const Json percentiles = {{"percentiles", {10, 50, 90}}};
  expect_formula(
      {{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 1, 10}}}, ramp(),
      [](double v) {
        return interpolated(v, {-30, 50, 130}, {0, 1, 10}, true);
      },
      2e-6);
  // The lower two fall together, on the mean of 0 and 4.
  EXPECT_THAT(run_stage({{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 4, 10}}},
                        volume_of<float>({1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5}))
                  .values()[0],
              2);
  const StageOutcome constant =
      run_stage({{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 4, 10}}}, volume_of<float>({3, 3}));
  EXPECT_EQ(constant.at(0), 3);
  EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
  const Json above = {{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 4, 10}}, {"mask", {{"above", 9}}}};
  EXPECT_THAT(run_stage(above, volume_of<float>({3, 3})).codes(), ElementsAre("no_voxels"));
}

TEST(Landmarks, AreTheMeanOfTheImagesOnTheScale) {
  LandmarkTrainer trainer({0, 50, 100}, {0, 100}, {});
  trainer.add({0, 2, 10});
  trainer.add({100, 180, 200});
  EXPECT_THROW(trainer.add({5, 5, 5}), Error);
  EXPECT_THROW(trainer.add({kNan, kNan, kNan}), Error);
  const Landmarks learned = trainer.result();
  EXPECT_EQ(learned.images, 2);
  EXPECT_THAT(learned.values, ElementsAre(0, 50, 100));
}

TEST(Landmarks, SurviveTheirFile) {
  LandmarkTrainer trainer({1, 30.5, 99}, {-5, 7}, {Mask::Kind::above, 3.25, ""});
  trainer.add({0, 1.0 / 3, 10});
  Landmarks again;
  EXPECT_EQ(read_landmarks(Json::parse(to_json(trainer.result()).dump()), again), "");
  EXPECT_EQ(again.values, trainer.result().values);
  EXPECT_EQ(again.percentiles, trainer.percentiles());
  EXPECT_EQ(again.scale, (std::array<double, 2>{-5, 7}));
  EXPECT_EQ(again.mask.threshold, 3.25);
  EXPECT_EQ(again.images, 1);
}

TEST(Landmarks, FaultsAreNamed) {
  const auto fault = [](const char* text) {
    Landmarks landmarks;
    return read_landmarks(Json::parse(text), landmarks);
  };
  EXPECT_THAT(fault("[1]"), HasSubstr("object"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 99]})"), HasSubstr("'landmarks' is missing"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 99], "landmarks": [0, 50, 100]})"), HasSubstr("3 landmarks for 2"));
  EXPECT_THAT(fault(R"({"percentiles": [99, 1], "landmarks": [0, 100]})"), HasSubstr("ascend"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 101], "landmarks": [0, 100]})"), HasSubstr("from 0 to 100"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 99], "landmarks": [100, 0]})"), HasSubstr("descend"));
  EXPECT_THAT(fault(R"({"percentiles": [1, "a"], "landmarks": [100, 0]})"), HasSubstr("'percentiles'"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 99], "landmarks": [0, 100], "mask": "seg"})"),
              HasSubstr("cannot be an image"));
  EXPECT_THAT(fault(R"({"percentiles": [1, 99], "landmark": [0, 100]})"), HasSubstr("did you mean 'landmarks'"));
}

const Json kLandmarks = {{"percentiles", {0, 50, 100}}, {"landmarks", {0, 30, 100}}};

TEST(HistogramStandardize, BringsPercentilesToTheLandmarks) {
  const std::vector<float> values = populations({0, 40}, 6, 500, 12);
  const std::vector<double> all = sorted({values.begin(), values.end()});
  expect_formula(
      {{"op", "histogram_standardize"}, {"landmarks", kLandmarks}}, volume_of(values),
      [&](double v) {
        return interpolated(v, quantiles(all, 2), {0, 30, 100}, true);
      },
      2e-5);
}

TEST(HistogramStandardize, ExtrapolatesBeyondTheMaskOfTheLandmarks) {
  Json landmarks = kLandmarks;
  landmarks["mask"] = {{"above", 5}};
  const Json stage = {{"op", "histogram_standardize"}, {"landmarks", landmarks}};
  const Volume image = volume_of<float>({0, 10, 20, 40, kNan});
  const std::vector<double> found = run_stage(stage, image).values();  // 10 20 40 go to 0 30 100
  EXPECT_NEAR(found[0], -30, 1e-5);
  EXPECT_NEAR(found[2], 30, 1e-5);
  EXPECT_TRUE(std::isnan(found[4]));
  Json own_mask = stage;
  own_mask["mask"] = {{"above", 15}};
  EXPECT_NEAR(run_stage(own_mask, image).at(1), -30, 1e-5);  // 20 30 40 go to 0 30 100
}

TEST(HistogramStandardize, ReadsItsFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "landmarks.json";
  test::write_bytes(path, kLandmarks.dump());
  TestFiles files;
  files.texts[path] = kLandmarks.dump();
  const auto run = [&] {
    return run_stages({{{"op", "histogram_standardize"}, {"landmarks", path}}},
                      images_of("image", volume_of<std::int16_t>({0, 5, 20})), {}, files);
  };
  EXPECT_THAT(run().values(), ElementsAre(0, 30, 100));
  for (const char* text : {"", "{", R"({"percentiles": [1]})"}) {
    files.texts[path] = text;
    try {
      run();
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::input);
      EXPECT_EQ(error.path(), path);
      EXPECT_THAT(error.what(), HasSubstr("train-landmarks"));
    }
  }
}

TEST(HistogramStandardize, OfDegenerateImages) {
  const Json stage = {{"op", "histogram_standardize"}, {"landmarks", kLandmarks}};
  const StageOutcome constant = run_stage(stage, volume_of<float>({3, 3}));
  EXPECT_EQ(constant.at(0), 3);
  EXPECT_THAT(constant.codes(), ElementsAre("constant_image"));
  EXPECT_THAT(run_stage(stage, volume_of<float>({kNan})).codes(), ElementsAre("no_voxels"));
  // A flat image with one bright voxel: the lower landmarks fall together on their mean.
  EXPECT_THAT(run_stage(stage, volume_of<float>({3, 3, 3, 9})).values(), ElementsAre(15, 15, 15, 100));
}

TEST(HistogramStages, WrongParametersAreFaultsInTheirPlace) {
  const Json percentiles = {{"percentiles", {1, 101}}};
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"op", "multi_otsu"}, {"classes", 1}}, "/classes"},
      {{{"op", "multi_otsu"}, {"classes", 9}}, "/classes"},
      {{{"op", "histogram_equalize"}, {"bins", 1}}, "/bins"},
      {{{"op", "histogram_equalize"}, {"to", 1}}, "/to"},
      {{{"op", "histogram_match"}}, ""},
      {{{"op", "histogram_match"}, {"reference", "a"}, {"points", 0}}, "/points"},
      {{{"op", "histogram_match"}, {"reference", "a"}, {"per", "item"}}, "/per"},
      {{{"op", "histogram_standardize"}}, ""},
      {{{"op", "histogram_standardize"}, {"landmarks", {{"percentiles", {1, 99}}}}}, "/landmarks"},
      {{{"op", "histogram_standardize"}, {"landmarks", 3}}, "/landmarks"},
      {{{"op", "match_landmarks"}, {"from", {1, 2}}}, ""},
      {{{"op", "match_landmarks"}, {"from", {2, 1}}, {"to", {0, 1}}}, "/from"},
      {{{"op", "match_landmarks"}, {"from", percentiles}, {"to", {0, 1}}}, "/from"},
      {{{"op", "match_landmarks"}, {"from", {1, 2}}, {"to", {0, 1, 2}}}, "/to"},
      {{{"op", "match_landmarks"}, {"from", {1, 2}}, {"to", {0, 1}}, {"mask", "nonzero"}}, "/mask"}};
  for (const auto& [entry, place] : cases) EXPECT_THAT(fault_places(entry), ElementsAre(place)) << entry;
}

}  // namespace
}  // namespace volpipe
