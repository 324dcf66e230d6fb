// NIfTI in and out: each way a file can be wrong has one outcome, and what is written comes back.
#include "io/nifti.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "file_helpers.h"
#include "nifti_samples.h"

namespace volpipe::io {
namespace {

using test::bytes_of;
using test::counting;
using test::expect_error;
using test::NiftiSample;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using test::zlib_gunzip;
using test::zlib_gzip;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kTan10 = std::tan(10 * M_PI / 180);

struct Read {
  Volume volume;
  std::vector<Notice> notices;

  const VolumeInfo& info() const { return volume.info(); }
  const Geometry& geometry() const { return volume.geometry(); }
  std::vector<std::string> codes() const {
    std::vector<std::string> found;
    for (const auto& notice : notices) found.push_back(notice.code);
    return found;
  }
  std::string message(const std::string& code) const {
    for (const auto& notice : notices)
      if (notice.code == code) return notice.message;
    return "";
  }
  template <class T>
  std::vector<T> values() const {
    EXPECT_EQ(info().dtype, data_type_of<T>());
    const T* start = volume.data_as<T>();
    return {start, start + info().value_count()};
  }
};

using Codes = std::vector<std::string>;

Read read(const std::string& path, NiftiAffine affine = NiftiAffine::automatic) {
  Notices notices;
  Volume volume = read_nifti(path, Buffer::host, notices, nullptr, affine);
  return {std::move(volume), notices.list()};
}

NiftiSample of_type(int datatype, int bitpix, std::string body) {
  NiftiSample sample;
  sample.datatype = datatype;
  sample.bitpix = bitpix;
  sample.body = std::move(body);
  return sample;
}

NiftiSample int16_sample(bool big_endian = false) {
  NiftiSample sample = of_type(4, 16, bytes_of(counting<std::int16_t>(120), big_endian));
  sample.big_endian = big_endian;
  return sample;
}

class Nifti : public ::testing::Test {
 protected:
  std::string file(const NiftiSample& sample) { return write_bytes(folder_ / "a.nii", sample.file()); }
  Read read_sample(const NiftiSample& sample) { return read(file(sample)); }
  /// Header-only reading and reading must both refuse.
  void expect_refused(const NiftiSample& sample, const std::string& part, ErrorCode code = ErrorCode::input) {
    file(sample);
    expect_error(code, part, [&] { read(folder_ / "a.nii"); });
    Notices notices;
    expect_error(code, part, [&] { read_nifti_info(folder_ / "a.nii", notices); });
  }
  TemporaryFolder folder_;
};

// ---- geometry

TEST_F(Nifti, ReadsASoundFileWithoutANotice) {
  const Read result = read_sample({});
  EXPECT_EQ(result.codes(), Codes{});
  EXPECT_EQ(result.geometry(), Geometry({4, 5, 6}, Affine{}));
  EXPECT_EQ(result.info().component_axis, ComponentAxis::none);
  EXPECT_EQ(result.values<float>(), counting<float>(120));
}

TEST_F(Nifti, InfoIsWhatReadingGives) {
  for (const bool packed : {false, true}) {
    NiftiSample sample = int16_sample();
    sample.slope = 0.5;
    sample.shape = {4, 5, 2, 3};
    sample.pixdim = {1, 2, 3, 2.5};
    const std::string path =
        write_bytes(folder_ / (packed ? "b.nii.gz" : "b.nii"), packed ? zlib_gzip(sample.file()) : sample.file());
    Notices notices;
    EXPECT_EQ(read_nifti_info(path, notices), read(path).info());
    EXPECT_TRUE(notices.empty());
  }
}

TEST_F(Nifti, WithoutAnAffineUsesPixdimAndSaysSo) {
  NiftiSample sample;
  sample.sform = 0;
  sample.pixdim = {1, 2, 3};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), Codes{"no_affine"});
  EXPECT_EQ(result.geometry(), Geometry::from_spacing({4, 5, 6}, {1, 2, 3}));
}

TEST_F(Nifti, RefusesPixdimThatTheAffineRestsOn) {
  for (const int qform : {0, 1})
    for (const double bad : {0.0, -2.0, kNan, kInfinity}) {
      NiftiSample sample;
      sample.sform = 0;
      sample.qform = qform;
      sample.pixdim = {1, 1, bad};
      expect_refused(sample, "pixdim[3]");
      sample.pixdim = {bad, 1, 1};
      expect_refused(sample, "pixdim[1]");
    }
}

TEST_F(Nifti, NotesPixdimThatContradictsTheSform) {
  NiftiSample sample;
  sample.srow = {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}};
  sample.pixdim = {1, 2, kNan};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), (Codes{"pixdim_mismatch", "pixdim_mismatch"}));
  EXPECT_NE(result.message("pixdim_mismatch").find("pixdim[1] says 1 mm, the sform 2 mm"), std::string::npos);
  EXPECT_EQ(result.geometry().spacing(), (Vec3{2, 2, 2}));
}

TEST_F(Nifti, RefusesAnSformThatIsNotFinite) {
  for (const int qform : {0, 1})
    for (int row = 0; row < 3; ++row)
      for (int column = 0; column < 4; ++column)
        for (const double bad : {kNan, kInfinity}) {
          NiftiSample sample;
          sample.qform = qform;
          sample.srow = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
          sample.srow[row][column] = bad;
          expect_refused(sample, std::string("srow_") + "xyz"[row] + "[" + std::to_string(column) + "]");
        }
}

TEST_F(Nifti, TheOtherAffineCanBeAskedFor) {
  NiftiSample sample;
  sample.qform = 1;
  sample.qoffset = {7, 8, 9};
  sample.srow = {{kNan, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  const Read result = read(file(sample), NiftiAffine::qform);
  EXPECT_EQ(result.geometry().origin(), (Vec3{7, 8, 9}));
  EXPECT_EQ(result.codes(), Codes{"sform_unusable"});
  sample.qform = 0;
  expect_error(ErrorCode::input, "qform_code is 0", [&] { read(file(sample), NiftiAffine::qform); });
  sample.sform = 0;
  expect_error(ErrorCode::input, "sform_code is 0", [&] { read(file(sample), NiftiAffine::sform); });
}

TEST_F(Nifti, RefusesASingularSform) {
  NiftiSample sample;
  sample.srow = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  expect_refused(sample, "singular");
  sample.srow = {{1, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 1, 0}};
  expect_refused(sample, "singular");
}

TEST_F(Nifti, RefusesVoxelsWhoseInverseIsNoNumber) {
  for (const double length : {8e-320, 1e-100, 1e100}) {
    NiftiSample sample;
    sample.version = 2;
    sample.srow = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, length, 0}};
    expect_refused(sample, "beyond any measure");
  }
}

TEST_F(Nifti, KeepsRealShearExactly) {
  for (const double shear : {kTan10, 0.0011}) {
    NiftiSample sample;
    sample.srow = {{1, 0, 0, -3}, {0, 1, shear, 0}, {0, 0, 1, 0}};
    const Read result = read_sample(sample);
    Affine expected;
    expected.offset = {-3, 0, 0};
    expected.linear[1][2] = float(shear);
    EXPECT_EQ(result.geometry().index_to_world(), expected);
    EXPECT_EQ(result.codes().size(), shear > 0.1 ? 1u : 0u) << "pixdim 1, but the sheared step is longer";
  }
}

TEST_F(Nifti, RemovesRoundingSkewAndSaysSo) {
  for (const double skew : {9e-4, 1e-4, -1e-5}) {
    NiftiSample sample;
    sample.srow = {{2, 0, 0, -3}, {0, 2, 3 * skew, 4}, {0, 0, 3, 5}};
    sample.pixdim = {2, 2, 3};
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{"skew_removed"});
    EXPECT_LT(result.geometry().shear(), 1e-14);
    EXPECT_EQ(result.geometry().origin(), (Vec3{-3, 4, 5}));
    EXPECT_NEAR(result.geometry().spacing()[2], 3 * std::sqrt(1 + skew * skew), 1e-6);
    EXPECT_NEAR(result.geometry().direction()[1][2], skew / 2, std::abs(skew) * 1e-3)
        << "shared by both axes: the nearest rotation";
    EXPECT_NEAR(result.geometry().direction()[2][1], -skew / 2, std::abs(skew) * 1e-3);
  }
}

TEST_F(Nifti, LeavesFloatRoundingAlone) {
  NiftiSample sample;
  const double c = std::cos(0.3), s = std::sin(0.3);
  sample.srow = {{c, -s, 0, 0}, {s, c, 0, 0}, {0, 0, 1, 0}};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), Codes{});
  EXPECT_EQ(result.geometry().index_to_world().linear[0][0], double(float(c)));
}

TEST_F(Nifti, SaysHowFarTheAffinesDisagree) {
  for (const int sform : {1, 2}) {
    NiftiSample sample;
    sample.qform = 1;
    sample.sform = sform;
    sample.srow = {{1, 0, 0, 50}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    sample.qoffset = {10, 0, 0};
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{"affine_disagreement"});
    EXPECT_NE(result.message("affine_disagreement").find("40 mm: the sform is used"), std::string::npos);
    EXPECT_EQ(result.geometry().origin(), (Vec3{50, 0, 0}));
    const Read other = read(folder_ / "a.nii", NiftiAffine::qform);
    EXPECT_EQ(other.geometry().origin(), (Vec3{10, 0, 0}));
    EXPECT_NE(other.message("affine_disagreement").find("the qform is used"), std::string::npos);
  }
}

TEST_F(Nifti, DisagreementBelowAThousandthOfAVoxelIsAgreement) {
  NiftiSample sample;
  sample.qform = 1;
  sample.qoffset = {9e-4, 0, 0};
  EXPECT_EQ(read_sample(sample).codes(), Codes{});
  sample.qoffset = {1.1e-3, 0, 0};
  EXPECT_EQ(read_sample(sample).codes(), Codes{"affine_disagreement"});
}

TEST_F(Nifti, ShearInTheSformAgainstAQformIsADisagreement) {
  NiftiSample sample;
  sample.qform = 1;
  sample.srow = {{1, 0, 0, 0}, {0, 1, kTan10, 0}, {0, 0, 1, 0}};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), (Codes{"affine_disagreement", "pixdim_mismatch"}));
  EXPECT_NEAR(result.geometry().shear(), std::sin(10 * M_PI / 180), 1e-6);
}

TEST_F(Nifti, AnAffineOfCodeZeroIsAbsent) {
  NiftiSample sample;
  sample.qoffset = {10, 0, 0};
  EXPECT_EQ(read_sample(sample).codes(), Codes{});
  sample.qform = 1, sample.sform = 0;
  sample.srow = {{kNan, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), Codes{});
  EXPECT_EQ(result.geometry().origin(), (Vec3{10, 0, 0}));
}

TEST_F(Nifti, ReadsTheQuaternion) {
  NiftiSample sample;
  sample.sform = 0, sample.qform = 1;
  sample.pixdim = {1, 2, 3};
  sample.quaternion = {0, 0, std::sin(M_PI / 4)};  // 90 degrees about z: x -> y, y -> -x
  sample.qoffset = {5, 6, 7};
  const Affine map = read_sample(sample).geometry().index_to_world();
  const double expected[3][3] = {{0, -2, 0}, {1, 0, 0}, {0, 0, 3}};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_NEAR(map.linear[i][j], expected[i][j], 1e-6);
  EXPECT_EQ(map.offset, (Vec3{5, 6, 7}));
  sample.quaternion = {0, 1, 0};  // half a turn: the first part is 0
  EXPECT_EQ(read_sample(sample).geometry().orientation(), "LAI");
}

TEST_F(Nifti, QfacMirrorsTheThirdAxis) {
  NiftiSample sample;
  sample.sform = 0, sample.qform = 1;
  sample.qfac = -1;
  EXPECT_EQ(read_sample(sample).geometry().orientation(), "RAI");
  sample.qfac = 0;  // means 1
  EXPECT_EQ(read_sample(sample).geometry().orientation(), "RAS");
}

TEST_F(Nifti, RefusesAQuaternionLongerThanOne) {
  NiftiSample sample;
  sample.sform = 0, sample.qform = 1;
  sample.quaternion = {0.9, 0.9, 0.9};
  expect_refused(sample, "unit quaternion");
  sample.quaternion = {kNan, 0, 0};
  expect_refused(sample, "unit quaternion");
  sample.quaternion = {0, 0, 0};
  sample.qoffset = {0, kInfinity, 0};
  expect_refused(sample, "offset is inf");
  sample.quaternion = {0.9, 0.9, 0.9};
  sample.sform = 1;
  EXPECT_EQ(read_sample(sample).codes(), Codes{"qform_unusable"});
}

TEST_F(Nifti, KeepsHandednessAndAxisOrder) {
  NiftiSample sample;
  sample.srow = {{-1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  EXPECT_EQ(read_sample(sample).geometry().orientation(), "LAS");
  EXPECT_LT(read_sample(sample).geometry().index_to_world().linear.determinant(), 0);
  sample.srow = {{0, 0, 3, 0}, {1, 0, 0, 0}, {0, 2, 0, 0}};
  sample.pixdim = {1, 2, 3};
  EXPECT_EQ(read_sample(sample).geometry().orientation(), "ASR");
  EXPECT_EQ(read_sample(sample).geometry().spacing(), (Vec3{1, 2, 3}));
}

TEST_F(Nifti, ConvertsUnitsToMillimetresAndSeconds) {
  const struct {
    int units;
    double length;
  } cases[] = {{3, 1000}, {1, 0.001}, {2, 1}, {0, 1}};
  for (const auto& c : cases)
    for (const int sform : {0, 1}) {
      NiftiSample sample;
      sample.units = c.units;
      sample.sform = sform, sample.qform = 1;
      sample.pixdim = {c.length, c.length, 2 * c.length};
      sample.qoffset = {4 * c.length, 0, 0};
      sample.srow = {{c.length, 0, 0, 4 * c.length}, {0, c.length, 0, 0}, {0, 0, 2 * c.length, 0}};
      const Read result = read_sample(sample);
      EXPECT_EQ(result.codes(), Codes{});
      EXPECT_LT(max_corner_distance_mm(result.geometry(), Geometry::from_spacing({4, 5, 6}, {1, 1, 2}, {4, 0, 0})),
                1e-5);
    }
  NiftiSample odd;
  odd.units = 5;
  EXPECT_EQ(read_sample(odd).codes(), Codes{"unknown_unit"});
}

// ---- dimensions

TEST_F(Nifti, FramesAreAFourthAxis) {
  const struct {
    int units;
    double step, seconds;
  } cases[] = {{2 | 8, 2.5, 2.5}, {2 | 16, 2500, 2.5}, {2 | 24, 500000, 0.5}, {2, 2, 2}};
  for (const auto& c : cases) {
    NiftiSample sample;
    sample.shape = {4, 5, 6, 3};
    sample.pixdim = {1, 1, 1, c.step};
    sample.units = c.units;
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{});
    EXPECT_EQ(result.info().components, 3);
    EXPECT_EQ(result.info().component_axis, ComponentAxis::frames);
    EXPECT_NEAR(result.info().frame_spacing, c.seconds, 1e-6);
    EXPECT_EQ(result.values<float>(), counting<float>(360));
    EXPECT_EQ(result.geometry(), Geometry({4, 5, 6}, Affine{}));
  }
}

TEST_F(Nifti, ASingleFrameIsAVolume) {
  NiftiSample sample;
  sample.shape = {4, 5, 6, 1};
  EXPECT_EQ(read_sample(sample).info().component_axis, ComponentAxis::none);
  EXPECT_EQ(read_sample(sample).info().components, 1);
}

TEST_F(Nifti, NotesFramesWithoutAStep) {
  NiftiSample sample;
  sample.shape = {4, 5, 6, 3};
  for (const double bad : {0.0, -1.0, kNan}) {
    sample.pixdim = {1, 1, 1, bad};
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{"frame_spacing"});
    EXPECT_EQ(result.info().frame_spacing, 1.0);
  }
  sample.pixdim = {1, 1, 1, 5};
  sample.units = 2 | 32;
  EXPECT_EQ(read_sample(sample).codes(), Codes{"unknown_unit"});
}

TEST_F(Nifti, VectorsAreChannels) {
  NiftiSample sample;
  sample.shape = {4, 5, 6, 1, 3};
  const Read result = read_sample(sample);
  EXPECT_EQ(result.info().components, 3);
  EXPECT_EQ(result.info().component_axis, ComponentAxis::channels);
  EXPECT_EQ(result.values<float>(), counting<float>(360));
}

TEST_F(Nifti, RefusesMoreThanFramesOrChannels) {
  NiftiSample sample;
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{2, 2, 2, 2, 3}, {2, 2, 2, 1, 1, 2}, {2, 2, 2, 1, 1, 1, 2}}) {
    sample.shape = shape;
    expect_refused(sample, "split it", ErrorCode::unsupported);
  }
}

TEST_F(Nifti, TwoDimensionsAreOneSlice) {
  NiftiSample sample;
  sample.shape = {4, 5};
  EXPECT_EQ(read_sample(sample).geometry(), Geometry({4, 5, 1}, Affine{}));
  EXPECT_EQ(read_sample(sample).codes(), Codes{});

  sample.srow = {{0, -2, 0, 1}, {2, 0, 0, 2}, {0, 0, 0, 3}};
  sample.pixdim = {2, 2};
  const Read flat = read_sample(sample);
  EXPECT_EQ(flat.codes(), Codes{"missing_axis"});
  EXPECT_EQ(flat.geometry().spacing(), (Vec3{2, 2, 1}));
  EXPECT_EQ(flat.geometry().orientation(), "ALS");

  sample.sform = 0;
  for (const int qform : {0, 1}) {
    sample.qform = qform;
    EXPECT_EQ(read_sample(sample).geometry().spacing(), (Vec3{2, 2, 1}));
  }
}

TEST_F(Nifti, OneSliceKeepsItsThickness) {
  NiftiSample sample;
  sample.shape = {4, 5, 1};
  sample.pixdim = {1, 1, 7};
  EXPECT_EQ(read_sample(sample).geometry().spacing(), (Vec3{1, 1, 7}));
}

TEST_F(Nifti, RefusesImpossibleDimensions) {
  for (const std::int64_t bad : {0, -5, -32768}) {
    NiftiSample sample;
    sample.dim = {3, 4, bad, 6, 1, 1, 1, 1};
    expect_refused(sample, "dim[2] is " + std::to_string(bad));
    sample.dim = {4, 4, 5, 6, bad, 1, 1, 1};
    expect_refused(sample, "dim[4]");
  }
  for (const std::int64_t bad : {0, -1, 8, 200}) {
    NiftiSample sample;
    sample.dim = {bad, 4, 5, 6, 1, 1, 1, 1};
    expect_refused(sample, "dim[0] is " + std::to_string(bad));
    sample.version = 2;
    expect_refused(sample, "dim[0] is " + std::to_string(bad));
  }
  NiftiSample beyond;
  beyond.dim = {3, 4, 5, 6, 0, -1, 99, 0};
  EXPECT_EQ(read_sample(beyond).values<float>(), counting<float>(120)) << "dimensions past dim[0] have no meaning";
}

// ---- sizes and headers

TEST_F(Nifti, AsksForNoMemoryBeforeTheFileIsLongEnough) {
  NiftiSample sample;
  sample.dim = {3, 32767, 32767, 32767, 1, 1, 1, 1};
  const auto never = [](std::size_t) -> Buffer { throw std::logic_error("memory was asked for"); };
  for (const bool packed : {false, true}) {
    const std::string path =
        write_bytes(folder_ / (packed ? "a.nii.gz" : "a.nii"), packed ? zlib_gzip(sample.file()) : sample.file());
    Notices notices;
    expect_error(ErrorCode::input, "the header promises 140724603847004", [&] { read_nifti(path, never, notices); });
  }
}

TEST_F(Nifti, RefusesSizesThatOverflow) {
  NiftiSample sample;
  sample.version = 2;
  const std::int64_t large = std::int64_t(1) << 32;
  for (const auto& dim :
       std::vector<std::vector<std::int64_t>>{{3, large, large, 1, 1, 1, 1, 1},
                                              {3, large, large, large, 1, 1, 1, 1},
                                              {3, std::numeric_limits<std::int64_t>::max(), 1, 1, 1, 1, 1, 1},
                                              {5, large, 2, 1, 1, large, 1, 1}}) {
    sample.dim = dim;
    expect_refused(sample, "larger than any file");
  }
}

TEST_F(Nifti, RefusesTruncatedData) {
  const std::string whole = NiftiSample().file();
  for (const std::size_t length : {352u, 500u, 831u}) {
    write_bytes(folder_ / "a.nii", whole.substr(0, length));
    expect_error(ErrorCode::input, "promises 832 bytes, the file has " + std::to_string(length),
                 [&] { read(folder_ / "a.nii"); });
    write_bytes(folder_ / "b.nii.gz", zlib_gzip(whole.substr(0, length)));
    expect_error(ErrorCode::input, "the data end after " + std::to_string(length - 352) + " of 480 bytes",
                 [&] { read(folder_ / "b.nii.gz"); });
  }
}

TEST_F(Nifti, SaysThatAFileShrankWhileItWasRead) {
  std::mt19937 random(4);
  NiftiSample sample =
      of_type(4, 16, std::string(400 * 400 * 4 * 2, '\0'));  // packed, more than is read for the header
  sample.shape = {400, 400, 4};
  for (char& c : sample.body) c = char(random());
  for (const char* name : {"a.nii", "b.nii.gz"}) {
    const std::string path = write_bytes(folder_ / name, name[0] == 'a' ? sample.file() : zlib_gzip(sample.file()));
    Notices notices;
    const auto opened = open_nifti(path, notices);
    const auto size = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, size - 100);
    expect_error(
        ErrorCode::input,
        "shrank from " + std::to_string(size) + " to " + std::to_string(size - 100) + " bytes while it was read",
        [&] { opened->read(Buffer::host, notices, nullptr); });
  }
}

TEST_F(Nifti, ReadsAnOpenedFileThatWasRemoved) {
  const std::string path = write_bytes(folder_ / "a.nii", NiftiSample().file());
  Notices notices;
  const auto opened = open_nifti(path, notices);
  std::filesystem::remove(path);
  const Volume volume = opened->read(Buffer::host, notices, nullptr);
  write_bytes(path, NiftiSample().file());
  EXPECT_EQ(std::memcmp(volume.data(), read(path).volume.data(), volume.info().bytes()), 0);
}

TEST_F(Nifti, RefusesTruncatedHeaders) {
  const std::string whole = NiftiSample().file();
  for (const std::size_t length : {4u, 200u, 347u}) {
    write_bytes(folder_ / "a.nii", whole.substr(0, length));
    expect_error(ErrorCode::input, "ends within its header, after " + std::to_string(length) + " of 348",
                 [&] { read(folder_ / "a.nii"); });
  }
  expect_error(ErrorCode::input, "is empty", [&] { read(write_bytes(folder_ / "a.nii", "")); });
  expect_error(ErrorCode::input, "not NIfTI", [&] { read(write_bytes(folder_ / "a.nii", "no")); });
  expect_error(ErrorCode::input, "not NIfTI", [&] { read(write_bytes(folder_ / "a.nii", "not an image\n")); });
  expect_error(ErrorCode::input, "No such file", [&] { read(folder_ / "absent.nii"); });
  expect_error(ErrorCode::input, "not a regular file", [&] { read(folder_.path()); });
}

TEST_F(Nifti, ErrorsCarryThePath) {
  try {
    read(write_bytes(folder_ / "a.nii", "not an image\n"));
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.path(), folder_ / "a.nii"); }
}

TEST_F(Nifti, NotesBytesAfterTheData) {
  const std::string longer = NiftiSample().file() + "junk";
  EXPECT_EQ(read(write_bytes(folder_ / "a.nii", longer)).codes(), Codes{"trailing_bytes"});
  const Read packed = read(write_bytes(folder_ / "a.nii.gz", zlib_gzip(longer)));
  EXPECT_EQ(packed.codes(), Codes{"trailing_bytes"});
  EXPECT_EQ(packed.message("trailing_bytes").substr(0, 7), "4 bytes");
  EXPECT_EQ(packed.values<float>(), counting<float>(120));
}

TEST_F(Nifti, DoesNotUnpackABombToItsEnd) {
  std::string bomb;
  const std::string member = zlib_gzip(std::string(40 << 20, '\0'));
  for (int i = 0; i < 3; ++i) bomb += member;
  write_bytes(folder_ / "a.nii.gz", zlib_gzip(NiftiSample().file()) + bomb);
  expect_error(ErrorCode::input, "goes on for more than 67108864 bytes", [&] { read(folder_ / "a.nii.gz"); });
}

TEST_F(Nifti, RefusesDatatypesByName) {
  NiftiSample sample;
  sample.datatype = 77;
  expect_refused(sample, "datatype 77 is not");
  sample.datatype = 0;
  expect_refused(sample, "datatype 0 is not");
  const struct {
    int code, bits;
    const char* name;
  } cases[] = {{1, 1, "binary"},
               {32, 64, "complex64"},
               {1536, 128, "float128"},
               {1792, 128, "complex128"},
               {2048, 256, "complex256"}};
  for (const auto& c : cases) {
    sample.datatype = c.code, sample.bitpix = c.bits;
    expect_refused(sample, c.name, ErrorCode::unsupported);
  }
}

TEST_F(Nifti, RefusesBitpixOfAnotherType) {
  for (const int bits : {0, 8, 64, -32}) {
    NiftiSample sample;
    sample.bitpix = bits;
    expect_refused(sample, "bitpix is " + std::to_string(bits) + " where float32 has 32");
  }
}

TEST_F(Nifti, RefusesDataInsideTheHeader) {
  for (const double offset : {0.0, 348.0, 351.0, 352.5, kNan, kInfinity, 1e30}) {
    NiftiSample sample;
    sample.vox_offset = offset;
    expect_refused(sample, "vox_offset");
  }
  std::string negative = NiftiSample().file();
  negative.replace(108, 4, bytes_of(-352.0f));
  expect_error(ErrorCode::input, "vox_offset is -352", [&] { read(write_bytes(folder_ / "a.nii", negative)); });
  NiftiSample second;
  second.version = 2;
  second.vox_offset = 352;
  expect_refused(second, "at least 544");
}

TEST_F(Nifti, SkipsExtensions) {
  for (const int version : {1, 2}) {
    NiftiSample sample;
    sample.version = version;
    sample.vox_offset = double(sample.header_bytes() + 4 + 9008);
    sample.body = std::string(9008, 'e') + NiftiSample().data();
    EXPECT_EQ(read_sample(sample).values<float>(), counting<float>(120));
    EXPECT_EQ(read(write_bytes(folder_ / "e.nii.gz", zlib_gzip(sample.file()))).values<float>(), counting<float>(120));
  }
}

TEST_F(Nifti, RefusesBadMagic) {
  NiftiSample sample;
  sample.magic = "xxx";
  expect_refused(sample, "magic");
  sample.magic = std::string(4, '\0');
  expect_refused(sample, "ANALYZE");
  sample.magic = "n+2";
  expect_refused(sample, "magic");
  sample.version = 2;
  sample.magic = std::string("n+2\0\n\n\032\n", 8);
  expect_refused(sample, "text-mode transfer");
}

TEST_F(Nifti, ReadsEitherVersionInEitherByteOrder) {
  for (const int version : {1, 2})
    for (const bool big : {false, true}) {
      NiftiSample sample = int16_sample(big);
      sample.version = version;
      sample.pixdim = {1, 2, 3};
      sample.srow = {{1, 0, 0, -7.5}, {0, 2, 0, 8.25}, {0, 0, 3, 9}};
      const Read result = read_sample(sample);
      EXPECT_EQ(result.codes(), Codes{});
      EXPECT_EQ(result.values<std::int16_t>(), counting<std::int16_t>(120));
      EXPECT_EQ(result.geometry(), Geometry::from_spacing({4, 5, 6}, {1, 2, 3}, {-7.5, 8.25, 9}));
    }
}

TEST_F(Nifti, ReadsAPairFromEitherName) {
  NiftiSample sample = int16_sample();
  sample.magic = "ni1";
  sample.vox_offset = 0;
  write_bytes(folder_ / "p.hdr", sample.header());
  write_bytes(folder_ / "p.img", sample.data());
  EXPECT_EQ(read(folder_ / "p.hdr").values<std::int16_t>(), counting<std::int16_t>(120));
  EXPECT_EQ(read(folder_ / "p.img").values<std::int16_t>(), counting<std::int16_t>(120));
  write_bytes(folder_ / "Q.HDR.GZ", zlib_gzip(sample.header()));
  write_bytes(folder_ / "Q.IMG.GZ", zlib_gzip(sample.data()));
  EXPECT_EQ(read(folder_ / "Q.HDR.GZ").values<std::int16_t>(), counting<std::int16_t>(120));
  EXPECT_EQ(read(folder_ / "Q.IMG.GZ").codes(), Codes{});
  write_bytes(folder_ / "r.hdr", sample.header());
  expect_error(ErrorCode::input, "r.img", [&] { read(folder_ / "r.hdr"); });
  write_bytes(folder_ / "r.img.gz", zlib_gzip(sample.data()));
  EXPECT_EQ(read(folder_ / "r.hdr").values<std::int16_t>(), counting<std::int16_t>(120));
  sample.vox_offset = 16;
  sample.body = std::string(16, 'x') + sample.data();
  write_bytes(folder_ / "p.hdr", sample.header());
  write_bytes(folder_ / "p.img", sample.data());
  EXPECT_EQ(read(folder_ / "p.hdr").values<std::int16_t>(), counting<std::int16_t>(120));
  write_bytes(folder_ / "p.img", sample.data().substr(0, 255));
  expect_error(ErrorCode::input, "promises 256 bytes, the file has 255", [&] { read(folder_ / "p.hdr"); });
}

TEST_F(Nifti, RefusesMagicThatContradictsTheName) {
  NiftiSample sample;
  write_bytes(folder_ / "a.hdr", sample.file());
  expect_error(ErrorCode::input, "rename it to .nii", [&] { read(folder_ / "a.hdr"); });
  sample.magic = "ni1";
  expect_refused(sample, "rename the pair");
}

TEST_F(Nifti, ReadsByContentWhenTheNameLies) {
  write_bytes(folder_ / "plain.nii.gz", NiftiSample().file());
  write_bytes(folder_ / "packed.nii", zlib_gzip(NiftiSample().file()));
  for (const char* name : {"plain.nii.gz", "packed.nii"}) {
    const Read result = read(folder_ / name);
    EXPECT_EQ(result.codes(), Codes{"misleading_name"});
    EXPECT_EQ(result.values<float>(), counting<float>(120));
  }
}

TEST_F(Nifti, TakesAnyPath) {
  std::filesystem::create_directories(folder_ / "sp ace/ünïcödé 画像");
  const std::string path = folder_ / "sp ace/ünïcödé 画像/63 ok.NII";
  write_bytes(path, NiftiSample().file());
  Volume volume = std::move(read(path).volume);
  EXPECT_EQ(volume.info().value_count(), 120);
  write_nifti(volume, folder_ / "neu é/画 像.nii.gz");
  EXPECT_EQ(read(folder_ / "neu é/画 像.nii.gz").values<float>(), counting<float>(120));
}

TEST(NiftiName, KnowsItsExtensions) {
  for (const char* name : {"a.nii", "a.nii.gz", "A.NII.GZ", "b/a.hdr", "a.img", "a.Img.gz"})
    EXPECT_TRUE(is_nifti_name(name)) << name;
  for (const char* name : {"a.nrrd", "nii", "a.nii.bz2", "a.gz", "a.mhd", ""})
    EXPECT_FALSE(is_nifti_name(name)) << name;
  for (const char* name : {"a.nii", "a.nii.gz", "A.NII"}) EXPECT_TRUE(is_nifti_output_name(name)) << name;
  for (const char* name : {"a.hdr", "a.img", "a.gz", "a.nrrd"}) EXPECT_FALSE(is_nifti_output_name(name)) << name;
}

// ---- packed files

TEST_F(Nifti, EveryTruncationOfAPackedFileIsAnError) {
  NiftiSample sample = of_type(4, 16, "");
  sample.shape = {16, 16, 20};
  std::vector<std::int16_t> values(16 * 16 * 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::int16_t((i * 2654435761u) >> 20);
  sample.body = bytes_of(values);
  const std::string packed = zlib_gzip(sample.file());
  ASSERT_GT(packed.size(), 5000u);
  for (std::size_t length = 0; length<packed.size(); length += packed.size() - length> 60 ? 50 : 1) {
    write_bytes(folder_ / "a.nii.gz", packed.substr(0, length));
    try {
      read(folder_ / "a.nii.gz");
      ADD_FAILURE() << "read " << length << " of " << packed.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::input) << length;
      if (length >= 500) { EXPECT_NE(std::string(error.what()).find("truncated"), std::string::npos) << error.what(); }
    }
  }
}

TEST_F(Nifti, NoFlippedBitOfAPackedFileChangesAVoxelUnseen) {
  const std::string packed = zlib_gzip(NiftiSample().file());
  for (std::size_t byte = 10; byte < packed.size(); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = packed;
      damaged[byte] = char(damaged[byte] ^ (1 << bit));
      write_bytes(folder_ / "a.nii.gz", damaged);
      try {
        EXPECT_EQ(read(folder_ / "a.nii.gz").values<float>(), counting<float>(120)) << byte << "." << bit;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::input || error.code() == ErrorCode::unsupported) << error.what();
      }
    }
}

TEST_F(Nifti, NoFlippedBitOfAHeaderDoesHarm) {
  for (const int version : {1, 2}) {
    NiftiSample sample;
    sample.version = version;
    const std::string whole = sample.file();
    for (std::size_t bit = 0; bit < 8 * sample.header_bytes(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << (bit % 8)));
      write_bytes(folder_ / "a.nii", damaged);
      try {
        const Read result = read(folder_ / "a.nii");
        EXPECT_LE(result.info().bytes(), 1000u);
        describe_nifti_header(folder_ / "a.nii");
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::input || error.code() == ErrorCode::unsupported) << error.what();
      }
    }
  }
}

TEST_F(Nifti, ReadsMembersAfterEachOther) {
  const std::string whole = NiftiSample().file();
  write_bytes(folder_ / "a.nii.gz", zlib_gzip(whole.substr(0, 400)) + zlib_gzip(whole.substr(400)));
  EXPECT_EQ(read(folder_ / "a.nii.gz").values<float>(), counting<float>(120));
}

// ---- values

TEST_F(Nifti, KeepsAndCountsNonFiniteVoxels) {
  for (const bool big : {false, true}) {
    std::vector<float> values(120, 5.0f);
    values[0] = std::numeric_limits<float>::quiet_NaN();
    values[1] = std::numeric_limits<float>::infinity();
    values[2] = -values[1];
    NiftiSample sample;
    sample.big_endian = big;
    sample.body = bytes_of(values, big);
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{"non_finite_voxels"});
    EXPECT_EQ(result.message("non_finite_voxels").substr(0, 8), "3 of 120");
    EXPECT_EQ(std::memcmp(result.volume.data(), values.data(), 480), 0);
  }
}

TEST_F(Nifti, AppliesSlopeAndIntercept) {
  NiftiSample sample = int16_sample();
  sample.slope = 0.01, sample.intercept = -3;
  const std::vector<float> values = read_sample(sample).values<float>();
  for (int i = 0; i < 120; ++i) EXPECT_EQ(values[i], float((i % 100) * double(0.01f) - 3.0));
  sample = of_type(2, 8, bytes_of(counting<std::uint8_t>(120)));
  sample.slope = -1, sample.intercept = 255;
  EXPECT_EQ(read_sample(sample).values<float>()[7], 248.0f);
  sample = int16_sample(true);
  sample.slope = 2;
  EXPECT_EQ(read_sample(sample).values<float>()[50], 100.0f);
}

TEST_F(Nifti, NarrowingAndASingleFrameAreNotices) {
  NiftiSample sample = of_type(1024, 64, bytes_of(std::vector<std::int64_t>(120, 7)));
  EXPECT_EQ(read_sample(sample).codes(), Codes{"narrowed"});
  sample = NiftiSample();
  sample.shape = {4, 5, 6, 1};
  EXPECT_EQ(read_sample(sample).codes(), Codes{"single_frame"});
}

TEST_F(Nifti, TheRangeOf64BitIntegersIsTheirOwn) {
  std::vector<std::int64_t> values(120, 1);
  values[3] = std::int64_t(1) << 33;
  file(of_type(1024, 64, bytes_of(values)));
  expect_error(ErrorCode::unsupported, "reach from 1 to 8589934592", [&] { read(folder_ / "a.nii"); });
}

TEST_F(Nifti, ScalesWideIntegersInDouble) {
  std::vector<std::int32_t> values(120);
  for (int i = 0; i < 120; ++i) values[i] = 16777217 + i;
  NiftiSample sample = of_type(8, 32, bytes_of(values));
  EXPECT_EQ(read_sample(sample).values<std::int32_t>(), values) << "without scaling nothing is converted";
  sample.slope = 2;
  EXPECT_EQ(read_sample(sample).values<double>()[0], 33554434.0);
  sample = of_type(1024, 64, bytes_of(std::vector<std::int64_t>(120, 16777217)));
  sample.slope = 2;
  EXPECT_EQ(read_sample(sample).values<double>()[0], 33554434.0);
  sample = of_type(768, 32, bytes_of(std::vector<std::uint32_t>(120, 4294967295u)));
  sample.slope = 0.5;
  EXPECT_EQ(read_sample(sample).values<double>()[0], 2147483647.5);
}

TEST_F(Nifti, ScalesFloatsInDouble) {
  NiftiSample sample;
  sample.slope = 1 / 3.0, sample.intercept = 1000;
  const std::vector<float> values = read_sample(sample).values<float>();
  for (int i = 0; i < 120; ++i) EXPECT_EQ(values[i], float((i % 100) * double(float(1 / 3.0)) + 1000.0));
  sample = of_type(64, 64, bytes_of(counting<double>(120)));
  sample.slope = 0.1f;
  EXPECT_EQ(read_sample(sample).values<double>()[3], 3 * double(0.1f));
}

TEST_F(Nifti, SlopesBeyondFloatGiveDouble) {
  NiftiSample sample = int16_sample();
  sample.slope = 1e35;
  EXPECT_EQ(read_sample(sample).values<double>()[2], 2 * double(1e35f));
  sample.slope = 1e-36;
  EXPECT_EQ(read_sample(sample).info().dtype, DataType::float64);
  sample.slope = 7e-9;
  EXPECT_EQ(read_sample(sample).info().dtype, DataType::float32);
}

TEST_F(Nifti, SlopeThatIsNotANumberMeansNoScaling) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    NiftiSample sample = int16_sample();
    sample.slope = bad, sample.intercept = kNan;
    const Read result = read_sample(sample);
    EXPECT_EQ(result.codes(), Codes{"scaling_ignored"});
    EXPECT_EQ(result.values<std::int16_t>(), counting<std::int16_t>(120));
  }
}

TEST_F(Nifti, SlopeZeroMeansNoScalingAtAll) {
  NiftiSample sample = int16_sample();
  sample.slope = 0, sample.intercept = 5;
  const Read result = read_sample(sample);
  EXPECT_EQ(result.codes(), Codes{"scaling_ignored"});
  EXPECT_EQ(result.values<std::int16_t>(), counting<std::int16_t>(120));
  sample.intercept = 0;
  EXPECT_EQ(read_sample(sample).codes(), Codes{});
}

TEST_F(Nifti, RefusesASlopeWithoutAnIntercept) {
  NiftiSample sample = int16_sample();
  sample.slope = 2, sample.intercept = kNan;
  expect_refused(sample, "scl_inter is nan");
}

template <class Wide>
std::string wide(Wide low, Wide high) {
  std::vector<Wide> values(120, 1);
  values[3] = low, values[77] = high;
  return bytes_of(values);
}

TEST_F(Nifti, NarrowsWideIntegersThatFit) {
  EXPECT_EQ(read_sample(of_type(1024, 64, wide<std::int64_t>(-2147483648, 2147483647))).values<std::int32_t>()[3],
            -2147483647 - 1);
  EXPECT_EQ(read_sample(of_type(1024, 64, wide<std::int64_t>(0, 4294967295))).values<std::uint32_t>()[77], 4294967295u);
  EXPECT_EQ(read_sample(of_type(1280, 64, wide<std::uint64_t>(0, 4294967295))).values<std::uint32_t>()[77],
            4294967295u);
  EXPECT_EQ(read_sample(of_type(1280, 64, wide<std::uint64_t>(0, 5))).info().dtype, DataType::uint32);
}

TEST_F(Nifti, RefusesWideIntegersThatDoNot) {
  const auto refuse = [&](const NiftiSample& sample, const std::string& value) {
    expect_error(ErrorCode::unsupported, value, [&] { read_sample(sample); });
  };
  refuse(of_type(1024, 64, wide<std::int64_t>(-1, 2147483648)), "2147483648");
  refuse(of_type(1024, 64, wide<std::int64_t>(-2147483649, 5)), "-2147483649");
  refuse(of_type(1024, 64, wide<std::int64_t>(0, 4294967296)), "4294967296");
  refuse(of_type(1280, 64, wide<std::uint64_t>(0, 18446744073709551615u)), "18446744073709551615");
}

TEST_F(Nifti, DamageIsNotTakenForWideIntegers) {
  std::string packed = zlib_gzip(of_type(1024, 64, wide<std::int64_t>(0, 4294967296)).file());
  packed[packed.size() - 8] = char(packed[packed.size() - 8] ^ 1);
  write_bytes(folder_ / "a.nii.gz", packed);
  expect_error(ErrorCode::input, "CRC mismatch", [&] { read(folder_ / "a.nii.gz"); });
}

TEST_F(Nifti, ColoursBecomeChannels) {
  for (const int channels : {3, 4}) {
    NiftiSample sample = of_type(channels == 3 ? 128 : 2304, 8 * channels, "");
    sample.slope = 7;  // has no meaning for colours
    for (int i = 0; i < 120 * channels; ++i) sample.body += char(i % 251);
    const Read result = read_sample(sample);
    EXPECT_EQ(result.info().components, channels);
    EXPECT_EQ(result.info().component_axis, ComponentAxis::channels);
    const std::vector<std::uint8_t> values = result.values<std::uint8_t>();
    for (int i = 0; i < 120 * channels; ++i) EXPECT_EQ(values[(i % channels) * 120 + i / channels], i % 251);
  }
  NiftiSample frames = of_type(128, 24, std::string(2160, 'x'));
  frames.shape = {4, 5, 6, 2};
  expect_refused(frames, "split it", ErrorCode::unsupported);
}

// ---- writing

template <class T>
Volume volume_of(VolumeInfo info) {
  info.dtype = data_type_of<T>();
  Buffer buffer = Buffer::host(info.bytes());
  for (std::int64_t i = 0; i < info.value_count(); ++i) static_cast<T*>(buffer.data())[i] = T(double(i) * 1.25 - 3);
  return Volume(info, std::move(buffer));
}

VolumeInfo info_of(const Geometry& geometry, std::int64_t components = 1, ComponentAxis axis = ComponentAxis::none,
                   double step = 1) {
  VolumeInfo info;
  info.geometry = geometry;
  info.components = components;
  info.component_axis = axis;
  info.frame_spacing = step;
  return info;
}

Geometry oblique(const Index3& size = {5, 4, 3}) {
  const double a = 0.4, b = -0.3;
  const Matrix3 about_z{{{{std::cos(a), -std::sin(a), 0}, {std::sin(a), std::cos(a), 0}, {0, 0, 1}}}};
  const Matrix3 about_x{{{{1, 0, 0}, {0, std::cos(b), -std::sin(b)}, {0, std::sin(b), std::cos(b)}}}};
  return Geometry::from_spacing(size, {0.7, 0.9, 2.5}, {-90.3, 126.7, -72.1}, about_z * about_x);
}

class NiftiWriting : public ::testing::TestWithParam<const char*> {
 protected:
  Read round_trip(const Volume& volume) {
    write_nifti(volume, path(), {.overwrite = true});
    EXPECT_EQ(folder_.names(), (std::vector<std::string>{std::string("w") + GetParam()})) << "and no partial file";
    Read result = read(path());
    EXPECT_EQ(result.codes(), Codes{});
    EXPECT_EQ(result.info().dtype, volume.info().dtype);
    EXPECT_EQ(result.info().components, volume.info().components);
    EXPECT_TRUE(same_grid(result.geometry(), volume.geometry(), 1e-4))
        << max_corner_distance_mm(result.geometry(), volume.geometry());
    EXPECT_EQ(result.geometry().orientation(), volume.geometry().orientation());
    EXPECT_EQ(result.info().bytes(), volume.info().bytes());
    EXPECT_EQ(std::memcmp(result.volume.data(), volume.data(), volume.info().bytes()), 0);
    return result;
  }
  std::string header_bytes() const {
    const std::string bytes = read_bytes(path());
    return bytes.starts_with("\x1f\x8b") ? zlib_gunzip(bytes) : bytes;
  }
  std::string path() const { return folder_ / (std::string("w") + GetParam()); }
  TemporaryFolder folder_;
};

template <class T>
T field(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST_P(NiftiWriting, KeepsEveryDatatype) {
  const DataType types[] = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                            DataType::uint32, DataType::int32, DataType::float32, DataType::float64};
  for (const DataType type : types)
    visit(type, [&](auto tag) { round_trip(volume_of<typename decltype(tag)::type>(info_of(oblique()))); });
}

TEST_P(NiftiWriting, TheBytesDoNotDependOnTheThreads) {
  const Volume volume = volume_of<float>(info_of(oblique({96, 96, 80})));
  const HostThreads threads(3);
  for (const int compression : {0, 1, 2, 3}) {
    write_nifti(volume, path(), {.overwrite = true, .compression = compression});
    const std::string alone = read_bytes(path());
    write_nifti(volume, path(), {.overwrite = true, .compression = compression, .threads = &threads});
    EXPECT_TRUE(read_bytes(path()) == alone) << compression;
  }
}

TEST_P(NiftiWriting, KeepsAll48Orientations) {
  int count = 0;
  for (int p = 0; p < 6; ++p)
    for (int flips = 0; flips < 8; ++flips) {
      static constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
      Affine map;
      map.linear = {};
      for (int axis = 0; axis < 3; ++axis)
        map.linear[kOrders[p][axis]][axis] = (flips >> axis & 1) ? -1.5 - axis : 1.5 + axis;
      map.offset = {1, -2, 3};
      const Geometry geometry({5, 4, 3}, map);
      const Read result = round_trip(volume_of<std::int16_t>(info_of(geometry)));
      EXPECT_EQ(result.geometry(), geometry);
      EXPECT_EQ(field<std::int16_t>(header_bytes(), 252), 1) << "the qform says it too";
      const Read by_qform = read(path(), NiftiAffine::qform);
      EXPECT_LT(max_corner_distance_mm(by_qform.geometry(), geometry), 1e-5);
      ++count;
    }
  EXPECT_EQ(count, 48);
}

TEST_P(NiftiWriting, WritesBothAffinesOfAnObliqueGrid) {
  round_trip(volume_of<float>(info_of(oblique({60, 50, 40}))));
  const std::string header = header_bytes();
  EXPECT_EQ(field<std::int16_t>(header, 252), 1);
  EXPECT_EQ(field<std::int16_t>(header, 254), 1);
  EXPECT_NEAR(field<float>(header, 80), 0.7, 1e-6);
  EXPECT_NEAR(field<float>(header, 88), 2.5, 1e-6);
  EXPECT_TRUE(same_grid(read(path(), NiftiAffine::qform).geometry(), oblique({60, 50, 40}), 5e-4));
}

TEST_P(NiftiWriting, WritesNoQformForASheared) {
  Affine map = oblique().index_to_world();
  for (int row = 0; row < 3; ++row) map.linear[row][2] += 0.4 * map.linear[row][1];
  const Geometry sheared(oblique().size(), map);
  const Read result = round_trip(volume_of<float>(info_of(sheared)));
  EXPECT_NEAR(result.geometry().shear(), sheared.shear(), 1e-6);
  EXPECT_EQ(field<std::int16_t>(header_bytes(), 252), 0);
}

TEST_P(NiftiWriting, KeepsFramesAndChannels) {
  const Read frames = round_trip(volume_of<float>(info_of(oblique(), 7, ComponentAxis::frames, 2.25)));
  EXPECT_EQ(frames.info().component_axis, ComponentAxis::frames);
  EXPECT_EQ(frames.info().frame_spacing, 2.25);
  EXPECT_EQ(field<std::int16_t>(header_bytes(), 40), 4);
  const Read channels = round_trip(volume_of<float>(info_of(oblique(), 3, ComponentAxis::channels)));
  EXPECT_EQ(channels.info().component_axis, ComponentAxis::channels);
  EXPECT_EQ(field<std::int16_t>(header_bytes(), 40), 5);
  EXPECT_EQ(field<std::int16_t>(header_bytes(), 68), 1007);
}

TEST_P(NiftiWriting, UsesNifti2ForLongAxes) {
  const Geometry geometry = Geometry::from_spacing({40000, 2, 1}, {0.1, 0.2, 0.3}, {1.0 / 3, 0, 0});
  const Read result = round_trip(volume_of<std::uint8_t>(info_of(geometry)));
  EXPECT_EQ(result.geometry(), geometry) << "double precision in the header";
  EXPECT_EQ(field<std::int32_t>(header_bytes(), 0), 540);
  round_trip(volume_of<std::uint8_t>(info_of(Geometry::from_spacing({32767, 2, 1}, {1, 1, 1}))));
  EXPECT_EQ(field<std::int32_t>(header_bytes(), 0), 348);
}

TEST_P(NiftiWriting, WritesEveryFieldThatReadersLookAt) {
  round_trip(volume_of<std::int16_t>(info_of(Geometry::from_spacing({5, 4, 3}, {1, 2, 3}))));
  const std::string header = header_bytes();
  EXPECT_EQ(header.size(), 352u + 120);
  EXPECT_EQ(header.substr(344, 4), std::string("n+1\0", 4));
  EXPECT_EQ(field<std::int16_t>(header, 70), 4);
  EXPECT_EQ(field<std::int16_t>(header, 72), 16);
  EXPECT_EQ(field<float>(header, 76), 1.0f);
  EXPECT_EQ(field<float>(header, 108), 352.0f);
  EXPECT_EQ(field<float>(header, 112), 1.0f);
  EXPECT_EQ(field<float>(header, 116), 0.0f);
  EXPECT_EQ(int(header[123]), 2 | 8);
  EXPECT_EQ(header.substr(148, 8), std::string("volpipe\0", 8));
}

TEST_P(NiftiWriting, EqualVolumesGiveEqualFiles) {
  const Volume volume = volume_of<float>(info_of(oblique({40, 30, 20})));
  write_nifti(volume, path(), {.overwrite = true});
  const std::string first = read_bytes(path());
  write_nifti(volume, path(), {.overwrite = true});
  EXPECT_EQ(read_bytes(path()), first);
}

TEST_P(NiftiWriting, RefusesAnExistingFile) {
  write_bytes(path(), "old");
  const Volume volume = volume_of<float>(info_of(oblique()));
  expect_error(ErrorCode::exists, "exists", [&] { write_nifti(volume, path()); });
  EXPECT_EQ(read_bytes(path()), "old");
}

TEST_P(NiftiWriting, RefusesAGridThatFloatCannotHold) {
  const Geometry far = Geometry::from_spacing({5, 4, 3}, {0.001, 0.001, 0.001}, {100.000003, 0, 0});
  const Volume volume = volume_of<float>(info_of(far));
  expect_error(ErrorCode::unsupported, ".nrrd", [&] { write_nifti(volume, path()); });
  const Volume huge = volume_of<float>(info_of(Geometry::from_spacing({5, 4, 3}, {1e39, 1e39, 1e39})));
  expect_error(ErrorCode::unsupported, ".nrrd", [&] { write_nifti(huge, path()); });
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(NiftiWriting, ReportsAFileThatMayNotGrow) {
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small = {1000, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const Volume volume = volume_of<float>(info_of(oblique({40, 30, 20})));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorCode::output, "ulimit -f", [&] { write_nifti(volume, path()); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(NiftiWriting, MeasuresItsTime) {
  WriteTiming written;
  write_nifti(volume_of<float>(info_of(oblique({60, 50, 40}))), path(), {}, &written);
  EXPECT_GT(written.write_ms, 0);
  EXPECT_EQ(written.encode_ms > 0, std::string(GetParam()) == ".nii.gz");
  ReadTiming timing;
  Notices notices;
  read_nifti(path(), Buffer::host, notices, &timing);
  EXPECT_GT(timing.read_ms, 0);
  EXPECT_GT(timing.decode_ms, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, NiftiWriting, ::testing::Values(".nii", ".nii.gz"),
                         [](const auto& info) { return std::string(info.param) == ".nii" ? "plain" : "packed"; });

TEST_F(Nifti, WritesOnlyNiftiNames) {
  const Volume volume = volume_of<float>(info_of(oblique()));
  for (const char* name : {"a.nrrd", "a.hdr", "a.gz"})
    expect_error(ErrorCode::usage, ".nii or .nii.gz", [&] { write_nifti(volume, folder_ / name); });
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(Nifti, AHeaderEncodesInEitherByteOrder) {
  for (const std::int64_t length : {50, 40000}) {
    NiftiHeader header = make_nifti_header(info_of(Geometry::from_spacing({length, 2, 3}, {1, 2, 3}, {4, 5, 6})));
    header.byte_swapped = true;
    const std::vector<std::byte> bytes = encode_nifti_header(header);
    const NiftiHeader back = parse_nifti_header(bytes);
    EXPECT_TRUE(back.byte_swapped);
    EXPECT_EQ(back.dim, header.dim);
    EXPECT_EQ(back.srow, header.srow);
    EXPECT_EQ(back.pixdim, header.pixdim);
    EXPECT_EQ(back.vox_offset, header.vox_offset);
    EXPECT_EQ(back.description, "volpipe");
  }
}

// ---- description

TEST_F(Nifti, DescribesItsHeader) {
  NiftiSample sample = int16_sample(true);
  sample.qform = 1, sample.sform = 2;
  sample.units = 3;
  sample.pixdim = {1000, 1000, 1000};
  sample.srow = {{1000, 0, 0, 50000}, {0, 1000, 0, 0}, {0, 0, 1000, 0}};
  const auto fields = describe_nifti_header(file(sample));
  const auto text = [&](const std::string& name) {
    for (const HeaderField& field : fields)
      if (field.name == name) return field.text;
    return std::string("absent");
  };
  EXPECT_EQ(text("format"), "NIfTI-1, big-endian");
  EXPECT_EQ(text("dim"), "3 4 5 6");
  EXPECT_EQ(text("datatype"), "int16 (4)");
  EXPECT_EQ(text("units"), "um, unknown");
  EXPECT_EQ(text("qform_code"), "1 (scanner)");
  EXPECT_EQ(text("sform_code"), "2 (aligned)");
  EXPECT_EQ(text("sform_mm"), "1 0 0 50; 0 1 0 0; 0 0 1 0");
  EXPECT_EQ(text("disagreement_mm"), "50");
  EXPECT_EQ(text("affine_used"), "sform");
  const auto sform =
      std::find_if(fields.begin(), fields.end(), [](const auto& field) { return field.name == "sform_mm"; });
  EXPECT_EQ(sform->numbers, (std::vector<double>{1, 0, 0, 50, 0, 1, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(sform->columns, 4u);
}

TEST_F(Nifti, DescribesWhatIsWrong) {
  NiftiSample sample;
  sample.srow = {{kNan, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  bool said = false;
  for (const HeaderField& field : describe_nifti_header(file(sample)))
    said |= field.name == "sform_mm" && field.text.starts_with("invalid: ") && field.numbers.empty();
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace volpipe::io
