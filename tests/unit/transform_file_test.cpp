// The samples are ITK's own files with ITK's own points; the rest comes from the definitions of the formats.
#include "stages/geometry/transform_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "unit/transform_samples.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using test::from_hex;
using test::kItkAffine;
using test::kItkBSpline;
using test::kItkHeader;
using test::transform_samples;
using test::TransformSample;
using ::testing::HasSubstr;

const Affine kMirror{{{{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}}}, {}};  // LPS <-> RAS

double spline(double x) {
  x = std::abs(x);
  return x < 1 ? 2.0 / 3 - x * x + x * x * x / 2 : x < 2 ? (2 - x) * (2 - x) * (2 - x) / 6 : 0;
}

/// The sum over every point of the grid, 0 outside.
Vec3 vector_at(const VectorField& field, Vec3 at) {
  const bool is_spline = field.basis == VectorField::Basis::bspline3;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double size = double(field.size[axis]);
    const double margin = is_spline ? 1 : -0.5;
    if (at[axis] < margin || at[axis] > size - 1 - margin) return {};
    if (!is_spline) at[axis] = std::clamp(at[axis], 0.0, size - 1);
  }
  const auto weight = [&](double distance) {
    return is_spline ? spline(distance) : std::max(0.0, 1 - std::abs(distance));
  };
  Vec3 sum{};
  std::int64_t voxel = 0;
  for (std::int64_t z = 0; z < field.size[2]; ++z)
    for (std::int64_t y = 0; y < field.size[1]; ++y)
      for (std::int64_t x = 0; x < field.size[0]; ++x, ++voxel)
        for (std::int64_t c = 0; c < 3; ++c)
          sum[std::size_t(c)] += weight(at[0] - double(x)) * weight(at[1] - double(y)) * weight(at[2] - double(z)) *
                                 static_cast<const double*>(field.vectors->component(c))[voxel];
  return sum;
}

Vec3 moved(const PointMap& map, Vec3 p) {
  for (const PointMap::Step& step : map.steps()) {
    if (const auto* affine = std::get_if<Affine>(&step)) {
      p = (*affine)(p);
      continue;
    }
    const auto& field = std::get<FieldStep>(step);
    EXPECT_EQ(field.use, FieldStep::Use::add);
    p = p + field.linear * vector_at(field.field, field.to_grid(p));
  }
  return p;
}

PointMap read(const std::string& bytes, const std::string& name = "a.tfm") { return read_transform(bytes, name, {}); }

void expect_near(const Vec3& got, const Vec3& wanted, double tolerance) {
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], wanted[i], tolerance * (1 + norm(wanted)));
}

void expect_near(const Affine& got, const Affine& wanted, double tolerance) {
  for (int i = 0; i < 3; ++i) expect_near(got.linear[i], wanted.linear[i], tolerance);
  expect_near(got.offset, wanted.offset, tolerance);
}

void expect_error(const std::string& bytes, const std::string& name, const std::string& words,
                  ErrorCode code = ErrorCode::input, const TransformGrids& grids = {}) {
  try {
    read_transform(bytes, name, grids);
    ADD_FAILURE() << "no error, expected one of " << words;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(words));
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.path(), name);
  }
}

std::string itk(const std::string& name, const std::string& parameters, const std::string& fixed) {
  return kItkHeader + "Transform: " + name + "\nParameters: " + parameters + "\nFixedParameters: " + fixed + "\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

const Affine kSkewed{{{{{1.1, 0.2, -0.1}, {0.05, 0.9, 0.15}, {-0.2, 0.1, 1.2}}}}, {5, -7, 3}};
const std::string kSkewedText = "1.1 0.2 -0.1 5\n0.05 0.9 0.15 -7\n-0.2 0.1 1.2 3\n0 0 0 1\n";

TEST(TransformFile, MovesPointsAsItkDoes) {
  for (const TransformSample& sample : transform_samples()) {
    SCOPED_TRACE(sample.name);
    const PointMap map = read(sample.bytes, sample.name);
    for (const auto& [output, input] : sample.points)
      expect_near(moved(map, kMirror(output)), kMirror(input), sample.name == "singles.mat" ? 1e-7 : 1e-14);
  }
}

TEST(TransformFile, IsToldByItsContent) {
  for (const TransformSample& sample : transform_samples())
    for (const char* name : {"a.mat", "a.txt", "a", "folder.mat/a.xfm"}) {
      const PointMap map = read(sample.bytes, name);
      expect_near(moved(map, {1, 2, 3}), moved(read(sample.bytes, sample.name), {1, 2, 3}), 0);
    }
}

TEST(TransformFile, ReadsAnyLineEndCommentsAndAByteOrderMark) {
  const std::string text = kItkHeader + "\n  # a note: not a value\n" + kItkAffine;
  const Affine wanted = read(text).affine();
  for (const char* end : {"\r\n", "\r"}) EXPECT_EQ(read(replaced(text, "\n", end)).affine(), wanted);
  EXPECT_EQ(read("\xEF\xBB\xBF" + text).affine(), wanted);
  EXPECT_EQ(read(text.substr(0, text.size() - 1)).affine(), wanted);
  EXPECT_EQ(read(replaced(text, "_double_", "_float_")).affine(), wanted);
  EXPECT_EQ(read(replaced(text, "AffineTransform", "MatrixOffsetTransformBase")).affine(), wanted);
  EXPECT_EQ(read(replaced(text, "1.1 ", "\t+11e-1   ")).affine(), wanted);
}

TEST(TransformFile, TurnsLpsIntoRasExactly) {
  const Affine map = read(itk("AffineTransform_double_3_3", "2 3 4 5 6 7 8 9 -10 11 12 13", "0 0 0")).affine();
  EXPECT_EQ(map, (Affine{{{{{2, 3, -4}, {5, 6, -7}, {-8, -9, -10}}}}, {-11, -12, 13}}));
}

TEST(TransformFile, AbsentOrderOfEulerAnglesIsZxy) {
  const std::string angles = "0.3 -0.5 1.1 4 -3 9.5";
  const std::string name = "Euler3DTransform_double_3_3";
  EXPECT_EQ(read(itk(name, angles, "12.5 -20 7")).affine(), read(itk(name, angles, "12.5 -20 7 0")).affine());
  EXPECT_NE(read(itk(name, angles, "12.5 -20 7")).affine(), read(itk(name, angles, "12.5 -20 7 1")).affine());
}

TEST(TransformFile, KeepsTheGridOfAFieldInTheWorld) {
  const PointMap map = read(kItkHeader + kItkBSpline);
  ASSERT_EQ(map.steps().size(), 1u);
  const auto& step = std::get<FieldStep>(map.steps().front());
  EXPECT_EQ(step.field.size, (Index3{4, 5, 4}));
  EXPECT_EQ(step.linear, Matrix3::identity());
  const VolumeInfo& info = step.field.vectors->info();
  EXPECT_EQ(info.components, 3);
  EXPECT_EQ(info.dtype, DataType::float64);
  EXPECT_EQ(info.geometry.origin(), (Vec3{30, 20, 45}));
  expect_near(info.geometry.spacing(), {20, 16, 25}, 1e-15);
  expect_near(step.to_grid(info.geometry.to_world({1, 2, 3})), {1, 2, 3}, 1e-14);
  const auto* x = static_cast<const double*>(step.field.vectors->component(0));
  const auto* z = static_cast<const double*>(step.field.vectors->component(2));
  EXPECT_EQ(x[0], -8.2);
  EXPECT_EQ(x[1], 10.2);
  EXPECT_EQ(z[79], -2.6);
}

TEST(TransformFile, ReadsMatlabOfEitherByteOrder) {
  for (const TransformSample& sample : transform_samples()) {
    if (!sample.name.ends_with(".mat")) continue;
    std::string swapped;
    for (std::size_t at = 0; at < sample.bytes.size();) {
      const auto reversed = [&](std::size_t count) {
        swapped.append(sample.bytes.rbegin() + std::ptrdiff_t(sample.bytes.size() - at - count),
                       sample.bytes.rbegin() + std::ptrdiff_t(sample.bytes.size() - at));
        at += count;
      };
      const auto field = [&](std::size_t i) {
        return std::size_t(static_cast<unsigned char>(sample.bytes[at + 4 * i]));
      };
      const std::size_t type = field(0), values = field(1), name = field(4);
      swapped += type == 0 ? from_hex("000003e8") : from_hex("000003f2");
      at += 4;
      for (int i = 0; i < 4; ++i) reversed(4);
      swapped += sample.bytes.substr(at, name);
      at += name;
      for (std::size_t i = 0; i < values; ++i) reversed(type == 0 ? 8 : 4);
    }
    EXPECT_EQ(read(swapped, "a.mat").affine(), read(sample.bytes, "a.mat").affine()) << sample.name;
  }
}

/// FSL holds an image whose map has a positive determinant with its first axis reversed, and reckons with nothing but
/// the spacing from there on.
Geometry held_by_fsl(const Geometry& grid) {
  if (grid.index_to_world().linear.determinant() < 0) return grid;
  return grid.remapped(grid.size(), {{{{{-1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}, {double(grid.size()[0] - 1), 0, 0}});
}

const Geometry kRightHanded({20, 30, 25}, {{{{{2, 0, 0}, {0, 1, 0}, {0, 0, 1.5}}}}, {-40, 10, -20}});
const Geometry kRightHandedToo({33, 28, 31}, {{{{{-1, 0, 0}, {0, 0, 2}, {0, 1, 0}}}}, {60, -30, 5}});
const Geometry kLeftHanded({33, 28, 31}, {{{{{-1, 0, 0}, {0, 0, 2}, {0, -1, 0}}}}, {60, -30, 5}});

TEST(TransformFile, ReadsFlirtBetweenImagesOfEitherHand) {
  const std::vector<Geometry> grids{kRightHanded, kRightHandedToo, kLeftHanded};
  for (const Geometry& input : grids)
    for (const Geometry& reference : grids) {
      const Affine pull = read_transform(kSkewedText, "flirt.mat", {&input, &reference}).affine();
      const Geometry in = held_by_fsl(input), out = held_by_fsl(reference);
      for (const Vec3& index : {Vec3{0, 0, 0}, Vec3{3, 7, 11}, Vec3{19, 2, 24}}) {
        Vec3 place = out.spacing();
        for (std::size_t i = 0; i < 3; ++i) place[i] *= index[i];
        Vec3 source = kSkewed.inverse()(place);
        for (std::size_t i = 0; i < 3; ++i) source[i] /= in.spacing()[i];
        expect_near(pull(out.to_world(index)), in.to_world(source), 1e-14);
      }
    }
}

TEST(TransformFile, ReadsFlirtAsFslpyDoes) {
  const auto pulled = [](const Geometry& input, const Geometry& reference) {
    return read_transform(kSkewedText, "flirt.mat", {&input, &reference}).affine()({12, -7, 31});
  };
  expect_near(pulled(kRightHanded, kRightHandedToo), {22.859030837004404, 46.4669603524229, -10.515418502202643},
              1e-13);
  expect_near(pulled(kRightHandedToo, kRightHanded), {17.44933920704846, 9.669603524229075, -12.13656387665198}, 1e-13);
  expect_near(pulled(kRightHanded, kLeftHanded), {-48.647577092511014, -18.167400881057265, 6.788546255506609}, 1e-13);
  expect_near(pulled(kLeftHanded, kRightHanded), {70.55066079295155, 9.669603524229075, 22.13656387665198}, 1e-13);
  expect_near(pulled(kLeftHanded, kLeftHanded), {13.352422907488986, -3.211453744493391, 33.16740088105727}, 1e-13);
}

TEST(TransformFile, FlirtNeedsItsGrids) {
  expect_error(kSkewedText, "a.mat", "\"reference\"", ErrorCode::usage);
  expect_error(kSkewedText, "a.mat", "\"reference\"", ErrorCode::usage, {&kLeftHanded, nullptr});
  expect_error(kSkewedText, "folder/A.MAT", "\"reference\"", ErrorCode::usage);
}

TEST(TransformFile, PlainMatrixMovesTheImage) {
  const Affine wanted = kSkewed.inverse();
  EXPECT_EQ(read(kSkewedText, "a.txt").affine(), wanted);
  EXPECT_EQ(read(kSkewedText, "a").affine(), wanted);
  EXPECT_EQ(read(kSkewedText.substr(0, kSkewedText.find("0 0 0 1")), "a.txt").affine(), wanted);
  EXPECT_EQ(read("# of a scanner\n\n" + replaced(kSkewedText, "\n", " # mm\r\n"), "a.xfm").affine(), wanted);
}

TEST(TransformFile, SaysWhatIsWrongWithText) {
  const std::string affine = kItkHeader + kItkAffine;
  expect_error("", "a.tfm", "is empty");
  expect_error(" \n\r\n\t", "a.mat", "is empty");
  expect_error(kItkHeader, "a.tfm", "holds no transform");
  expect_error(kItkHeader + "Transform: AffineTransform_double_3_3\n", "a.tfm", "has 0 parameters, expected 12");
  expect_error(replaced(affine, " 8\n", "\n"), "a.tfm", "has 11 parameters, expected 12");
  expect_error(replaced(affine, " 8\n", " 8 9\n"), "a.tfm", "has 13 parameters, expected 12");
  expect_error(replaced(affine, " 7\n", "\n"), "a.tfm", "has 2 fixed parameters, expected 3 (the center)");
  expect_error(affine.substr(0, affine.find("Fixed")), "a.tfm", "has 0 fixed parameters");
  expect_error(replaced(affine, "1.1 ", "1,1 "), "a.tfm", "Parameters of transform 1: '1,1' is not a number");
  expect_error(replaced(affine, "1.1 ", "nan "), "a.tfm", "'nan' is not finite");
  expect_error(replaced(affine, "1.1 ", "-inf "), "a.tfm", "'-inf' is not finite");
  expect_error(replaced(affine, "1.1 ", "1e999 "), "a.tfm", "'1e999' is beyond");
  expect_error(replaced(affine, "AffineTransform_double_3_3", "AffineTransform_double_2_2"), "a.tfm",
               "'AffineTransform_double_2_2' cannot be read: expected a name that ends in _double_3_3");
  expect_error(replaced(affine, "Affine", "Spherical"), "a.tfm",
               "unknown transform 'SphericalTransform_double_3_3': known are AffineTransform, ");
  expect_error(replaced(kItkHeader + kItkBSpline, "_3_3", "_3_3_2"), "a.tfm", "of order 3");
  expect_error(affine + kItkAffine, "a.tfm", "holds 2 transforms and does not say how they go together");
  expect_error(kItkHeader + "Transform: CompositeTransform_double_3_3\n", "a.tfm", "has no members");
  expect_error(kItkHeader + replaced("CC", "C", "Transform: CompositeTransform_float_3_3\n"), "a.tfm",
               "inside another");
  expect_error(kItkHeader + "Parameters: 1\n", "a.tfm", "before the first Transform");
  expect_error(affine + "Parameters: 1\n", "a.tfm", "has Parameters twice");
  expect_error(affine + "ComponentTransformFile: b.tfm\n", "a.tfm", "'ComponentTransformFile' is not known");
  expect_error(affine + "0 0 0\n", "a.tfm", "'0 0 0' is not of the form");
  expect_error(itk("AffineTransform_double_3_3", "1 2 3 2 4 6 0 0 1 0 0 0", "0 0 0"), "a.tfm", "is singular");
  expect_error(itk("ScaleTransform_double_3_3", "1 0 1", "0 0 0"), "a.tfm", "is singular");
  expect_error(itk("ScaleTransform_double_3_3", "2 2 2", "1e308 1e308 1e308"), "a.tfm", "");
  expect_error(itk("VersorTransform_double_3_3", "1 1 0", "0 0 0"), "a.tfm", "the versor's length is 1.41");
  expect_error(itk("QuaternionRigidTransform_double_3_3", "0 0 0 2 0 0 0", "0 0 0"), "a.tfm",
               "length is 2, expected 1");
}

TEST(TransformFile, SaysWhatIsWrongWithAField) {
  const std::string text = kItkHeader + kItkBSpline;
  const auto with_grid = [&](const std::string& grid) {
    return text.substr(0, text.find("FixedParameters")) + "FixedParameters: " + grid;
  };
  const std::string rest = " 0 0 0 1 1 1 1 0 0 0 1 0 0 0 1";
  expect_error(with_grid("4 5 5" + rest), "a.tfm", "has 240 parameters, expected 300 for its grid of 4 x 5 x 5 points");
  expect_error(with_grid("3 5 4" + rest), "a.tfm", "3 is no size of a grid, expected a whole number of at least 4");
  expect_error(with_grid("4.5 5 4" + rest), "a.tfm", "4.5 is no size of a grid");
  expect_error(with_grid("1e300 5 4" + rest), "a.tfm", "is no size of a grid");
  expect_error(with_grid("-4 5 4" + rest), "a.tfm", "-4 is no size of a grid");
  expect_error(with_grid("1000000 1000000 1000000" + rest), "a.tfm", "has 240 parameters, expected 3e+18");
  expect_error(with_grid("4 5 4"), "a.tfm", "has 3 fixed parameters, expected 18");
  expect_error(with_grid("4 5 4 0 0 0 1 -1 1 1 0 0 0 1 0 0 0 1"), "a.tfm", "spacing of its grid is -1");
  expect_error(with_grid("4 5 4 0 0 0 1 1 1 1 0 0 1 0 0 0 0 1"), "a.tfm", "is singular");
  expect_error(with_grid("4 5 4 1e300 0 0 1e-50 1 1 1 0 0 0 1 0 0 0 1"), "a.tfm", "beyond any measure");
}

TEST(TransformFile, SaysWhatIsWrongWithAMatrix) {
  expect_error("1 0 0 0\n0 1 0 0\n", "a.txt", "the matrix has 2 rows, expected 4 rows (or the upper 3) of 4 numbers");
  expect_error("1 0 0\n0 1 0\n0 0 1\n", "a.txt", "row 1 has 3 numbers");
  expect_error("1 0 0 0 0 1 0 0 0 0 1 0\n", "a.txt", "row 1 has 12 numbers");
  expect_error("1 0 0 0\n0 1 0 0\n0 0 1 0\n", "a.mat", "the matrix has 3 rows, expected 4 rows of 4 numbers");
  expect_error(kSkewedText + "0 0 0 1\n", "a.txt", "more than 4 rows");
  expect_error(replaced(kSkewedText, "0 0 0 1", "0 0 1 1"), "a.txt", "the last row of the matrix is not 0 0 0 1");
  expect_error("1 0 0 0\n0 1 0 0\n1 1 0 0\n", "a.txt", "is singular");
  expect_error("1 0 0 0\n0 1 0 0\n1 1 0 0\n0 0 0 1\n", "a.mat", "is singular", ErrorCode::input,
               {&kLeftHanded, &kLeftHanded});
  expect_error("MNI Transform File\n", "a.xfm", "row 1: 'MNI' is not a number");
}

TEST(TransformFile, SaysWhatIsWrongWithBinaries) {
  const std::string sample = write_transform(Affine{}, "a.mat");
  expect_error(sample.substr(0, sample.size() - 1), "a.mat",
               "'fixed' should have 3 values of 8 bytes, but the file has 23 bytes left");
  expect_error(sample.substr(0, 143), "a.mat",
               "ends after 'AffineTransform_double_3_3', expected the variable 'fixed'");
  expect_error(sample.substr(0, 150), "a.mat", "ends inside the header");
  expect_error(replaced(sample, "fixed", "mixed"), "a.mat", "has 'mixed' after 'AffineTransform_double_3_3'");
  const auto with_field = [&](std::size_t at, const std::string& hex) {
    return std::string(sample).replace(4 * at, hex.size() / 2, from_hex(hex));
  };
  expect_error(with_field(1, "ffffffff"), "a.mat", "should have 4294967295 values");
  expect_error(with_field(1, "ffffffffffffffff"), "a.mat", "is 4294967295 x 4294967295, expected a vector");
  expect_error(with_field(0, "14000000"), "a.mat", "a variable of type 20, expected real doubles or singles");
  expect_error(with_field(3, "01000000"), "a.mat", "expected real doubles");
  expect_error(with_field(4, "ffffff7f"), "a.mat", "name has 2147483647 bytes");
  expect_error(with_field(4, "00000000"), "a.mat", "name has 0 bytes");
  expect_error(with_field(0, "5c010000"), "a.nii", "expected real doubles");
  expect_error(with_field(0, "00020000"), "a.mat", "expected real doubles");
  expect_error(with_field(0, "00100000"), "a.mat", "no Matlab file of level 4");
  std::string not_finite = sample;
  not_finite.replace(47, 8, from_hex("000000000000f07f"));
  expect_error(not_finite, "a.mat", "a value that is not finite");
  expect_error("MATLAB 5.0 MAT-file, Platform: GLNXA64\n", "a.mat", "level 5, expected level 4");
  expect_error("\x89HDF\r\n\x1a\n" + sample, "a.h5", "HDF5");
  expect_error("\x1f\x8b\x08\x08" + sample, "a.gz", "binary, but no transform");
}

TEST(TransformFile, WritesWhatItReads) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int run = 0; run < 200; ++run) {
    Affine pull;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) pull.linear[i][j] += 0.2 * normal(random);
      pull.offset[std::size_t(i)] = 50 * normal(random);
    }
    for (const char* name : {"a.tfm", "a.mat", "b.c/A.TFM"})
      EXPECT_EQ(read(write_transform(pull, name), name).affine(), pull);
    const double condition =
        norm(pull.linear.inverse()[0]) + norm(pull.linear.inverse()[1]) + norm(pull.linear.inverse()[2]);
    expect_near(read(write_transform(pull, "a.txt"), "a.txt").affine(), pull, 1e-15 * condition * condition);
  }
}

TEST(TransformFile, WritesTheFormatsOfOthers) {
  EXPECT_EQ(write_transform(PointMap(), "a.txt"), "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n");
  const Affine moved_up{Matrix3::identity(), {0.1, 20, 1.0 / 3}};
  EXPECT_EQ(write_transform(moved_up, "a.txt"), "1 0 0 -0.1\n0 1 0 -20\n0 0 1 -0.3333333333333333\n0 0 0 1\n");
  EXPECT_EQ(write_transform(moved_up, "a.tfm"),
            "#Insight Transform File V1.0\n#Transform 0\nTransform: AffineTransform_double_3_3\n"
            "Parameters: 1 0 0 0 1 0 0 0 1 -0.1 -20 0.3333333333333333\nFixedParameters: 0 0 0\n");
  // Of SimpleITK, but for the center.
  for (const TransformSample& sample : transform_samples())
    if (sample.name == "affine.mat") {
      const std::string written = write_transform(read(sample.bytes, "a.mat"), "a.mat");
      EXPECT_EQ(written.size(), sample.bytes.size());
      EXPECT_EQ(written.substr(0, 47), sample.bytes.substr(0, 47));
      EXPECT_EQ(written.substr(143, 26), sample.bytes.substr(143, 26));
    }
}

TEST(TransformFile, WritesAffineMapsAlone) {
  const auto code_of = [](const PointMap& map, const std::string& name) {
    try {
      write_transform(map, name);
    } catch (const Error& error) {
      EXPECT_EQ(error.path(), name);
      return error.code();
    }
    return ErrorCode::internal;
  };
  for (const char* name : {"a.tfm", "a.mat", "a.txt"})
    EXPECT_EQ(code_of(read(kItkHeader + kItkBSpline), name), ErrorCode::unsupported);
  EXPECT_EQ(code_of(Affine{}, "a.h5"), ErrorCode::unsupported);
}

class Mutations {
 public:
  std::string of(std::string bytes) {
    for (std::size_t i = below(4) + 1; i-- > 0;) mutate(bytes);
    return bytes;
  }
  std::size_t below(std::size_t n) { return std::size_t(random_() % n); }

 private:
  void mutate(std::string& bytes) {
    static const std::vector<std::string> kWords{" nan ",
                                                 " 1e308 ",
                                                 " -1 ",
                                                 " 1e-308 ",
                                                 "\n",
                                                 "\r",
                                                 " ",
                                                 ":",
                                                 "#",
                                                 "Transform: ",
                                                 std::string(4, '\0'),
                                                 "\xff\xff\xff\xff",
                                                 "_2_2",
                                                 " 9 9 9 ",
                                                 "4294967296"};
    const std::size_t at = below(bytes.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = char(random_());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = char(bytes[at] ^ 1 << below(8));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, below(20));
        break;
      case 4:
        bytes.insert(at, kWords[below(kWords.size())]);
        break;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(200)));
        break;
    }
  }

  std::mt19937 random_{20};
};

TEST(TransformFile, DamagedBytesGiveAMapOrAnError) {
  std::vector<std::pair<std::string, std::string>> samples{{"flirt.mat", kSkewedText}, {"plain.txt", kSkewedText}};
  for (const TransformSample& sample : transform_samples()) samples.emplace_back(sample.name, sample.bytes);
  Mutations mutations;
  std::size_t maps = 0;
  for (const auto& [name, bytes] : samples)
    for (int run = 0; run < 20000; ++run) {
      const std::string damaged = mutations.of(bytes);
      try {
        const PointMap map = read_transform(damaged, name, {&kLeftHanded, &kRightHanded});
        ++maps;
        for (const PointMap::Step& step : map.steps()) {
          const auto* field = std::get_if<FieldStep>(&step);
          const Affine& affine = field ? field->to_grid : std::get<Affine>(step);
          for (double x : affine.offset) ASSERT_TRUE(std::isfinite(x)) << damaged;
          ASSERT_TRUE(std::isfinite(affine.linear.determinant())) << damaged;
          if (field) { ASSERT_EQ(field->field.vectors->info().geometry.size(), field->field.size); }
        }
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::input) << error.what();
        ASSERT_NE(error.what(), std::string());
      }
    }
  EXPECT_GT(maps, 1000u);  // not all of them stop at the first line
}

}  // namespace
}  // namespace volpipe
