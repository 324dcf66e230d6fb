// Expressions as programs: what they compute, how few instructions and registers they take, and what does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/expression/compiler.h"
#include "support/pointwise_data.h"
#include "support/random_expressions.h"

namespace volpipe {
namespace {

using namespace testing_support;

ExpressionNames names() {
  ExpressionNames names;
  names.images = {{"a", "a"}, {"b", "b"}, {"c", "c"}};
  return names;
}

Geometry oblique() {
  return Geometry({5, 4, 3}, {{{{{0.9, 0.2, -0.1}, {-0.3, 1.1, 0}, {0, 0.25, 2}}}}, {-12.5, 33, 7.25}});
}

Program compiled(const std::string& text, const Geometry& geometry = Geometry({5, 4, 3}, {})) {
  const Expression expression = parse_expression(text, names());
  ExpressionSite site{.geometry = geometry};
  for (const std::string& image : expression.images()) site.inputs.push_back(image.empty() ? 0 : image[0] - 'a' + 1);
  const auto uniform = uniform_values(expression, expression.result(), geometry, [](int) { return 1.5; });
  Program program;
  append_value(program, expression, expression.result(), uniform, site);
  return program;
}

std::string listing(const std::string& text) {
  std::string lines = compiled(text).listing();
  std::replace(lines.begin(), lines.end(), '\n', ';');
  return lines;
}

TEST(ExpressionProgram, TakesFewInstructions) {
  EXPECT_EQ(listing("this"), "");
  EXPECT_EQ(listing("a"), "load 1;");
  EXPECT_EQ(listing("3"), "set 3;");
  EXPECT_EQ(listing("this * 2 + 1"), "multiply 2;add 1;");
  EXPECT_EQ(listing("1 - this"), "subtract_from 1;");
  EXPECT_EQ(listing("1 / this"), "divide_by 1;");
  EXPECT_EQ(listing("3 < this"), "greater 3;");
  EXPECT_EQ(listing("3 >= this"), "less_equal 3;");
  EXPECT_EQ(listing("this ^ 2"), "store r0;multiply r0;");
  EXPECT_EQ(listing("2 ^ this"), "store r0;set 2;power r0;");
  EXPECT_EQ(listing("clamp(this, 0, 1)"), "clamp 0 1;");
  EXPECT_EQ(listing("min(this, 5)"), "minimum 5;");
  EXPECT_EQ(listing("max(this, nan)"), "greatest ?;");
  EXPECT_EQ(listing("isnan(this)"), "store r0;not_equal r0;");
  EXPECT_EQ(listing("this - a"), "store r0;load 1;subtract_from r0;");
  EXPECT_EQ(listing("exp(this) - a"), "exp;store r0;load 1;subtract_from r0;");
  EXPECT_EQ(listing("a * exp(this)"), "exp;store r0;load 1;multiply r0;");
  EXPECT_EQ(listing("(this - mean(this)) / std(this)"), "subtract 1.5;divide 1.5;");
  EXPECT_EQ(listing("where(a > 0, this, 0)"), "store r0;load 1;greater 0;store r1;set r0;select r1 0;");
  EXPECT_EQ(listing("where(this > 0, this, 0)"), "store r0;greater 0;store r1;set r0;select r1 0;");
  EXPECT_EQ(listing("where(isnan(this), 0, this)"), "store r0;equal r0;store r1;set r0;select r1 0;");
  EXPECT_EQ(listing("where(a, 0, this)"), "store r0;load 1;logical_not;store r1;set r0;select r1 0;");
}

TEST(ExpressionProgram, KeepsWhatIsUsedAgain) {
  EXPECT_EQ(listing("this * this"), "store r0;multiply r0;");
  EXPECT_EQ(listing("a * a + a"), "load 1;store r0;multiply r0;add r0;");
  EXPECT_EQ(listing("(this + a) * (this + a)"), "store r0;load 1;add r0;store r0;multiply r0;");
  const std::string sum = listing("exp(a - b) / (1 + exp(a - b))");
  EXPECT_EQ(std::count(sum.begin(), sum.end(), ';'), 8) << sum;
  const std::string twice = listing("(a - this) * (a + this)");
  EXPECT_THAT(twice, testing::Not(testing::ContainsRegex("load 1.*load 1"))) << twice;
}

TEST(ExpressionProgram, TakesFewRegisters) {
  EXPECT_EQ(compiled("this + a * (b + c * (this - 1))").register_count(), 2);
  EXPECT_LE(compiled("(a * b + b * c) * (a * c - b * a) + (a + b) * (b + c)").register_count(), 4);
  std::string sum = "a * b";
  for (int n = 0; n < 20; ++n) sum += " + a * b[" + std::to_string(n + 1) + ",0,0]";
  EXPECT_LE(compiled(sum).register_count(), 4);
}

TEST(ExpressionProgram, PlainExpressionsStayOnThePlainMachine) {
  for (const char* text : {"where(a > 0, (this - mean(this)) / std(this), 0)", "max(0, min(this, 1))",
                           "where(this < 0, 0, a)", "(this - min(this)) / (max(this) - min(this))",
                           "this > 1 and a != 0 or not isfinite(b)", "min(this, a)", "where(a, b, c)"})
    EXPECT_FALSE(compiled(text).is_general()) << text;
  for (const char* text : {"sin(this)", "i", "this % 2", "a[1,0,0]"}) EXPECT_TRUE(compiled(text).is_general()) << text;
}

TEST(ExpressionProgram, WorldCoordinatesTakeOneTermOnAlignedGrids) {
  const Geometry aligned({4, 4, 4}, {{{{{0, 0, -2}, {1, 0, 0}, {0, 3, 0}}}}, {5, 6, 7}});
  EXPECT_EQ(compiled("x", aligned).listing(), "coordinate 2\nfma -2 5\n");
  EXPECT_EQ(compiled("y", aligned).listing(), "coordinate 0\nfma 1 6\n");
  EXPECT_EQ(compiled("x", oblique()).size(), 10u);
  EXPECT_EQ(compiled("z", oblique()).size(), 6u);
}

TEST(ExpressionProgram, WhatDoesNotFitSaysSo) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      check_fits_program(parse_expression(text, names()), Boundary::reflect);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "";
  };
  const auto sum_of = [](int terms, const auto& term) {
    std::string sum = "this";
    for (int n = 1; n <= terms; ++n) sum += " + " + term(n);
    return sum;
  };
  const auto steps = [](int n) { return std::to_string(n); };
  EXPECT_EQ(fault(sum_of(95, steps)), "");
  EXPECT_EQ(fault(sum_of(96, steps)),
            "the expression needs more than the 95 instructions of one pass: make it of two stages, the first with an "
            "\"output\" of its own");
  EXPECT_THAT(fault("mean(" + sum_of(96, steps) + ")"), testing::HasSubstr("95 instructions"));
  const auto neighbours = [](int n) { return "a[" + std::to_string(n) + ",0,0]"; };
  EXPECT_EQ(fault("max(" + sum_of(30, neighbours) + ")"), "");
  EXPECT_THAT(fault(sum_of(33, [](int n) { return "(" + std::to_string(n) + " < a[" + std::to_string(n) + ",0,0])"; })),
              testing::HasSubstr("instructions"));
  EXPECT_EQ(fault(sum_of(31, neighbours)), "");
  EXPECT_THAT(fault(sum_of(33, neighbours)), testing::HasSubstr("instructions"));
  const auto tower = [](int levels) {
    std::string text = "this";
    for (int n = 1; n <= levels; ++n) text = "(" + text + ") ^ (a + " + std::to_string(n) + ")";
    return text;
  };
  EXPECT_EQ(fault(tower(15)), "");
  EXPECT_THAT(fault(tower(20)), testing::HasSubstr("more than the 16 registers of one pass"));
}

/// Programs of random expressions against evaluate(), on a grid of 60 voxels in which all images have special values.
template <class T>
class RandomExpressions {
 public:
  RandomExpressions() {
    for (std::uint64_t n = 0; n < 4; ++n) rows_.push_back(random_row(data_type_of<T>(), 60, 100 + n, true));
    for (std::int64_t voxel = 0; voxel < 60; ++voxel) voxels_.push_back(make_voxel(voxel));
  }

  void check(int count, TreeWords words, double tolerance_ulps) {
    int done = 0, ambiguous = 0, values = 0;
    for (int n = 0; n < count; ++n) {
      TreeMaker maker(std::uint64_t(n), words);
      const ExpressionTree tree = maker.tree(1 + n % 6);
      const std::string text = maker.text(tree);
      Program program;
      program.add(Op::negate);  // the accumulator is not what the first input is
      try {
        append(program, text);
      } catch (const ExpressionError& error) { FAIL() << error.what(); } catch (const Error&) {
        continue;
      }
      ++done;
      const std::vector<T> result = run(program);
      for (std::size_t v = 0; v < result.size(); ++v, ++values) {
        ExpressionVoxel<T> voxel = voxels_[v];
        const T wanted = evaluate<T>(tree, voxel);
        if (voxel.ambiguous) ++ambiguous;
        else
          ASSERT_LE(ulps(result[v], wanted), tolerance_ulps)
              << text << "\nat " << v << ": got " << result[v] << ", expected " << wanted << "\n"
              << program.listing();
      }
    }
    EXPECT_GT(done, count * 0.95);
    EXPECT_LT(ambiguous, values * 0.02);
  }

 private:
  ExpressionVoxel<T> make_voxel(std::int64_t number) const {
    const Index3 size = geometry_.size();
    const Index3 at{number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
    ExpressionVoxel<T> voxel;
    voxel.around.resize(rows_.size());
    for (std::size_t image = 0; image < rows_.size(); ++image) {
      const T value = rows_[image].template as<T>()[number];
      voxel.images.push_back(image == 0 ? -value : value);
      for (std::int64_t z = -1; z <= 1; ++z)
        for (std::int64_t y = -1; y <= 1; ++y)
          for (std::int64_t x = -1; x <= 1; ++x) {
            const std::int64_t column = fold_index(at[0] + x, size[0], Boundary::reflect),
                               row = fold_index(at[1] + y, size[1], Boundary::reflect),
                               slice = fold_index(at[2] + z, size[2], Boundary::reflect);
            voxel.around[image][std::size_t(z + 1)][std::size_t(y + 1)][std::size_t(x + 1)] =
                rows_[image].template as<T>()[(slice * size[1] + row) * size[0] + column];
          }
      voxel.around[image][1][1][1] = voxel.images[image];
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
      voxel.index[axis] = double(at[axis]);
      voxel.spacing[axis] = geometry_.spacing()[axis];
      voxel.size[axis] = double(size[axis]);
      for (std::size_t column = 0; column < 3; ++column)
        voxel.to_world[axis][column] = geometry_.index_to_world().linear[int(axis)][column];
      voxel.to_world[axis][3] = geometry_.index_to_world().offset[axis];
    }
    return voxel;
  }

  void append(Program& program, const std::string& text) const {
    const Expression expression = parse_expression(text, names());
    ExpressionSite site{.geometry = geometry_};
    for (const std::string& image : expression.images()) site.inputs.push_back(image.empty() ? 0 : image[0] - 'a' + 1);
    const auto uniform = uniform_values(expression, expression.result(), geometry_, [](int) { return 0.0; });
    append_value(program, expression, expression.result(), uniform, site);
  }

  std::vector<T> run(const Program& program) {
    std::vector<ProgramInput> inputs;
    for (const Row& row : rows_) inputs.push_back(row.input());
    std::vector<T> result(60);
    run_program(*cpu_, program, inputs, result.data(), data_type_of<T>(), 60,
                std::is_same_v<T, float> ? Precision::single : Precision::double_, {geometry_.size(), 0});
    return result;
  }

  const Geometry geometry_ = oblique();
  std::unique_ptr<DeviceContext> cpu_ = make_context(Device::cpu(), 1);
  std::vector<Row> rows_;
  std::vector<ExpressionVoxel<T>> voxels_;
};

// The same functions of the C library on the same numbers; 4 ulp for libraries with vector versions of them.
TEST(ExpressionProgram, RandomExpressionsInDouble) { RandomExpressions<double>().check(15000, {}, 4); }

TEST(ExpressionProgram, RandomExpressionsInSingleAreExactToTheBit) {
  RandomExpressions<float>().check(10000, {.transcendental = false}, 0);
}

TEST(ExpressionProgram, RandomExpressionsOnThePlainMachineWithRepeatedParts) {
  RandomExpressions<float>().check(10000, {.transcendental = false, .general = false, .repeats = true}, 0);
}

TEST(ExpressionProgram, RandomExpressionsWithRepeatedParts) {
  RandomExpressions<double>().check(5000, {.repeats = true}, 4);
}

}  // namespace
}  // namespace volpipe
