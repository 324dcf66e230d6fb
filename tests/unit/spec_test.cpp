// The spec: JSON with lines, parameters, variables, draws, and a pipeline with all its faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pipeline/pipeline.h"
#include "support/pipeline_runs.h"
#include "spec/json_text.h"
#include "spec/variables.h"

namespace volpipe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string with_stages(const std::string& stages) { return R"({"volpipe": 1, "stages": [)" + stages + "]}"; }

std::vector<std::string> faults_of(const std::string& text) {
  try {
    parse_pipeline(text, "spec.json");
  } catch (const SpecError& error) { return error.lines(); }
  return {};
}

TEST(JsonText, KnowsTheLineOfEveryValue) {
  Faults faults;
  const JsonText text =
      parse_json_text("{ // first\n \"a\": [1,\n  {\"b/c\": \"x\\\"}\"}],\n /* \n */ \"d\": 2}", faults);
  ASSERT_TRUE(faults.empty());
  EXPECT_EQ(text.line_of("/a"), 2);
  EXPECT_EQ(text.line_of("/a/1"), 3);
  EXPECT_EQ(text.line_of("/a/1/b~1c"), 3);
  EXPECT_EQ(text.line_of("/d"), 5);
  EXPECT_EQ(text.line_of("/a/1/nothing/below"), 3);
}

TEST(JsonText, NamesTheLineOfASyntaxErrorAndOfAKeyGivenTwice) {
  Faults syntax, twice;
  parse_json_text("{\n\"a\": 1,\n}", syntax);
  ASSERT_EQ(syntax.list().size(), 1u);
  EXPECT_EQ(syntax.list()[0].line, 3);
  EXPECT_TRUE(parse_json_text("{\"a\": 1,\n\"a\": 2}", twice).value.is_null());
  ASSERT_EQ(twice.list().size(), 1u);
  EXPECT_EQ(twice.list()[0].line, 2);
}

TEST(JsonText, CommentsEndWhereTheParserEndsThem) {
  for (const std::string& start :
       {std::string("// old line end\r"), std::string("// zero\0", 8), std::string("/*/ [ */"), std::string("/**/"),
        std::string("\xef\xbb\xbf"), std::string("//\r//\n")}) {
    Faults faults;
    const JsonText parsed = parse_json_text(start + "[1,\n{\"a\": 2}, // [\r 3]", faults);
    ASSERT_TRUE(faults.empty()) << faults.list()[0].message;
    EXPECT_EQ(parsed.value, Json::parse("[1, {\"a\": 2}, 3]"));
    EXPECT_EQ(parsed.line_of("/1/a"), parsed.line_of("") + 1) << start;
    EXPECT_EQ(parsed.lines.count("/2"), 1u);
  }
}

TEST(JsonText, BoundsTheDepthOfASpec) {
  Faults faults;
  const std::size_t depth = 100000;
  parse_json_text(std::string(depth, '[') + std::string(depth, ']'), faults);
  EXPECT_EQ(faults.list().size(), 1u);
}

TEST(DidYouMean, SuggestsTheNearestOnly) {
  EXPECT_EQ(did_you_mean("spacng", {"spacing", "size"}), "; did you mean 'spacing'?");
  EXPECT_EQ(did_you_mean("zzzzzz", {"spacing", "size"}), "");
}

TEST(Variables, KeepTheirTypeAloneAndBecomeTextInside) {
  Faults faults;
  const Json variables = {{"mm", 1.5}, {"who", "x"}};
  EXPECT_EQ(substitute_variables("${mm}", variables, "", faults), Json(1.5));
  EXPECT_EQ(substitute_variables({{"p", {"${who}_${mm}"}}}, variables, "", faults), Json({{"p", {"x_1.5"}}}));
  EXPECT_TRUE(faults.empty());
  substitute_variables({{"p", "${wo}"}}, variables, "/s", faults);
  ASSERT_EQ(faults.list().size(), 1u);
  EXPECT_EQ(faults.list()[0].pointer, "/s/p");
  EXPECT_THAT(faults.list()[0].message, HasSubstr("did you mean 'who'?"));
}

TEST(DrawStream, DependsOnItsKeyAlone) {
  const Json value = {
      {"sigma", {{"uniform", {1.0, 3.0}}}}, {"kind", {{"choice", {"a", "b", "c"}}}}, {"n", {{"normal", {0, 1}}}}};
  const auto draw = [&](std::uint64_t seed, const char* item, unsigned repeat, unsigned stage) {
    return DrawStream(seed, item, repeat, stage).draw(value);
  };
  const Json first = draw(1, "a", 0, 0);
  EXPECT_EQ(first, draw(1, "a", 0, 0));
  EXPECT_NE(first, draw(2, "a", 0, 0));
  EXPECT_NE(first, draw(1, "b", 0, 0));
  EXPECT_NE(first, draw(1, "a", 1, 0));
  EXPECT_NE(first, draw(1, "a", 0, 1));
  EXPECT_GE(first["sigma"].get<double>(), 1);
  EXPECT_LE(first["sigma"].get<double>(), 3);
}

TEST(DrawStream, BetweenIntegersIsAWholeNumber) {
  DrawStream stream(3, "item", 0, 0);
  const auto draws = [&](const char* distribution) {
    std::map<double, int> counts;
    for (int i = 0; i < 4000; ++i) ++counts[stream.draw(Json::parse(distribution)).get<double>()];
    return counts;
  };
  const auto whole = draws(R"({"uniform": [-1, 2]})");
  ASSERT_EQ(whole.size(), 4u);
  for (const double value : {-1.0, 0.0, 1.0, 2.0}) EXPECT_NEAR(whole.at(value), 1000, 150);
  EXPECT_EQ(draws(R"({"uniform": [5, 5]})").size(), 1u);
  EXPECT_GT(draws(R"({"uniform": [-1.0, 2]})").size(), 3900u);
  EXPECT_TRUE(stream.draw(Json::parse(R"({"uniform": [0, 3]})")).is_number_integer());
}

TEST(DrawStream, HasTheMomentsItNames) {
  DrawStream stream(7, "item", 0, 0);
  const int n = 200000;
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform(), z = stream.normal();
    sum += u;
    squares += u * u;
    normal_sum += z;
    normal_squares += z * z;
  }
  // Five standard errors of each mean.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  EXPECT_NEAR(normal_sum / n, 0, 5 / std::sqrt(double(n)));
  EXPECT_NEAR(normal_squares / n, 1, 5 * std::sqrt(2.0 / n));
}

TEST(Pipeline, ListsEveryFaultWithItsLine) {
  const std::string text =
      "{\"volpipe\": 1,\n\"stages\": [\n{\"op\": \"reorent\"},\n{\"op\": \"resample\", \"spcing\": 1, \"spacing\": "
      "-1},\n"
      "{\"op\": \"clip\", \"min\": \"a\", \"on\": \"imge\"}],\n\"outputs\": {\"image\": {\"path\": \"{stm}.xyz\", "
      "\"dtype\": \"flot32\"}}}";
  EXPECT_THAT(faults_of(text),
              testing::UnorderedElementsAre(
                  HasSubstr("spec.json:3: /stages/0/op: there is no stage 'reorent'; did you mean 'reorient'?"),
                  HasSubstr("spec.json:4: /stages/1/spcing: there is no 'spcing' here; did you mean 'spacing'?"),
                  HasSubstr("spec.json:4: /stages/1/spacing: 'spacing' must be a number above 0"),
                  HasSubstr("spec.json:5: /stages/2/min: 'min' must be a number"),
                  HasSubstr("spec.json:5: /stages/2/on: there is no image 'imge'; did you mean 'image'?"),
                  HasSubstr("spec.json:6: /outputs/image/path: there is no field {stm}; did you mean 'stem'?"),
                  HasSubstr("spec.json:6: /outputs/image/path: "),
                  HasSubstr("spec.json:6: /outputs/image/dtype: 'dtype' must be one of")));
}

TEST(Pipeline, ChecksTheEndsOfDistributions) {
  EXPECT_TRUE(faults_of(with_stages(R"({"op": "gaussian", "sigma": {"uniform": [0.5, 2]}})")).empty());
  EXPECT_THAT(faults_of(with_stages(R"({"op": "gaussian", "sigma": {"uniform": [-1, 2]}})")),
              ElementsAre(HasSubstr("'sigma' must be")));
  EXPECT_THAT(faults_of(with_stages(R"({"op": "gaussian", "sigma": {"uniform": [2, 1]}})")),
              ElementsAre(HasSubstr("low <= high")));
  EXPECT_THAT(faults_of(with_stages(R"({"op": "gaussian", "sigma": {"choice": []}})")),
              ElementsAre(HasSubstr("at least one value")));
}

TEST(Pipeline, SettingsReplaceDeclaredVariablesOnly) {
  const std::string text =
      R"({"volpipe": 1, "variables": {"mm": 1}, "stages": [{"op": "resample", "spacing": "${mm}"}]})";
  EXPECT_EQ(parse_pipeline(text, "s", {{"mm", Json(2)}}).spec["stages"][0]["spacing"], 2);
  EXPECT_THROW(parse_pipeline(text, "s", {{"m", Json(2)}}), SpecError);
}

TEST(Pipeline, RefusesWhatIsNotASpec) {
  for (const char* text : {"[]", "3", "{}", R"({"volpipe": 2, "stages": []})", R"({"volpipe": 1, "stages": {}})",
                           R"({"volpipe": 1, "stages": [3]})", R"({"volpipe": 1, "stages": [], "inputs": {}})",
                           R"({"volpipe": 1, "stages": [], "inputs": {"a": {}, "b": {}}})"})
    EXPECT_FALSE(faults_of(text).empty()) << text;
}

TEST(Registry, EveryStageIsDocumentedAndItsExampleRuns) {
  for (const StageDefinition& stage : stages()) {
    SCOPED_TRACE(stage.op);
    EXPECT_FALSE(stage.summary.empty());
    EXPECT_FALSE(stage.family.empty());
    EXPECT_EQ(stage.example.value("op", ""), stage.op);
    for (const ParameterInfo& info : stage.parameters) EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_THAT(faults_of(testing_support::example_spec(stage)), ElementsAre());
  }
}

TEST(Schema, NamesEveryStageAndParameter) {
  const std::string schema = spec_schema().dump();
  for (const StageDefinition& stage : stages()) {
    EXPECT_THAT(schema, HasSubstr("\"const\":\"" + stage.op + "\""));
    for (const ParameterInfo& info : stage.parameters) EXPECT_THAT(schema, HasSubstr("\"" + info.name + "\":{"));
  }
}

}  // namespace
}  // namespace volpipe
