// Gathers on the CPU against every voxel computed in double, from the weights of sample_axis and from formulas of their
// own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "stages/gather/compose.h"
#include "stages/gather/executors.h"
#include "support/separable_reference.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<Interpolation> kInterpolations{
    Interpolation::nearest,  Interpolation::linear,   Interpolation::cubic,
    Interpolation::bspline2, Interpolation::bspline3, Interpolation::bspline4,
    Interpolation::bspline5, Interpolation::lanczos3, Interpolation::label_linear};
const std::vector<Boundary> kBoundaries{Boundary::constant, Boundary::grid_constant, Boundary::nearest,
                                        Boundary::mirror,   Boundary::reflect,       Boundary::wrap,
                                        Boundary::grid_wrap};

std::string name_of(Interpolation interpolation, Boundary boundary) {
  return std::string(EnumNames<Interpolation>::names[std::size_t(interpolation)]) + " " +
         EnumNames<Boundary>::names[std::size_t(boundary)];
}

bool moves_bits(Interpolation interpolation) {
  return interpolation == Interpolation::nearest || interpolation == Interpolation::label_linear;
}

/// A map onto a grid of `size`; float32 unless the interpolation moves bits.
GatherMap map_onto(const VolumeInfo& input, const Index3& size, PointMap points, Interpolation interpolation,
                   Boundary boundary, double fill = 7) {
  GatherMap map;
  map.output = input;
  map.output.geometry = Geometry::from_spacing(size, {1, 1, 1});
  if (!moves_bits(interpolation)) map.output.dtype = DataType::float32;
  map.before = identity_map(input);
  map.points = std::move(points);
  map.interpolation = interpolation;
  map.boundary = boundary;
  map.fill.value = fill;
  map.window_end = size;
  return map;
}

Volume run(const Volume& input, const GatherMap& map, int threads = 2) {
  const auto context = make_context(Device::cpu(), threads);
  return apply_gather(*context, input, map, map.fill.value, map.before.fill.value,
                      [](const std::string& name) -> const Volume& { throw std::runtime_error("no image " + name); });
}

/// A turn about an oblique axis, stretched so that the target reaches well beyond the source on all sides.
Affine oblique(const Index3& source, const Index3& target, double reach = 1.7) {
  const double a = 0.4, b = 0.7, c = -0.3;
  const Matrix3 x{{{{1, 0, 0}, {0, std::cos(a), -std::sin(a)}, {0, std::sin(a), std::cos(a)}}}};
  const Matrix3 y{{{{std::cos(b), 0, std::sin(b)}, {0, 1, 0}, {-std::sin(b), 0, std::cos(b)}}}};
  const Matrix3 z{{{{std::cos(c), -std::sin(c), 0}, {std::sin(c), std::cos(c), 0}, {0, 0, 1}}}};
  Matrix3 m = x * y * z;
  Vec3 middle, centre;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) m[int(i)][j] *= reach * (double(source[i]) + 0.37) / double(target[j]);
    middle[i] = double(source[i] - 1) / 2 + 0.013;
    centre[i] = double(target[i] - 1) / 2;
  }
  return {m, middle - m * centre};
}

using Row = AxisMatrix::Row;

/// Weights of an axis at a coordinate; a fill tap for what is not finite.
Row row_at(std::int64_t size, double c, Interpolation interpolation, Boundary boundary) {
  if (!std::isfinite(c)) return {{-1, 1.0}};
  const auto used = interpolation == Interpolation::label_linear ? Interpolation::linear : interpolation;
  const AxisMatrix matrix = sample_axis(size, std::vector{c}, used, boundary, 1e-17);
  Row row = matrix.row(0);
  if (matrix.fill_weights()[0] != 0) row.push_back({-1, matrix.fill_weights()[0]});
  return row;
}

/// The value at p of one component, in double.
double value_at(const std::vector<double>& voxels, const Index3& n, std::int64_t component, const Vec3& p,
                Interpolation interpolation, Boundary boundary, double fill) {
  Row rows[3];
  for (std::size_t a = 0; a < 3; ++a) rows[a] = row_at(n[a], p[a], interpolation, boundary);
  std::map<double, double> weights;
  double sum = 0;
  for (const auto& z : rows[2])
    for (const auto& y : rows[1])
      for (const auto& x : rows[0]) {
        const bool outside = x.index < 0 || y.index < 0 || z.index < 0;
        const double value =
            outside ? fill : voxels[std::size_t(((component * n[2] + z.index) * n[1] + y.index) * n[0] + x.index)];
        const double weight = x.weight * y.weight * z.weight;
        sum += weight * value;
        if (interpolation == Interpolation::label_linear) weights[value] += weight;
      }
  if (interpolation != Interpolation::label_linear) return sum;
  std::pair<double, double> most{-1, 0}, next{-1, 0};
  for (const auto& [value, weight] : weights) {
    if (weight > most.first) {
      next = most;
      most = {weight, value};
    } else if (weight > next.first) {
      next = {weight, value};
    }
  }
  return most.first - next.first < 1e-5 ? kNaN : most.second;  // a tie: not decided here
}

template <class Points>
std::vector<double> reference(const Volume& input, const GatherMap& map, const Points& points) {
  const std::vector<double> voxels = values_of(input);
  const Index3& m = map.output.geometry.size();
  std::vector<double> result;
  for (std::int64_t c = 0; c < input.info().components; ++c)
    for (std::int64_t k = 0; k < m[2]; ++k)
      for (std::int64_t j = 0; j < m[1]; ++j)
        for (std::int64_t i = 0; i < m[0]; ++i)
          result.push_back(value_at(voxels, input.geometry().size(), c, points(Vec3{double(i), double(j), double(k)}),
                                    map.interpolation, map.boundary, map.fill.value));
  return result;
}

/// As relative_difference, but where the reference is NaN anything goes.
double difference(const std::vector<double>& got, const std::vector<double>& expected) {
  double largest = 0, magnitude = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) continue;
    magnitude = std::max(magnitude, std::abs(expected[i]));
    const double apart = std::abs(got[i] - expected[i]);
    largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(largest, apart);
  }
  return largest / magnitude;
}

const std::vector<Index3> kSizes{{17, 3, 2}, {1, 17, 2}, {2, 1, 3}, {3, 2, 17}, {1, 1, 1}, {17, 1, 1}, {17, 17, 17}};

TEST(Gather, EveryInterpolationBoundaryAndSize) {
  const Index3 target{19, 5, 3};
  for (const Index3& size : kSizes)
    for (const Interpolation interpolation : kInterpolations) {
      const bool labels = interpolation == Interpolation::label_linear;
      const VolumeInfo info = info_of(size, labels ? DataType::int32 : DataType::float32);
      std::mt19937 engine(3);
      const Volume input =
          labels ? volume_from(info, [&](std::int64_t) { return int(engine() % 3) + 20000000; }) : random_volume(info);
      for (const Boundary boundary : kBoundaries) {
        const Affine points = oblique(size, target);
        const GatherMap map = map_onto(info, target, PointMap(points), interpolation, boundary);
        const double apart = difference(values_of(run(input, map)), reference(input, map, points));
        EXPECT_LE(apart, moves_bits(interpolation) ? 0 : 3e-6)
            << name_of(interpolation, boundary) << " on " << size_in_words(size);
      }
    }
}

TEST(Gather, DoublePrecision) {
  const Index3 size{17, 12, 9}, target{23, 7, 5};
  for (const Interpolation interpolation : kInterpolations) {
    if (moves_bits(interpolation)) continue;
    for (const DataType type : {DataType::float64, DataType::int32})
      for (const Boundary boundary : kBoundaries) {
        const Volume input = random_volume(info_of(size, type));
        const Affine points = oblique(size, target);
        GatherMap map = map_onto(input.info(), target, PointMap(points), interpolation, boundary);
        map.output.dtype = DataType::float64;
        EXPECT_LE(difference(values_of(run(input, map)), reference(input, map, points)), 1e-12)
            << name_of(interpolation, boundary);
      }
  }
}

TEST(Gather, EveryPixelTypeAndSeveralComponents) {
  const Index3 size{19, 12, 9}, target{37, 4, 3};
  for (const DataType type : all_types())
    for (const Interpolation interpolation : kInterpolations) {
      const Volume input = random_volume(info_of(size, type, 3));
      const Affine points = oblique(size, target, 0.8);
      const GatherMap map = map_onto(input.info(), target, PointMap(points), interpolation, Boundary::mirror);
      EXPECT_LE(difference(values_of(run(input, map)), reference(input, map, points)),
                moves_bits(interpolation) ? 0 : 3e-6)
          << name_of(interpolation, map.boundary) << " of " << to_string(type);
    }
}

TEST(Gather, RowsAlongEachSourceAxis) {
  const Index3 size{17, 13, 11}, target{16, 5, 4};
  const Volume input = random_volume(info_of(size));
  for (int axis = 0; axis < 3; ++axis)
    for (const double step : {1.0, -1.0, 0.45}) {
      Affine points;
      for (int row = 0; row < 3; ++row)
        for (int column = 0; column < 3; ++column) points.linear[row][std::size_t(column)] = 0;
      for (int column = 0; column < 3; ++column)
        points.linear[(axis + column) % 3][std::size_t(column)] = column == 0 ? step : 0.9;
      for (std::size_t row = 0; row < 3; ++row) points.offset[row] = step < 0 ? 9.25 : -0.75;
      for (const Interpolation interpolation : kInterpolations)
        for (const Boundary boundary : {Boundary::constant, Boundary::reflect, Boundary::grid_constant}) {
          if (interpolation == Interpolation::label_linear) continue;
          const GatherMap map = map_onto(input.info(), target, PointMap(points), interpolation, boundary);
          EXPECT_LE(difference(values_of(run(input, map)), reference(input, map, points)), 3e-6)
              << name_of(interpolation, boundary) << " along " << axis << " by " << step;
        }
    }
}

std::vector<std::byte> bytes_of(const Volume& volume) {
  const auto* data = volume.data_as<std::byte>();
  return {data, data + volume.info().bytes()};
}

TEST(Gather, LatticesAreReadThroughAView) {
  const auto context = make_context(Device::cpu(), 2);
  const Index3 target{29, 7, 6};
  for (const char* entry :
       {R"({"op":"crop","start":[3,1,2],"size":[12,9,6]})", R"({"op":"flip","axes":"x"})",
        R"({"op":"flip","axes":"xyz"})", R"({"op":"permute","order":"yzx"})", R"({"op":"permute","order":"zyx"})",
        R"({"op":"pad","before":[3,2,1],"after":[1,0,4],"fill":-50})",
        R"({"op":"pad","before":[3,2,1],"after":[1,0,4],"boundary":"reflect"})",
        R"({"op":"pad","before":[0,30,9],"after":[5,0,4],"boundary":"nearest"})",
        R"({"op":"pad","before":[40,2,1],"after":[1,0,40],"boundary":"grid-wrap"})"})
    for (const Interpolation interpolation : kInterpolations)
      for (const Boundary boundary :
           {Boundary::constant, Boundary::grid_constant, Boundary::mirror, Boundary::nearest}) {
        for (const DataType type : {DataType::int16, DataType::float32}) {
          const Volume input = random_volume(info_of({19, 12, 9}, type));
          const GridMap lattice = map_of(entry, input.info());
          const Volume between = apply_map(*context, input, lattice, fill_of(lattice));
          const PointMap points(oblique(between.geometry().size(), target, 1.1));
          const GatherMap after = map_onto(between.info(), target, points, interpolation, boundary);
          GatherMap through = after;
          through.before = lattice;
          const Volume expected = run(between, after), got = run(input, through);
          // A prefilter that joins the lattice is another sum.
          if (is_bspline(interpolation)) {
            EXPECT_LE(relative_difference(values_of(got), values_of(expected)), 6e-6)
                << entry << name_of(interpolation, boundary);
          } else {
            EXPECT_EQ(bytes_of(got), bytes_of(expected)) << entry << name_of(interpolation, boundary);
          }
        }
      }
}

TEST(Gather, SmoothingRunsBefore) {
  const auto context = make_context(Device::cpu(), 2);
  const Volume input = random_volume(info_of({19, 12, 9}, DataType::uint8));
  const GridMap smooth = map_of(R"({"op":"gaussian","sigma":1})", input.info());
  const Volume between = apply_map(*context, input, smooth, 0);
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3}) {
    const PointMap points(oblique({19, 12, 9}, {9, 7, 6}));
    const GatherMap after = map_onto(between.info(), {9, 7, 6}, points, interpolation, Boundary::mirror);
    GatherMap through = after;
    through.before = smooth;
    EXPECT_EQ(bytes_of(run(input, through)), bytes_of(run(between, after)));
  }
}

TEST(Gather, TheWindowIsFilledAround) {
  const Index3 target{70, 9, 10};
  const Volume input = random_volume(info_of({19, 12, 9}, DataType::int16, 2));
  const PointMap points(oblique({19, 12, 9}, target, 0.7));
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3}) {
    GatherMap map = map_onto(input.info(), target, points, interpolation, Boundary::constant);
    const std::vector<double> whole = values_of(run(input, map));
    map.window_begin = {5, 2, 1};
    map.window_end = {67, 8, 1 + 6};
    map.window_fill = -3;
    const std::vector<double> got = values_of(run(input, map));
    for (std::size_t at = 0; at < got.size(); ++at) {
      const std::size_t i = at % 70, j = at / 70 % 9, k = at / 630 % 10;
      const bool inside = i >= 5 && i < 67 && j >= 2 && j < 8 && k >= 1 && k < 7;
      ASSERT_EQ(got[at], inside ? whole[at] : -3);
    }
    map.window_end = map.window_begin;
    for (const double value : values_of(run(input, map))) ASSERT_EQ(value, -3);
  }
}

TEST(Gather, IdentityKeepsEveryBit) {
  std::mt19937_64 engine(5);
  for (const DataType type : all_types()) {
    const VolumeInfo info = info_of({33, 5, 4}, type);
    Volume input = random_volume(info);
    if (!is_floating(type))
      for (std::size_t b = 0; b < info.bytes(); ++b) input.data_as<std::uint8_t>()[b] = std::uint8_t(engine());
    for (const Interpolation interpolation : kInterpolations) {
      if (is_bspline(interpolation) || (!moves_bits(interpolation) && !is_floating(type))) continue;
      GatherMap map = map_onto(info, {33, 5, 4}, PointMap(), interpolation, Boundary::constant);
      map.output.dtype = type;
      EXPECT_EQ(bytes_of(run(input, map)), bytes_of(input)) << name_of(interpolation, map.boundary) << to_string(type);
    }
  }
}

TEST(Gather, AVoxelWithoutWeightDoesNotCount) {
  Volume input = random_volume(info_of({33, 9, 9}));
  input.data_as<float>()[(4 * 9 + 4) * 33 + 15] = float(kNaN);
  for (const Interpolation interpolation : {Interpolation::linear, Interpolation::cubic, Interpolation::lanczos3}) {
    const GatherMap map = map_onto(input.info(), {33, 9, 9}, PointMap(), interpolation, Boundary::mirror);
    const std::vector<double> values = values_of(run(input, map));
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }), 1);
  }
}

TEST(Gather, TheSameForAnyNumberOfThreads) {
  const Volume input = random_volume(info_of({40, 33, 21}));
  for (const Interpolation interpolation : kInterpolations) {
    const PointMap points(oblique({40, 33, 21}, {50, 31, 29}, 1.1));
    const GatherMap map = map_onto(input.info(), {50, 31, 29}, points, interpolation, Boundary::reflect);
    const auto expected = bytes_of(run(input, map, 1));
    EXPECT_EQ(bytes_of(run(input, map, 2)), expected);
    EXPECT_EQ(bytes_of(run(input, map, 7)), expected);
  }
}

TEST(Gather, ConstantVolumesStayConstant) {
  const Volume input = volume_from(info_of({17, 9, 1}), [](std::int64_t) { return 7; });
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries) {
      const PointMap points(oblique({17, 9, 1}, {40, 9, 7}, 3));
      const GatherMap map = map_onto(input.info(), {40, 9, 7}, points, interpolation, boundary, 7);
      for (const double value : values_of(run(input, map)))
        ASSERT_NEAR(value, 7, 1e-5) << name_of(interpolation, boundary);
    }
}

TEST(Gather, RampsAreReproduced) {
  const Index3 size{31, 21, 19};
  const Volume input = volume_from(info_of(size, DataType::float64), [](std::int64_t i) {
    return double(i % 31) + 3 * double(i / 31 % 21) - 2 * double(i / (31 * 21));
  });
  for (const Interpolation interpolation :
       {Interpolation::linear, Interpolation::cubic, Interpolation::bspline2, Interpolation::bspline3,
        Interpolation::bspline4, Interpolation::bspline5}) {
    const Affine points = oblique(size, {16, 15, 9}, 0.1);
    GatherMap map = map_onto(input.info(), {16, 15, 9}, PointMap(points), interpolation, Boundary::mirror);
    map.output.dtype = DataType::float64;
    const std::vector<double> got = values_of(run(input, map));
    // Splines feel the fold of the mirrored ramp, ever less away from it.
    const double tolerance = is_bspline(interpolation) ? 1e-3 : 1e-12;
    for (std::size_t at = 0; at < got.size(); ++at) {
      const Vec3 p = points({double(at % 16), double(at / 16 % 15), double(at / 240)});
      ASSERT_NEAR(got[at], p[0] + 3 * p[1] - 2 * p[2], tolerance) << name_of(interpolation, map.boundary);
    }
  }
}

TEST(Gather, EdgesForgiveRoundingAndNothingElse) {
  const Volume input = volume_from(info_of({4, 4, 4}), [](std::int64_t i) { return i + 1; });
  for (const Interpolation interpolation : kInterpolations)
    for (const double beyond : {1e-10, 1e-6})
      for (const double side : {-1.0, 1.0}) {
        const double c = side < 0 ? -beyond : 3 + beyond;
        const PointMap points(Affine{Matrix3{}, {c, c, c}});
        const GatherMap map = map_onto(input.info(), {9, 1, 1}, points, interpolation, Boundary::constant, -9);
        const double expected = beyond > 1e-9 ? -9 : side < 0 ? 1 : 64;
        for (const double value : values_of(run(input, map)))
          EXPECT_NEAR(value, expected, 4e-5) << name_of(interpolation, map.boundary);
      }
}

TEST(Gather, CoordinatesThatAreNoPlace) {
  const Volume input = random_volume(info_of({5, 4, 3}));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      for (const double c : {kNaN, infinity, -infinity})
        for (std::size_t axis = 0; axis < 3; ++axis) {
          Affine points;
          points.offset[axis] = c;
          const GatherMap map = map_onto(input.info(), {12, 2, 2}, PointMap(points), interpolation, boundary, -4);
          for (const double value : values_of(run(input, map)))
            ASSERT_EQ(value, -4) << name_of(interpolation, boundary);
        }
}

TEST(Gather, FarCoordinatesStayDefined) {
  const Volume input = volume_from(info_of({5, 4, 1}), [](std::int64_t) { return 7; });
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      for (const double c : {1e18, -1e18, 4e9, -3e15, 1e300})
        for (const double slope : {0.0, 1.0, -1e17}) {
          const Affine points{{{{{slope, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}, {c, -c, c}};
          const GatherMap map = map_onto(input.info(), {12, 2, 2}, PointMap(points), interpolation, boundary, 7);
          for (const double value : values_of(run(input, map)))
            ASSERT_NEAR(value, 7, 1e-5) << name_of(interpolation, boundary) << " at " << c;
        }
}

TEST(Gather, TheHeaviestLabelWins) {
  const auto label_at = [](const std::vector<int>& labels, const Index3& size, const Vec3& p) {
    const Volume input =
        volume_from(info_of(size, DataType::uint16), [&](std::int64_t i) { return labels[std::size_t(i)]; });
    const GatherMap map = map_onto(input.info(), {9, 1, 1}, PointMap(Affine{Matrix3{}, p}), Interpolation::label_linear,
                                   Boundary::nearest);
    return values_of(run(input, map)).front();
  };
  EXPECT_EQ(label_at({5, 9}, {2, 1, 1}, {0.49, 0, 0}), 5);
  EXPECT_EQ(label_at({5, 9}, {2, 1, 1}, {0.51, 0, 0}), 9);
  EXPECT_EQ(label_at({5, 9}, {2, 1, 1}, {0.5, 0, 0}), 9) << "a tie is the nearest voxel's";
  EXPECT_EQ(label_at({5, 9}, {2, 1, 1}, {0.5 - 1e-10, 0, 0}), 9);
  EXPECT_EQ(label_at({1, 1, 2, 2, 3, 3, 4, 9}, {2, 2, 2}, {0.5, 0.5, 0.5}), 1) << "or the first in memory";
  EXPECT_EQ(label_at({2, 1, 1, 3, 3, 2, 9, 4}, {2, 2, 2}, {0.5, 0.5, 0.5}), 2);
  EXPECT_EQ(label_at({1, 2, 2, 2}, {2, 2, 1}, {0.3, 0.3, 0}), 2) << "three of 0.51 beat one of 0.49";
}

TEST(Gather, LabelsAreNeverMade) {
  std::mt19937 engine(7);
  const std::vector<double> set{3, 70000, 16777217, 16777219};
  const Volume input =
      volume_from(info_of({30, 21, 9}, DataType::uint32), [&](std::int64_t) { return set[engine() % 4]; });
  for (const Boundary boundary : kBoundaries) {
    const PointMap points(oblique({30, 21, 9}, {60, 20, 9}));
    const GatherMap map = map_onto(input.info(), {60, 20, 9}, points, Interpolation::label_linear, boundary, 3);
    for (const double value : values_of(run(input, map)))
      ASSERT_TRUE(std::find(set.begin(), set.end(), value) != set.end()) << value;
  }
}

// Vector fields.

/// A smooth field of `size` points with vectors of about `size_of_vectors`.
std::shared_ptr<const Volume> field_of(const Index3& size, double size_of_vectors, DataType type = DataType::float64) {
  const std::int64_t points = size[0] * size[1] * size[2];
  return std::make_shared<Volume>(volume_from(info_of(size, type, 3), [&](std::int64_t i) {
    const double component = double(i / points), x = double(i % size[0]), y = double(i / size[0] % size[1]),
                 z = double(i % points / (size[0] * size[1]));
    return size_of_vectors * std::sin(0.6 * x + 0.9 * component) * std::cos(0.5 * y - 0.3 * z + component);
  }));
}

double bspline3(double x) {
  x = std::abs(x);
  return x >= 2 ? 0 : x < 1 ? 2.0 / 3 - x * x + x * x * x / 2 : (2 - x) * (2 - x) * (2 - x) / 6;
}

Vec3 vector_at(const FieldStep& step, const Vec3& p) {
  const Vec3 g = step.to_grid(p);
  const Index3& n = step.field.size;
  const bool spline = step.field.basis == VectorField::Basis::bspline3;
  for (std::size_t a = 0; a < 3; ++a) {
    const double low = spline ? 1 : -0.5, high = spline ? double(n[a] - 2) : double(n[a]) - 0.5;
    if (g[a] < low - 1e-9 || g[a] > high + 1e-9) return {};
  }
  const std::vector<double> vectors = values_of(*step.field.vectors);
  Vec3 v{};
  for (std::int64_t z = 0; z < n[2]; ++z)
    for (std::int64_t y = 0; y < n[1]; ++y)
      for (std::int64_t x = 0; x < n[0]; ++x) {
        double weight = 1;
        const std::int64_t at[3] = {x, y, z};
        for (std::size_t a = 0; a < 3; ++a) {
          const double clamped = std::clamp(g[a], 0.0, double(n[a] - 1));
          weight *= spline ? bspline3(g[a] - double(at[a])) : std::max(0.0, 1 - std::abs(clamped - double(at[a])));
        }
        for (std::size_t c = 0; c < 3; ++c)
          v[c] += weight * vectors[std::size_t(((std::int64_t(c) * n[2] + z) * n[1] + y) * n[0] + x)];
      }
  return step.linear * v;
}

Vec3 through(const PointMap& map, Vec3 p) {
  for (const auto& step : map.steps()) {
    if (const auto* affine = std::get_if<Affine>(&step)) {
      p = (*affine)(p);
      continue;
    }
    const auto& field = std::get<FieldStep>(step);
    switch (field.use) {
      case FieldStep::Use::add:
        p = p + vector_at(field, p);
        break;
      case FieldStep::Use::replace:
        p = vector_at(field, p) + field.offset;
        break;
      case FieldStep::Use::undo: {
        Vec3 q = p;
        for (int i = 0; i < FieldStep::kUndoIterations; ++i) q = p - vector_at(field, q);
        p = q;
      }
    }
  }
  return p;
}

FieldStep step_of(const Index3& size, VectorField::Basis basis, double size_of_vectors, const Affine& to_grid,
                  DataType type = DataType::float64) {
  FieldStep step;
  step.field = {.basis = basis, .size = size, .vectors = field_of(size, size_of_vectors, type)};
  step.to_grid = to_grid;
  step.linear = {{{{0.9, 0.1, 0}, {-0.2, 1.1, 0}, {0, 0.05, -0.8}}}};
  return step;
}

struct FieldCase {
  const char* name;
  PointMap map;
};

std::vector<FieldCase> field_cases(DataType type) {
  using enum VectorField::Basis;
  const Affine parallel{{{{{0.2, 0, 0}, {0, 0.3, 0}, {0, 0, 0.5}}}}, {1.1, 1.2, 1.3}};
  const Affine turned{{{{{0.2, 0.05, 0.01}, {-0.04, 0.3, 0}, {0.02, 0, 0.4}}}}, {1.1, 1.2, 1.3}};
  const Affine affine{{{{{0.5, 0.1, 0}, {-0.1, 0.9, 0.1}, {0, -0.1, 0.9}}}}, {1, 2, 0.5}};
  const Affine scales{{{{{0.5, 0, 0}, {0, 0.9, 0}, {0, 0, 0.8}}}}, {0.3, 2, 0.5}};
  const Index3 size{9, 8, 7};
  const PointMap dense(step_of({40, 9, 7}, linear, 1.5, {}, type));
  const PointMap splines(step_of(size, bspline3, 2, parallel, type)), lines(step_of(size, linear, 2, parallel, type));
  FieldStep undo = step_of(size, linear, 0.4, parallel, type);
  undo.use = FieldStep::Use::undo;
  FieldStep replace = step_of(size, linear, 9, parallel, type);
  replace.use = FieldStep::Use::replace;
  replace.offset = {8, 7, 6};
  return {{"dense", dense},
          {"bspline", splines},
          {"linear", lines},
          {"bspline turned", PointMap(step_of(size, bspline3, 2, turned, type))},
          {"between affine maps", PointMap(affine).after(splines).after(PointMap(scales))},
          {"two", splines.after(PointMap(affine)).after(lines)},
          {"undo", PointMap(scales).after(PointMap(undo)).after(PointMap(affine))},
          {"replace", PointMap(scales).after(PointMap(replace)).after(PointMap(affine))},
          {"replace what was moved", PointMap(replace).after(splines).after(PointMap(affine))}};
}

TEST(Gather, Fields) {
  const Volume input = random_volume(info_of({19, 12, 9}, DataType::float64));
  for (const DataType type : {DataType::float64, DataType::float32})
    for (const auto& [name, points] : field_cases(type)) {
      GatherMap map = map_onto(input.info(), {40, 9, 7}, points, Interpolation::linear, Boundary::mirror);
      map.output.dtype = DataType::float64;
      const auto expected = reference(input, map, [&map](const Vec3& p) { return through(map.points, p); });
      EXPECT_LE(difference(values_of(run(input, map)), expected), type == DataType::float32 ? 1e-5 : 1e-11) << name;
    }
}

TEST(Gather, FieldsWithEveryInterpolation) {
  const Volume input = random_volume(info_of({19, 12, 9}, DataType::float32));
  const PointMap points = field_cases(DataType::float64)[1].map;
  for (const Interpolation interpolation : kInterpolations) {
    if (interpolation == Interpolation::label_linear) continue;
    const GatherMap map = map_onto(input.info(), {40, 9, 7}, points, interpolation, Boundary::constant);
    const auto expected = reference(input, map, [&map](const Vec3& p) { return through(map.points, p); });
    EXPECT_LE(difference(values_of(run(input, map)), expected), 3e-6) << name_of(interpolation, map.boundary);
  }
}

/// A volume whose value is its coordinate along x, y or z: what a linear gather gives is the point itself.
std::vector<double> points_of(const PointMap& map, const Index3& size, int axis) {
  const Volume ramp = volume_from(info_of(size, DataType::float64), [&](std::int64_t i) {
    return double(axis == 0 ? i % size[0] : axis == 1 ? i / size[0] % size[1] : i / (size[0] * size[1]));
  });
  GatherMap gather = map_onto(ramp.info(), size, map, Interpolation::linear, Boundary::constant, kNaN);
  gather.output.dtype = DataType::float64;
  return values_of(run(ramp, gather));
}

TEST(Gather, UndoingReturns) {
  const Index3 size{24, 20, 16};
  for (const auto basis : {VectorField::Basis::linear, VectorField::Basis::bspline3}) {
    const Affine to_grid{{{{{0.3, 0, 0}, {0, 0.3, 0}, {0, 0, 0.3}}}}, {2, 2, 2}};
    const PointMap add(step_of({12, 11, 10}, basis, 0.7, to_grid));
    for (const PointMap& back : {add.after(add.inverse()), add.inverse().after(add)})
      for (int axis = 0; axis < 3; ++axis) {
        const std::vector<double> got = points_of(back, size, axis);
        int inside = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(got[i])) continue;
          const std::size_t at[3] = {i % 24, i / 24 % 20, i / 480};
          ASSERT_NEAR(got[i], double(at[axis]), 1e-9);
          ++inside;
        }
        EXPECT_GT(inside, 6000);
      }
  }
}

TEST(Gather, AFieldOfNoNumbersIsFill) {
  auto vectors = std::make_shared<Volume>(
      volume_from(info_of({16, 4, 4}, DataType::float32, 3), [](std::int64_t i) { return i % 16 == 5 ? kNaN : 0.25; }));
  FieldStep step;
  step.field = {.size = {16, 4, 4}, .vectors = vectors};
  const Volume input = random_volume(info_of({16, 4, 4}));
  const GatherMap map =
      map_onto(input.info(), {16, 4, 4}, PointMap(step), Interpolation::linear, Boundary::nearest, -9);
  const std::vector<double> values = values_of(run(input, map));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] == -9, i % 16 == 5);
}

TEST(Gather, ImagesAsFields) {
  const auto context = make_context(Device::cpu(), 2);
  const Volume input = random_volume(info_of({9, 8, 7}));
  const auto vectors = field_of({9, 8, 7}, 0.5, DataType::float32);
  FieldStep step;
  step.field = {.size = {9, 8, 7}, .vectors = vectors};
  GatherMap map = map_onto(input.info(), {9, 8, 7}, PointMap(step), Interpolation::linear, Boundary::nearest);
  const auto expected = bytes_of(run(input, map));
  step.field.vectors = nullptr;
  step.field.image = "field";
  map.points = PointMap(step);
  const auto gathered = [&](const Volume& image) {
    return apply_gather(*context, input, map, 0, 0, [&](const std::string&) -> const Volume& { return image; });
  };
  EXPECT_EQ(bytes_of(gathered(*vectors)), expected);
  const auto message_for = [&](const VolumeInfo& info) -> std::string {
    try {
      gathered(random_volume(info));
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::input);
      return error.what();
    }
  };
  EXPECT_NE(message_for(info_of({9, 8, 7}, DataType::float32, 2)).find("2 components"), std::string::npos);
  EXPECT_NE(message_for(info_of({9, 8, 7}, DataType::int16, 3)).find("int16"), std::string::npos);
  EXPECT_NE(message_for(info_of({9, 8, 6}, DataType::float32, 3)).find("another grid"), std::string::npos);
}

TEST(Gather, VelocitiesAreIntegrated) {
  // v(x) = r x about the middle of the grid: the flow scales by exp(r).
  const Index3 size{41, 5, 5};
  const double rate = 0.4, middle = 20;
  const auto velocity = std::make_shared<Volume>(volume_from(info_of(size, DataType::float64, 3), [&](std::int64_t i) {
    return i < 41 * 25 ? rate * (double(i % 41) - middle) : 0.0;
  }));
  FieldStep step;
  step.field = {.size = size, .vectors = velocity, .exponential = true};
  const std::vector<double> forth = points_of(PointMap(step), size, 0),
                            back = points_of(PointMap(step).inverse(), size, 0);
  for (std::size_t i = 0; i < forth.size(); ++i) {
    const double x = double(i % 41) - middle;
    if (std::abs(x) > 8) continue;
    EXPECT_NEAR(forth[i], middle + x * std::exp(rate), 0.02);
    EXPECT_NEAR(back[i], middle + x * std::exp(-rate), 0.02);
  }
}

TEST(PointMap, AffineMapsMerge) {
  const Affine a{{{{{2, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}, {1, 2, 3}};
  EXPECT_TRUE(PointMap().is_identity());
  EXPECT_TRUE(PointMap(Affine{}).is_identity());
  EXPECT_EQ(PointMap(a).after(PointMap(a)).affine(), a * a);
  EXPECT_EQ(PointMap(a).after(PointMap(a)).steps().size(), 1u);
  EXPECT_TRUE(PointMap(a).inverse().after(PointMap(a)).steps().empty());
  EXPECT_EQ(PointMap(a).inverse().affine(), a.inverse());
}

TEST(PointMap, InverseReversesTheSteps) {
  const Affine a{{{{{2, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}, {1, 2, 3}};
  FieldStep step;
  const PointMap inverse = PointMap(step).after(PointMap(a)).inverse();
  ASSERT_EQ(inverse.steps().size(), 2u);
  EXPECT_EQ(std::get<FieldStep>(inverse.steps()[0]).use, FieldStep::Use::undo);
  EXPECT_EQ(std::get<Affine>(inverse.steps()[1]), a.inverse());
  EXPECT_EQ(std::get<FieldStep>(inverse.inverse().steps()[1]).use, FieldStep::Use::add);
  EXPECT_FALSE(inverse.is_affine());
  step.use = FieldStep::Use::replace;
  try {
    PointMap(step).inverse();
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.code(), ErrorCode::usage); }
  EXPECT_THROW(PointMap(Affine{Matrix3{}, {}}).inverse(), Error);
}

TEST(Gather, ScratchCoversWhatIsMade) {
  const Volume input = random_volume(info_of({30, 20, 10}, DataType::uint8));
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : {Boundary::constant, Boundary::nearest}) {
      const PointMap points(oblique({30, 20, 10}, {30, 20, 10}));
      const GatherMap map = map_onto(input.info(), {30, 20, 10}, points, interpolation, boundary);
      const auto context = make_context(Device::cpu(), 1);
      apply_gather(*context, input, map, 0, 0, {});
      EXPECT_LE(context->peak_memory(), map.output.bytes() + scratch_bytes(input.info(), map))
          << name_of(interpolation, boundary);
    }
}

}  // namespace
}  // namespace volpipe
