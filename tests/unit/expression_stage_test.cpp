// The expression stage in pipelines: reductions, types, targets, new images, exact labels, and its faults in specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/oriented_grids.h"
#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

class ExpressionStageTest : public testing::Test {
 protected:
  template <class T>
  void add(const std::string& name, const Index3& size, const std::vector<T>& values,
           ImageKind kind = ImageKind::image) {
    VolumeInfo info;
    info.geometry = Geometry(size, {});
    info.dtype = data_type_of<T>();
    info.kind = kind;
    info.components = std::int64_t(values.size()) / info.geometry.voxel_count();
    Volume volume(info, cpu_->allocate_host(info.bytes()));
    std::copy(values.begin(), values.end(), volume.data_as<T>());
    images_.insert_or_assign(name, std::move(volume));
  }

  /// A row of voxels.
  void add(const std::string& name, const std::vector<double>& values) {
    add(name, {std::int64_t(values.size()), 1, 1}, values);
  }

  /// Runs an expression stage with more keys of the entry; its images are those added.
  PipelineResult run(const std::string& expr, const Json& more = Json::object(),
                     const Json& variables = Json::object()) {
    Json entry = {{"op", "expression"}, {"expr", expr}};
    entry.update(more);
    return run_stages(Json::array({entry}), variables);
  }

  PipelineResult run_stages(const Json& stages, const Json& variables = Json::object()) {
    Images images;
    for (const auto& [name, volume] : images_) images.emplace(name, cpu_->to_device(copy_of(volume)));
    return run_pipeline(*cpu_, parse_pipeline(spec(stages, variables), "test"), std::move(images));
  }

  std::string spec(const Json& stages, const Json& variables = Json::object()) const {
    Json inputs = Json::object();
    for (const auto& [name, volume] : images_)
      inputs[name] = {{"suffix", "_" + name}, {"kind", volume.info().kind == ImageKind::label ? "label" : "image"}};
    return Json{{"volpipe", 1}, {"variables", variables}, {"inputs", inputs}, {"stages", stages}}.dump();
  }

  /// The first voxel of what an expression makes of the image "a", in double.
  double first(const std::string& expr) {
    return values_of(run(expr, {{"on", "a"}, {"precision", "double"}}).images.at("a"))[0];
  }

  std::vector<std::string> faults(const Json& entry, const Json& variables = Json::object()) const {
    try {
      parse_pipeline(spec(Json::array({entry}), variables), "test");
    } catch (const SpecError& error) {
      std::vector<std::string> lines;
      for (const Fault& fault : error.faults()) lines.push_back(fault.pointer + ": " + fault.message);
      return lines;
    }
    return {};
  }

  Volume copy_of(const Volume& volume) const {
    Volume copy(volume.info(), cpu_->allocate_host(volume.info().bytes()));
    std::memcpy(copy.data(), volume.data(), volume.info().bytes());
    return copy;
  }

  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 2);
  std::map<std::string, Volume> images_;
};

TEST_F(ExpressionStageTest, ReductionsAreOverFiniteVoxels) {
  add("a", {4, kNan, 1, -2, kInfinity, 7, 0, 2});  // finite: 4 1 -2 7 0 2
  add("b", {1, 1, 0, 1, 1, 0, kNan, 0});           // true: the voxels 0, 1, 3, 4 and 6
  EXPECT_EQ(first("min(a)"), -2);
  EXPECT_EQ(first("max(a)"), 7);
  EXPECT_EQ(first("mean(a)"), 2);
  EXPECT_EQ(first("sum(a)"), 12);
  EXPECT_NEAR(first("std(a)"), std::sqrt((4 + 1 + 16 + 25 + 4 + 0) / 6.0), 1e-14);
  EXPECT_EQ(first("median(a)"), 1.5);
  EXPECT_EQ(first("percentile(a, 0)"), -2);
  EXPECT_EQ(first("percentile(a, 100)"), 7);
  EXPECT_EQ(first("percentile(a, 25)"), 0.25) << "numpy's linear rule between 0 and 1";
  EXPECT_DOUBLE_EQ(first("mean(a, b)"), 2.0 / 3) << "of 4, -2 and 0";
  EXPECT_NEAR(first("sum(a, b)"), 2, 1e-15);
  EXPECT_EQ(first("median(a, b)"), 0);
  EXPECT_EQ(first("percentile(a, 75, b)"), 2);
  EXPECT_EQ(first("count(b)"), 5) << "NaN is true";
  EXPECT_EQ(first("count(a > 0)"), 5) << "infinity too";
  EXPECT_EQ(first("count(isfinite(a))"), 6);
  EXPECT_EQ(first("count(1)"), 8);
  EXPECT_EQ(first("sum(2)"), 16);
  EXPECT_EQ(first("mean(abs(a - mean(a)))"), 14 / 6.0);
  EXPECT_EQ(first("max(a - min(a)) + min(max(a), 5)"), 14);
  EXPECT_EQ(first("sum(i)"), 28);
  EXPECT_EQ(first("sum(a * i, isfinite(a)) / sum(a)"), (2 - 6 + 35 + 14) / 12.0);
}

TEST_F(ExpressionStageTest, ReductionsOfNothingAreNaNWithANotice) {
  add("a", {kNan, kInfinity});
  EXPECT_EQ(first("count(isfinite(a))"), 0);
  EXPECT_EQ(first("sum(a)"), 0);
  for (const char* text : {"min(a)", "max(a)", "mean(a)", "std(a)", "median(a)", "mean(1, a < 0)"})
    EXPECT_TRUE(std::isnan(first(text))) << text;
  const PipelineResult result = run("this - mean(a, a < 0)");
  ASSERT_EQ(result.record.warnings.size(), 1u);
  EXPECT_EQ(result.record.warnings[0].code, "no_voxels");
  EXPECT_THAT(result.record.warnings[0].message, HasSubstr("'mean(a, a < 0)' found no finite voxel and is NaN"));
}

TEST_F(ExpressionStageTest, ReductionsOverComponents) {
  add("a", {2, 1, 1}, std::vector<double>{1, 2, 3, 4, 5, 6});
  add("m", {2, 1, 1}, std::vector<std::uint8_t>{0, 1});
  EXPECT_EQ(first("sum(a)"), 21);
  EXPECT_EQ(first("mean(a, m)"), 4);
  EXPECT_EQ(first("count(a > 2)"), 4);
  EXPECT_EQ(first("count(m)"), 1) << "an image of one component is counted once";
  EXPECT_EQ(first("sum(m + 1)"), 3);
  EXPECT_EQ(first("count(a > 0 and m)"), 3);
  EXPECT_EQ(first("percentile(a, 50, m)"), 4);
  EXPECT_THAT(values_of(run("a * m", {{"on", "a"}}).images.at("a")), ElementsAre(0, 2, 0, 4, 0, 6));
}

TEST_F(ExpressionStageTest, SumsOfWholeNumbersAreWhole) {
  std::vector<std::int32_t> large(1000, 2147483647);
  large[17] = 1;
  add("a", {10, 10, 10}, large);
  EXPECT_EQ(first("sum(a)"), 2147483647.0 * 999 + 1);
  add("a", {10, 10, 10}, std::vector<std::uint16_t>(1000, 65535));
  EXPECT_EQ(first("sum(a * a)"), 65535.0 * 65535 * 1000) << "beyond what float32 holds";
  EXPECT_EQ(first("count(a * a == 65535 * 65535)"), 1000);
}

TEST_F(ExpressionStageTest, PixelTypesOfResults) {
  add("image", {2, 1, 1}, std::vector<std::int16_t>{1, 2});
  add("seg", {2, 1, 1}, std::vector<std::uint8_t>{3, 4}, ImageKind::label);
  const auto type = [&](const std::string& expr, const Json& more) {
    const PipelineResult result = run(expr, more);
    const std::string name = more.value("output", more.value("on", "image"));
    return result.plan.outputs.at(name).dtype;
  };
  EXPECT_EQ(type("image * 2", Json::object()), DataType::float32);
  EXPECT_EQ(type("image > 1", Json::object()), DataType::float32) << "an image that is replaced stays one";
  EXPECT_EQ(type("image * 2", {{"dtype", "int16"}}), DataType::int16);
  EXPECT_EQ(type("seg + 1", {{"on", "seg"}}), DataType::uint8);
  EXPECT_EQ(type("seg / 2", {{"on", "seg"}}), DataType::uint8);
  EXPECT_EQ(type("image > 1", {{"output", "new"}}), DataType::uint8);
  EXPECT_EQ(type("image + 1", {{"output", "new"}}), DataType::float32);
  EXPECT_EQ(type("seg + 1", {{"output", "new"}, {"kind", "label"}}), DataType::int32);
  EXPECT_EQ(type("image > 1", {{"output", "new"}, {"dtype", "float32"}}), DataType::float32);
  EXPECT_EQ(type("image > 1", {{"output", "seg"}}), DataType::uint8) << "the label's own";
  const auto kind = [&](const std::string& expr, const Json& more) {
    return run(expr, more).plan.outputs.at("new").kind;
  };
  EXPECT_EQ(kind("image > 1", {{"output", "new"}}), ImageKind::label);
  EXPECT_EQ(kind("image + 1", {{"output", "new"}}), ImageKind::image);
  EXPECT_EQ(kind("image > 1", {{"output", "new"}, {"kind", "image"}}), ImageKind::image);
}

TEST_F(ExpressionStageTest, LabelsAreExact) {
  add("wide", {3, 1, 1}, std::vector<std::int32_t>{16777217, 2147483647, -5}, ImageKind::label);
  EXPECT_THAT(values_of(run("wide - 1", {{"on", "wide"}}).images.at("wide")), ElementsAre(16777216, 2147483646, -6));
  EXPECT_THAT(values_of(run("where(wide == 16777217, 33554433, wide)", {{"on", "wide"}}).images.at("wide")),
              ElementsAre(33554433, 2147483647, -5));
  EXPECT_THAT(values_of(run("wide == 16777217", {{"output", "one"}}).images.at("one")), ElementsAre(1, 0, 0));
  add("small", {3, 1, 1}, std::vector<std::uint16_t>{65535, 65521, 4099}, ImageKind::label);
  EXPECT_THAT(values_of(run("small * small % 65519", {{"on", "small"}}).images.at("small")),
              ElementsAre(65535ll * 65535 % 65519, 65521ll * 65521 % 65519, 4099ll * 4099 % 65519))
      << "the square is beyond 2^24";
  EXPECT_THAT(values_of(run("small * 3 - 70000", {{"on", "small"}}).images.at("small")), ElementsAre(65535, 65535, 0));
  EXPECT_THAT(values_of(run("floor(small / 3)", {{"on", "small"}}).images.at("small")),
              ElementsAre(21845, 21840, 1366));
  images_.erase("small");
  add("sum", {3, 1, 1}, std::vector<std::int32_t>{2147483647, 2147483647, 2147483646});
  EXPECT_THAT(values_of(run("(sum + sum + wide * 0) % 7", {{"output", "rest"}, {"kind", "label"}}).images.at("rest")),
              ElementsAre(2 * 2147483647ll % 7, 2 * 2147483647ll % 7, 2 * 2147483646ll % 7));
}

TEST_F(ExpressionStageTest, TheLongestExpressionFitsWithAConversionToIntegers) {
  add("seg", {2, 1, 1}, std::vector<std::uint8_t>{0, 3}, ImageKind::label);
  std::string sum = "this";
  for (int n = 0; n < 95; ++n) sum += n % 2 ? " - 1" : " + 1";
  EXPECT_THAT(values_of(run(sum, {{"on", "seg"}}).images.at("seg")), ElementsAre(1, 4));
}

TEST_F(ExpressionStageTest, TheImageAtHandIsTheChainsValue) {
  add("a", {1, 2, 3});
  add("b", {10, 20, 30});
  const Json clip = {{"op", "clip"}, {"max", 2}, {"on", "a"}};
  const auto expression = [](const std::string& expr) {
    return Json{{"op", "expression"}, {"expr", expr}, {"on", "a"}};
  };
  PipelineResult result = run_stages({clip, expression("a * 10 + this + b"), expression("a - max(a)")});
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(21 - 52, 42 - 52, 0));
  EXPECT_EQ(result.plan.groups.size(), 1u) << "one pass";
  result = run_stages({clip, expression("a[1,0,0] - a")});
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(1, 0, 0));
  EXPECT_EQ(result.plan.groups.size(), 2u) << "neighbours are of the image after clip";
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(10, 20, 30));
}

TEST_F(ExpressionStageTest, NewImages) {
  add("a", {1, 2, 3});
  add("b", {10, 20, 30});
  PipelineResult result = run("a + b", {{"output", "sum"}});
  EXPECT_THAT(values_of(result.images.at("sum")), ElementsAre(11, 22, 33));
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(1, 2, 3));
  const Json made = {{"op", "expression"}, {"expr", "a > 1"}, {"output", "mask"}};
  result = run_stages({made,
                       {{"op", "expression"}, {"expr", "1 - mask"}, {"on", "mask"}},
                       {{"op", "expression"}, {"expr", "where(mask, this, 0) + b[1,0,0]"}, {"on", "b"}}});
  EXPECT_THAT(values_of(result.images.at("mask")), ElementsAre(1, 0, 0));
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(30, 30, 30));
  result = run_stages({made, {{"op", "expression"}, {"expr", "this * 2 + a + mask"}, {"on", "mask"}}});
  EXPECT_THAT(values_of(result.images.at("mask")), ElementsAre(1, 5, 6)) << "made and changed in one pass";
  result = run("this + 1", {{"on", "b"}, {"output", "more"}});
  EXPECT_THAT(values_of(result.images.at("more")), ElementsAre(11, 21, 31));
  result = run("a - this", {{"on", "b"}, {"output", "more"}});
  EXPECT_THAT(values_of(result.images.at("more")), ElementsAre(-9, -18, -27)) << "'this' is what \"on\" names";
  result = run("a * 2", {{"output", "b"}});
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(2, 4, 6));
  result = run("this - b", {{"output", "b"}, {"on", "a"}});
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(-9, -18, -27));
  result = run("i + 0", {{"output", "ramp"}});
  EXPECT_THAT(values_of(result.images.at("ramp")), ElementsAre(0, 1, 2));
  images_.clear();
  add("seg", {3, 1, 1}, std::vector<std::uint8_t>{0, 3, 3}, ImageKind::label);
  EXPECT_THAT(values_of(run("seg == 3", {{"output", "lesion"}}).images.at("lesion")), ElementsAre(0, 1, 1))
      << "an item of labels alone";
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", "this == 3"}, {"output", "lesion"}}),
              ElementsAre(HasSubstr("'this' is no image here")));
}

TEST_F(ExpressionStageTest, SeveralImagesAtOnce) {
  add("a", {1, 2, 3});
  add("b", {10, 20, 60});
  PipelineResult result = run("this / max(this)");
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(float(1 / 3.0), float(2 / 3.0), 1));
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(float(1 / 6.0), float(2 / 6.0), 1));
  result = run("this - a");
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(0, 0, 0));
  EXPECT_THAT(values_of(result.images.at("b")), ElementsAre(9, 18, 57)) << "before a changes";
}

TEST_F(ExpressionStageTest, AliasesAndVariables) {
  add("T1w", {1, 2, 3});
  add("brain_mask", {0, 1, 1});
  const Json more = {{"on", "T1w"}, {"inputs", {{"t", "T1w"}, {"m", "brain_mask"}}}};
  const PipelineResult result = run("where(m, t * scale + shift, -1)", more, {{"scale", 2}, {"shift", 0.5}});
  EXPECT_THAT(values_of(result.images.at("T1w")), ElementsAre(-1, 4.5, 6.5));
}

TEST_F(ExpressionStageTest, NeighboursAndBoundaries) {
  add("a", {1, 2, 4});
  const auto row = [&](const std::string& expr, const Json& more) { return values_of(run(expr, more).images.at("a")); };
  EXPECT_THAT(row("this[-2,0,0]", Json::object()), ElementsAre(2, 1, 1));
  EXPECT_THAT(row("this[-2,0,0]", {{"boundary", "nearest"}}), ElementsAre(1, 1, 1));
  EXPECT_THAT(row("this[-2,0,0]", {{"boundary", "mirror"}}), ElementsAre(4, 2, 1));
  EXPECT_THAT(row("this[-2,0,0]", {{"boundary", "wrap"}}), ElementsAre(2, 4, 1));
  EXPECT_THAT(row("this[-2,0,0]", {{"boundary", "grid-wrap"}}), ElementsAre(2, 4, 1));
  EXPECT_THAT(row("this[2,0,0]", {{"boundary", "constant"}, {"fill", 9}}), ElementsAre(4, 9, 9));
  EXPECT_THAT(row("this[0,5,0]", {{"boundary", "grid-constant"}, {"fill", "min"}}), ElementsAre(1, 1, 1));
  EXPECT_THAT(row("max(this[-1,0,0], this, this[1,0,0])", Json::object()), ElementsAre(2, 4, 4));
  EXPECT_THAT(row("mean(this[1,0,0] - this)", Json::object()), ElementsAre(1, 1, 1));
}

/// Every orientation, anisotropic, turned and sheared: to what float32 holds of some 100 mm.
TEST_F(ExpressionStageTest, WorldCoordinatesWhateverTheDirection) {
  std::vector<Geometry> grids{
      oblique_grid({3, 4, 5}),
      Geometry({3, 4, 5}, {{{{{0.9, 0.2, -0.1}, {-0.3, 1.1, 0}, {0, 0.25, 2}}}}, {-12.5, 33, 7.25}})};
  for (const std::string& code : orientation_codes()) grids.push_back(oriented_grid(code, {3, 4, 5}));
  for (const Geometry& grid : grids) {
    VolumeInfo info;
    info.geometry = grid;
    images_.insert_or_assign("a", random_volume(*cpu_, info, 1));
    for (int axis = 0; axis < 3; ++axis) {
      const std::string name(1, char('x' + axis));
      const Json in_double = {{"precision", "double"}};
      const auto single = values_of(run(name).images.at("a")), exact = values_of(run(name, in_double).images.at("a"));
      const Index3 size = grid.size();
      std::size_t n = 0;
      for (std::int64_t k = 0; k < size[2]; ++k)
        for (std::int64_t j = 0; j < size[1]; ++j)
          for (std::int64_t i = 0; i < size[0]; ++i, ++n) {
            const Vec3 place = grid.index_to_world()({double(i), double(j), double(k)});
            ASSERT_NEAR(exact[n], place[std::size_t(axis)], 1e-12);
            ASSERT_NEAR(single[n], place[std::size_t(axis)], 3e-5);
          }
    }
    EXPECT_NEAR(values_of(run("spacing_y * size_y").images.at("a"))[0], grid.spacing()[1] * double(grid.size()[1]),
                1e-5);
  }
}

TEST_F(ExpressionStageTest, DegenerateImages) {
  const std::string zscore = "where(std(this) > 0, (this - mean(this)) / std(this), 0)";
  add("a", {5});
  EXPECT_THAT(values_of(run(zscore).images.at("a")), ElementsAre(0));
  add("a", {7, 7, 7});
  EXPECT_THAT(values_of(run(zscore).images.at("a")), ElementsAre(0, 0, 0));
  add("a", {kNan, 1, 3});
  const auto values = values_of(run("(this - mean(this)) / std(this)").images.at("a"));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_THAT(std::vector<double>(values.begin() + 1, values.end()), ElementsAre(-1, 1));
  EXPECT_THAT(values_of(run("where(isnan(this), 0, this)").images.at("a")), ElementsAre(0, 1, 3));
  const PipelineResult result = run("this * 100", {{"dtype", "uint8"}});
  EXPECT_THAT(values_of(result.images.at("a")), ElementsAre(0, 100, 255));
  EXPECT_EQ(result.record.warnings.size(), 2u) << "saturated, and NaN";
}

TEST_F(ExpressionStageTest, FaultsPointIntoTheTextAtTheirPlaceInTheSpec) {
  add("image", {1});
  EXPECT_THAT(
      faults({{"op", "expression"}, {"expr", "imgae * 2"}}),
      ElementsAre("/stages/0/expr: there is no image or variable 'imgae'; did you mean 'image'?; the item has 'image'\n"
                  "  imgae * 2\n"
                  "  ^~~~~"));
  const std::pair<Json, const char*> cases[] = {
      {{{"op", "expression"}}, "/stages/0: 'expr' is missing"},
      {{{"op", "expression"}, {"expr", 3}},
       "/stages/0/expr: 'expr' must be an expression, such as \"image * 2\", got 3"},
      {{{"op", "expression"}, {"expr", {{"text", 1}}}}, "/stages/0/expr: 'expr' must be an expression"},
      {{{"op", "expression"}, {"expr", ""}}, "/stages/0/expr: the expression is empty"},
      {{{"op", "expression"}, {"expr", "lucky"}}, "/stages/0/expr: the variable 'lucky' is random"},
      {{{"op", "expression"}, {"expr", "word"}}, "/stages/0/expr: the variable 'word' is a text"},
      {{{"op", "expression"}, {"expr", "m"}, {"inputs", {{"m", "mask"}}}},
       "/stages/0/inputs: there is no image 'mask'"},
      {{{"op", "expression"}, {"expr", "image"}, {"inputs", {{"m", 3}}}},
       "/stages/0/inputs: 'inputs' must be an object"},
      {{{"op", "expression"}, {"expr", "image"}, {"kind", "label"}}, "/stages/0/kind: 'kind' is that of a new image"},
      {{{"op", "expression"}, {"expr", "image"}, {"kind", "mask"}, {"output", "m"}},
       "/stages/0/kind: 'kind' must be one of"},
      {{{"op", "expression"}, {"expr", "image"}, {"dtype", "int64"}}, "/stages/0/dtype: 'dtype' must be one of"},
      {{{"op", "expression"}, {"expr", "image"}, {"boundary", "zero"}},
       "/stages/0/boundary: 'boundary' must be one of"},
      {{{"op", "expression"}, {"expr", "image"}, {"fill", "max"}},
       "/stages/0/fill: 'fill' must be a number or \"min\""},
      {{{"op", "expression"}, {"expr", "image"}, {"output", ""}}, "/stages/0/output: 'output' must be an image's name"},
      {{{"op", "expression"}, {"expr", "image"}, {"output", "m"}, {"fill", {{"uniform", {0, 1}}}}},
       "/stages/0: 'expression' makes the image 'm' and takes no random parameters"},
      {{{"op", "expression"}, {"expr", "image"}, {"output", "no name"}},
       "/stages/0: 'no name' cannot be an image's name"},
  };
  const Json variables = {{"lucky", {{"uniform", {0, 1}}}}, {"word", "w"}};
  for (const auto& [entry, message] : cases)
    EXPECT_THAT(faults(entry, variables), ElementsAre(testing::StartsWith(message))) << entry;
  std::string sum = "image", many = "0";
  for (int n = 0; n < 100; ++n) sum += " + " + std::to_string(n + 1);
  for (int n = 0; n < 70; ++n) many += " + mean(image + " + std::to_string(n + 1) + ")";
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", sum}}), ElementsAre(HasSubstr("95 instructions of one pass")));
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", many}}),
              ElementsAre(HasSubstr("it measures 70 different things, at most 64 are possible")));
}

TEST_F(ExpressionStageTest, FaultsOfTargets) {
  for (const char* name : {"a", "b", "c", "d", "e1", "f", "g", "h", "i1"}) add(name, {1});
  const std::string all = "a + b + c + d + e1 + f + g + h";
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", "a / b"}}),
              ElementsAre(HasSubstr("by the same: give \"output\" the image that gets the result")));
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", "a * 2"}}), ElementsAre(HasSubstr("give \"output\"")));
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", "this - a - b"}, {"on", {"a", "b"}}}),
              ElementsAre(HasSubstr("give \"output\"")));
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", "this * 2"}, {"output", "new"}}),
              ElementsAre(HasSubstr("'this' could be 'a', 'b'")));
  EXPECT_TRUE(faults({{"op", "expression"}, {"expr", "this - a"}}).empty());
  EXPECT_TRUE(faults({{"op", "expression"}, {"expr", "a / b"}, {"on", "a"}}).empty());
  EXPECT_TRUE(faults({{"op", "expression"}, {"expr", "a / b"}, {"output", "ratio"}}).empty());
  EXPECT_TRUE(faults({{"op", "expression"}, {"expr", all}, {"output", "sum"}}).empty()) << "8 images";
  EXPECT_TRUE(faults({{"op", "expression"}, {"expr", all}, {"on", "a"}}).empty());
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", all}, {"on", "i1"}}), ElementsAre(HasSubstr("it reads 9 images")));
  EXPECT_THAT(faults({{"op", "expression"}, {"expr", all + " + i1"}, {"output", "sum"}}),
              ElementsAre(HasSubstr("it reads 9 images, at most 8 are possible")));
}

TEST_F(ExpressionStageTest, OperandsMustShareTheGrid) {
  add("a", {2, 1, 1}, std::vector<float>{1, 2});
  add("b", {3, 1, 1}, std::vector<float>{1, 2, 3});
  try {
    run("a + b", {{"on", "a"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the image 'b' lies on another grid; bring them together with resample_to first"));
  }
}

}  // namespace
}  // namespace volpipe
