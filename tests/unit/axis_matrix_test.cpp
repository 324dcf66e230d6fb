#include "stages/separable/axis_matrix.h"

#include <gtest/gtest.h>

#include <random>

#include "volume/error.h"

namespace volpipe {
namespace {

std::vector<double> dense(const AxisMatrix& matrix) {
  std::vector<double> entries(std::size_t(matrix.output_size() * matrix.input_size()));
  for (std::int64_t j = 0; j < matrix.output_size(); ++j)
    for (const auto& tap : matrix.row(j)) entries[std::size_t(j * matrix.input_size() + tap.index)] += tap.weight;
  return entries;
}

AxisMatrix random_band(std::int64_t input, std::int64_t output, int taps, bool periodic, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> weight(0.1, 1);
  std::vector<AxisMatrix::Row> rows;
  for (std::int64_t j = 0; j < output; ++j) {
    AxisMatrix::Row row{{-1, weight(engine)}};
    for (int t = 0; t < taps; ++t) {
      const std::int64_t i = j * input / output + t;
      if (periodic) row.push_back({i % input, weight(engine)});
      else if (i < input) row.push_back({i, weight(engine)});
    }
    rows.push_back(row);
  }
  return AxisMatrix::from_rows(input, rows, periodic);
}

TEST(AxisMatrix, IdentityCopies) {
  const AxisMatrix matrix = AxisMatrix::identity(5);
  EXPECT_TRUE(matrix.is_identity());
  EXPECT_TRUE(matrix.copies());
  EXPECT_FALSE(matrix.uses_fill());
  EXPECT_EQ(matrix.taps(), 1);
}

TEST(AxisMatrix, LatticeTakesVoxelsAndFill) {
  const AxisMatrix matrix = AxisMatrix::lattice(3, {-1, 2, 0});
  EXPECT_TRUE(matrix.copies());
  EXPECT_TRUE(matrix.uses_fill());
  EXPECT_FALSE(matrix.is_identity());
  EXPECT_EQ(dense(matrix), (std::vector<double>{0, 0, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(matrix.fill_weights()[0], 1);
}

TEST(AxisMatrix, RepeatedTapsAddUpAndWindowsStayInside) {
  const AxisMatrix matrix =
      AxisMatrix::from_rows(4, {{{3, 0.25}, {2, 0.5}, {3, 0.25}}, {{3, 1}}, {{0, 0.5}, {1, 0.25}, {1, -0.25}}});
  EXPECT_EQ(matrix.taps(), 2);
  for (const std::int64_t start : matrix.start()) EXPECT_LE(start + matrix.taps(), 4);
  EXPECT_EQ(dense(matrix), (std::vector<double>{0, 0, 0.5, 0.5, 0, 0, 0, 1, 0.5, 0, 0, 0}));
  EXPECT_FALSE(matrix.copies());
}

TEST(AxisMatrix, PeriodicWindowsCrossTheEnd) {
  const AxisMatrix matrix = AxisMatrix::from_rows(10, {{{9, 0.5}, {0, 0.25}, {1, 0.25}}}, true);
  EXPECT_EQ(matrix.taps(), 3);
  EXPECT_EQ(matrix.start()[0], 9);
  EXPECT_EQ(dense(matrix), (std::vector<double>{0.25, 0.25, 0, 0, 0, 0, 0, 0, 0, 0.5}));
}

TEST(AxisMatrix, RowsOfFillBorrowAWindow) {
  const AxisMatrix matrix = AxisMatrix::lattice(100, {-1, -1, 90, 91, -1});
  EXPECT_EQ(std::vector<std::int64_t>(matrix.start().begin(), matrix.start().end()),
            (std::vector<std::int64_t>{90, 90, 90, 91, 91}));
}

TEST(AxisMatrix, RefusesVoxelsOutside) { EXPECT_THROW(AxisMatrix::lattice(3, {3}), Error); }

TEST(AxisMatrix, ComposesAsAProduct) {
  for (const bool periodic : {false, true}) {
    const AxisMatrix first = random_band(17, 20, 3, periodic, 1), second = random_band(20, 9, 4, false, 2);
    const auto product = AxisMatrix::compose(second, first);
    ASSERT_TRUE(product);
    const auto a = dense(second), b = dense(first), c = dense(*product);
    for (std::size_t j = 0; j < 9; ++j) {
      double fill = second.fill_weights()[j];
      for (std::size_t k = 0; k < 20; ++k) fill += a[j * 20 + k] * first.fill_weights()[k];
      EXPECT_NEAR(product->fill_weights()[j], fill, 1e-14);
      for (std::size_t i = 0; i < 17; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < 20; ++k) sum += a[j * 20 + k] * b[k * 17 + i];
        EXPECT_NEAR(c[j * 17 + i], sum, 1e-14);
      }
    }
  }
}

TEST(AxisMatrix, CompositionKeepsCopies) {
  const AxisMatrix pad = AxisMatrix::lattice(4, {-1, 0, 1, 2, 3, -1}),
                   flip = AxisMatrix::lattice(6, {5, 4, 3, 2, 1, 0});
  const auto both = AxisMatrix::compose(flip, pad);
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->copies());
  EXPECT_EQ(both->row(1).front().index, 3);
  EXPECT_TRUE(AxisMatrix::compose(flip, flip)->is_identity());
}

TEST(AxisMatrix, ScatteredWindowsDoNotCompose) {
  std::vector<std::int64_t> scattered;
  for (int j = 0; j < 100; ++j) scattered.push_back(j * 37 % 100);
  const AxisMatrix smooth = AxisMatrix::from_rows(100, {{{49, 0.5}, {50, 0.5}}});
  EXPECT_FALSE(AxisMatrix::compose(smooth, AxisMatrix::lattice(100, scattered)));
}

}  // namespace
}  // namespace volpipe
