#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "dicom_samples.h"
#include "io/io.h"
#include "sample_files.h"

namespace volpipe::test {

namespace {

using io::Found;
using io::Source;

struct DicomTest : testing::Test {
  TemporaryFolder folder;
  std::string series = folder / "series";

  Volume read_only_source(const std::string& path, Notices& notices) {
    const Found found = io::find_sources(path);
    EXPECT_TRUE(found.faults.empty()) << (found.faults.empty() ? "" : found.faults[0].message);
    if (found.sources.size() != 1) throw std::runtime_error(std::to_string(found.sources.size()) + " sources");
    Notices info_notices;
    const VolumeInfo info = io::read_info(found.sources[0], info_notices);
    Volume volume = io::read(found.sources[0], Buffer::host, notices);
    EXPECT_EQ(info, volume.info());
    return volume;
  }

  void expect_fault(const std::vector<std::string>& parts) {
    const Found found = io::find_sources(series);
    EXPECT_TRUE(found.sources.empty());
    ASSERT_EQ(found.faults.size(), 1u);
    for (const auto& part : parts)
      EXPECT_NE(found.faults[0].message.find(part), std::string::npos)
          << "no '" << part << "' in: " << found.faults[0].message;
  }

  Volume read_allowed(const io::ReadOptions& options, Notices& notices) {
    const Found found = io::find_sources(series, options);
    EXPECT_TRUE(found.faults.empty()) << (found.faults.empty() ? "" : found.faults[0].message);
    if (found.sources.size() != 1) throw std::runtime_error(std::to_string(found.sources.size()) + " sources");
    Notices info_notices;
    const VolumeInfo info = io::read_info(found.sources[0], info_notices, options);
    Volume volume = io::read(found.sources[0], Buffer::host, notices, nullptr, options);
    EXPECT_EQ(info, volume.info());
    return volume;
  }

  static void expect_notice(const Notices& notices, const std::string& code, const std::vector<std::string>& parts) {
    ASSERT_EQ(notices.list().size(), 1u);
    EXPECT_EQ(notices.list()[0].code, code);
    for (const auto& part : parts)
      EXPECT_NE(notices.list()[0].message.find(part), std::string::npos)
          << "no '" << part << "' in: " << notices.list()[0].message;
  }

  static bool has_notice(const Notices& notices, const std::string& code) {
    return std::any_of(notices.list().begin(), notices.list().end(),
                       [&](const Notice& notice) { return notice.code == code; });
  }
};

template <class T>
std::vector<T> first_of_each_slice(const Volume& volume) {
  const Index3 size = volume.geometry().size();
  std::vector<T> values;
  for (std::int64_t z = 0; z < size[2]; ++z) values.push_back(volume.data_as<T>()[z * size[0] * size[1]]);
  return values;
}

TEST_F(DicomTest, SortsByPositionWhateverTheNames) {
  std::filesystem::create_directories(series);
  const char* names[] = {"c", "a", "f", "b", "e", "d"};
  for (int k = 0; k < 6; ++k) {
    DicomSample sample;
    sample.value = 10 * (k + 1);
    sample.instance = 6 - k;
    sample.position = "1\\2\\" + std::to_string(2.5 * k);
    write_bytes(series + "/" + names[k], sample.bytes());
  }
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(volume.dtype(), DataType::int16);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(volume.geometry().orientation(), "LPS");
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{0.5, 0.5, 2.5}));
  EXPECT_EQ(volume.geometry().origin(), (Vec3{-1, -2, 0}));
  EXPECT_TRUE(notices.empty());
}

TEST_F(DicomTest, PixelSpacingIsBetweenRowsFirst) {
  write_dicom_slices(series, 2, [](DicomSample& s, int) {
    s.pixel_spacing = "0.7\\0.3 ";
    s.rows = 4;
    s.columns = 6;
  });
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(volume.geometry().size(), (Index3{6, 4, 2}));
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{0.3, 0.7, 2.5}));
}

TEST_F(DicomTest, DescendingPositionsGiveAnAscendingStack) {
  write_dicom_slices(series, 5, {}, -2.5);
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{50, 40, 30, 20, 10}));
  EXPECT_EQ(volume.geometry().origin()[2], -10);
}

TEST_F(DicomTest, MissingSliceNamesItsNeighbours) {
  write_dicom_slices(series, 6);
  std::filesystem::remove(series + "/3.dcm");
  expect_fault({"1 slice(s) are missing", "2.dcm and 4.dcm", "5 mm"});
}

TEST_F(DicomTest, DuplicateSliceNamesTheCopies) {
  write_dicom_slices(series, 6);
  std::filesystem::copy(series + "/2.dcm", series + "/2copy.dcm");
  expect_fault({"2.dcm, 2copy.dcm", "same position"});
}

TEST_F(DicomTest, UnevenStepsAreRefusedBeyondOnePercent) {
  const double z[] = {0, 2.5, 5, 7.6, 10, 12.5};
  write_dicom_slices(series, 6, [&](DicomSample& s, int k) { s.position = "0\\0\\" + std::to_string(z[k]); });
  expect_fault({"unevenly spaced", "2.dcm and 3.dcm", "2.6 mm"});
}

// Options: what is wrong is named with its cure, and what is allowed is said.

TEST_F(DicomTest, AllowedGapsKeepTheOrderAndTheMeanStep) {
  write_dicom_slices(series, 6);
  std::filesystem::remove(series + "/3.dcm");
  expect_fault({"--allow-gaps", "mean step of 3.125 mm"});
  Notices notices;
  const Volume volume = read_allowed({.allow_gaps = true}, notices);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{10, 20, 30, 50, 60}));
  EXPECT_EQ(volume.geometry().spacing()[2], 3.125);
  // Slices at 0 2.5 5 10 12.5 mm on a grid of 3.125 mm: 2.dcm is 6.25 - 5 mm away.
  expect_notice(notices, "gaps_allowed",
                {"1 slice(s) are missing", "2.dcm and 4.dcm", "3.125 mm", "1.25 mm", "(2.dcm)"});
}

TEST_F(DicomTest, AllowedUnevenStepsGiveTheLargestDeviation) {
  const double z[] = {0, 2.5, 5, 7.6, 10, 12.5};
  write_dicom_slices(series, 6, [&](DicomSample& s, int k) { s.position = "0\\0\\" + std::to_string(z[k]); });
  expect_fault({"--allow-gaps"});
  Notices notices;
  EXPECT_NEAR(read_allowed({.allow_gaps = true}, notices).geometry().spacing()[2], 2.5, 1e-12);
  expect_notice(notices, "gaps_allowed", {"unevenly spaced", "0.1 mm", "3.dcm"});
}

TEST_F(DicomTest, AllowedGapsOfATiltedGantryStayOnItsLine) {
  const auto place = [](double z) { return "0\\" + std::to_string(0.3 * z) + "\\" + std::to_string(z); };
  write_dicom_slices(series, 6, [&](DicomSample& s, int k) { s.position = place(2.5 * k); });
  std::filesystem::remove(series + "/2.dcm");
  Notices notices;
  const Volume volume = read_allowed({.allow_gaps = true}, notices);
  EXPECT_TRUE(has_notice(notices, "gaps_allowed"));
  EXPECT_TRUE(has_notice(notices, "gantry_tilt"));
  EXPECT_NEAR(volume.geometry().index_to_world().linear[2][2], 3.125, 1e-9);

  write_dicom_slices(series, 6, [&](DicomSample& s, int k) { s.position = k == 4 ? "3\\0\\10" : place(2.5 * k); });
  std::filesystem::remove(series + "/2.dcm");
  const Found found = io::find_sources(series, {.allow_gaps = true});
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_NE(found.faults[0].message.find("straight line"), std::string::npos) << found.faults[0].message;
}

TEST_F(DicomTest, OfAllowedCopiesTheFirstByNameIsUsed) {
  write_dicom_slices(series, 6);
  DicomSample copy;
  copy.instance = 30;
  copy.value = 999;
  copy.position = "0\\0\\5.000000";
  write_bytes(series + "/1zcopy.dcm", copy.bytes());
  expect_fault({"--allow-duplicates", "1zcopy.dcm"});
  Notices notices;
  const Volume volume = read_allowed({.allow_duplicates = true}, notices);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{10, 20, 999, 40, 50, 60}));
  expect_notice(notices, "duplicates_left_out", {"2.dcm: left out", "1zcopy.dcm"});
  const Found found = io::find_sources(series, {.allow_duplicates = true});
  EXPECT_EQ(found.sources[0].files.size(), 7u);
}

TEST_F(DicomTest, AllowedRepeatsThatNothingTellsApartGiveOneVolume) {
  write_dicom_slices(series, 8, [](DicomSample& s, int k) { s.position = "0\\0\\" + std::to_string(2.5 * (k / 2)); });
  Notices notices;
  EXPECT_EQ(first_of_each_slice<std::int16_t>(read_allowed({.allow_duplicates = true}, notices)),
            (std::vector<std::int16_t>{10, 30, 50, 70}));
  expect_notice(notices, "duplicates_left_out", {"1.dcm, 3.dcm, 5.dcm, 7.dcm"});
}

TEST_F(DicomTest, AllowedLackOfGeometryGoesByInstanceNumber) {
  write_dicom_slices(series, 4, [](DicomSample& s, int k) {
    s.position.reset();
    s.orientation.reset();
    s.pixel_spacing.reset();
    s.thickness.reset();
    s.instance = 4 - k;
  });
  expect_fault({"--allow-no-geometry", "ImagePositionPatient"});
  Notices notices;
  const Volume volume = read_allowed({.allow_no_geometry = true}, notices);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{40, 30, 20, 10}));
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{1, 1, 1}));
  EXPECT_EQ(volume.geometry().origin(), (Vec3{0, 0, 0}));
  EXPECT_EQ(volume.geometry().orientation(), "LPS");
  expect_notice(notices, "geometry_assumed", {"3.dcm, 2.dcm, 1.dcm, 0.dcm", "axial", "1 mm", "InstanceNumber"});
}

TEST_F(DicomTest, AllowedLackOfGeometryKeepsWhatIsKnown) {
  write_dicom_slices(series, 3, [](DicomSample& s, int) {
    s.pixel_spacing.reset();
    s.orientation = "0\\1\\0\\0\\0\\-1";
    s.position = "7\\0\\0";
  });
  for (int k = 0; k < 3; ++k) {
    DicomSample sample;
    sample.instance = 3 - k;
    sample.value = 10 * (k + 1);
    sample.orientation = "0\\1\\0\\0\\0\\-1";
    sample.position = std::to_string(-4 * k) + "\\0\\0";
    sample.pixel_spacing.reset();
    write_bytes(series + "/" + std::to_string(k) + ".dcm", sample.bytes());
  }
  expect_fault({"--allow-no-geometry", "PixelSpacing"});
  Notices notices;
  const Volume volume = read_allowed({.allow_no_geometry = true}, notices);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{10, 20, 30}));
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{1, 1, 4}));
  EXPECT_EQ(volume.geometry().orientation(), "PIR");
  expect_notice(notices, "geometry_assumed", {"the pixels are taken for 1 mm"});
}

TEST_F(DicomTest, FramesAndSingleSlicesWithoutGeometryAreAllowed) {
  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.frames = "5"; });
  expect_fault({"5 frames without a position", "--allow-no-geometry"});
  Notices notices;
  const Volume frames = read_allowed({.allow_no_geometry = true}, notices);
  EXPECT_EQ(frames.geometry().size(), (Index3{8, 8, 5}));
  EXPECT_EQ(frames.geometry().spacing(), (Vec3{0.5, 0.5, 2.5}));
  expect_notice(notices, "geometry_assumed", {"frame 1 of 0.dcm", "2.5 mm apart as SliceThickness says"});

  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.thickness.reset(); });
  expect_fault({"single slice", "--allow-no-geometry"});
  Notices single;
  EXPECT_EQ(read_allowed({.allow_no_geometry = true}, single).geometry().spacing()[2], 1);
  expect_notice(single, "geometry_assumed", {"1 mm thick"});

  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.frames = "70000"; });
  expect_fault({"70000"});
}

TEST_F(DicomTest, AllowingEverythingChangesNothingOfASoundSeries) {
  write_dicom_slices(series, 6);
  const io::ReadOptions all{.allow_gaps = true, .allow_duplicates = true, .allow_no_geometry = true};
  Notices notices, allowed_notices;
  const Volume volume = read_only_source(series, notices), allowed = read_allowed(all, allowed_notices);
  EXPECT_EQ(allowed.info(), volume.info());
  EXPECT_EQ(std::memcmp(allowed.data(), volume.data(), volume.info().bytes()), 0);
  EXPECT_TRUE(allowed_notices.empty());
}

TEST_F(DicomTest, ThreadsChangeNeitherVoxelsNorErrors) {
  write_dicom_slices(series, 40, [](DicomSample& s, int k) { s.slope = std::to_string(1 + k % 3); });
  Notices notices;
  const Volume alone = read_only_source(series, notices);
  const HostThreads threads(8);
  const io::ReadOptions options{.threads = &threads};
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Volume together = read_allowed(options, notices);
    ASSERT_EQ(std::memcmp(together.data(), alone.data(), alone.info().bytes()), 0);
  }
  const Source source = io::find_sources(series).sources[0];
  for (const int broken : {31, 17, 5}) {
    std::filesystem::resize_file(series + "/" + std::to_string(broken) + ".dcm", 150);
    const std::string name = "/" + std::to_string(broken) + ".dcm";
    for (int repeat = 0; repeat < 50; ++repeat) try {
        io::read(source, Buffer::host, notices, nullptr, options);
        FAIL() << "no error";
      } catch (const Error& error) { ASSERT_TRUE(error.path().ends_with(name)) << error.path(); }
  }
  const Found one = io::find_sources(series), many = io::find_sources(series, options);
  ASSERT_EQ(one.faults.size(), many.faults.size());
  for (std::size_t i = 0; i < one.faults.size(); ++i) EXPECT_EQ(one.faults[i].message, many.faults[i].message);
}

TEST_F(DicomTest, TimesOfReadingAddUpToTheTimeThatPassed) {
  write_dicom_slices(series, 20);
  const HostThreads threads(4);
  Notices notices;
  const Source source = io::find_sources(series).sources[0];
  io::ReadTiming timing;
  const auto start = std::chrono::steady_clock::now();
  io::read(source, Buffer::host, notices, &timing, {.threads = &threads});
  const double passed = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(timing.read_ms, 0);
  EXPECT_GT(timing.decode_ms, 0);
  EXPECT_LE(timing.read_ms + timing.decode_ms, passed);
}

TEST_F(DicomTest, TheHeaderIsDescribed) {
  write_dicom_slices(series, 3, [](DicomSample& s, int k) { s.slope = std::to_string(k + 1); });
  const auto fields = io::describe_header(io::find_sources(series).sources[0]);
  const auto field = [&](const std::string& name) {
    for (const io::HeaderField& field : fields)
      if (field.name == name) return field;
    return io::HeaderField{};
  };
  EXPECT_EQ(field("format").text, "DICOM");
  EXPECT_EQ(field("transfer_syntax").text, "1.2.840.10008.1.2.1");
  EXPECT_EQ(field("rescale_slope").numbers, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(field("positions_lps_mm").numbers, (std::vector<double>{0, 0, 0, 0, 0, 2.5, 0, 0, 5}));
  EXPECT_EQ(field("positions_lps_mm").text, "0 0 0 ... 0 0 5");
}

TEST_F(DicomTest, RoundedPositionsAreAccepted) {
  const double z[] = {0, 2.5, 5.01, 7.5, 10, 12.5};
  write_dicom_slices(series, 6, [&](DicomSample& s, int k) { s.position = "0\\0\\" + std::to_string(z[k]); });
  Notices notices;
  EXPECT_NEAR(read_only_source(series, notices).geometry().spacing()[2], 2.5, 1e-12);
}

TEST_F(DicomTest, TwoSeriesAreTwoSources) {
  write_dicom_slices(series, 4);
  for (int k = 0; k < 4; ++k) {
    DicomSample sample;
    sample.series = "1.2.3.2";
    sample.series_number = "7";
    sample.value = 500 + k;
    sample.position = "0\\0\\" + std::to_string(2.5 * k);
    write_bytes(series + "/y" + std::to_string(k), sample.bytes());
  }
  const Found found = io::find_sources(series);
  ASSERT_EQ(found.sources.size(), 2u);
  EXPECT_EQ(found.sources[0].stem, "series_1");
  EXPECT_EQ(found.sources[1].stem, "series_7");
  EXPECT_EQ(found.sources[1].series_uid, "1.2.3.2");
  EXPECT_EQ(found.sources[1].files.size(), 4u);
}

TEST_F(DicomTest, LocalizerAndOtherOrientationStandApart) {
  write_dicom_slices(series, 4);
  DicomSample localizer;
  localizer.orientation = "0\\1\\0\\0\\0\\-1";
  localizer.image_type = "ORIGINAL\\PRIMARY\\LOCALIZER";
  write_bytes(series + "/localizer", localizer.bytes());
  const Found found = io::find_sources(series);
  ASSERT_EQ(found.sources.size(), 2u);
  EXPECT_TRUE(found.faults.empty());
  EXPECT_EQ(found.sources[0].stem, "series_1_1");
  EXPECT_EQ(found.sources[1].stem, "series_1_2");
}

struct RepeatCase {
  const char* what;
  std::string DicomSample::*field;
  std::string first, second;
};

class DicomRepeats : public DicomTest, public testing::WithParamInterface<RepeatCase> {};

TEST_P(DicomRepeats, VolumesUnderOneUidAreToldApart) {
  write_dicom_slices(series, 8, [](DicomSample& s, int k) {
    s.position = "0\\0\\" + std::to_string(2.5 * (k / 2));
    s.*GetParam().field = k % 2 ? GetParam().second : GetParam().first;
  });
  const Found found = io::find_sources(series);
  ASSERT_EQ(found.sources.size(), 2u) << (found.faults.empty() ? "" : found.faults[0].message);
  Notices notices;
  EXPECT_EQ(first_of_each_slice<std::int16_t>(io::read(found.sources[0], Buffer::host, notices)),
            (std::vector<std::int16_t>{10, 30, 50, 70}));
  EXPECT_EQ(first_of_each_slice<std::int16_t>(io::read(found.sources[1], Buffer::host, notices)),
            (std::vector<std::int16_t>{20, 40, 60, 80}));
}

INSTANTIATE_TEST_SUITE_P(Marks, DicomRepeats,
                         testing::Values(RepeatCase{"acquisition", &DicomSample::acquisition, "2", "10"},
                                         RepeatCase{"echo_number", &DicomSample::echo_number, "1", "2"},
                                         RepeatCase{"echo_time", &DicomSample::echo_time, "4.92", "7.38"},
                                         RepeatCase{"temporal", &DicomSample::temporal_position, "9", "10"}),
                         [](const auto& test) { return test.param.what; });

TEST_F(DicomTest, RepeatsThatNothingTellsApartAreRefused) {
  write_dicom_slices(series, 8, [](DicomSample& s, int k) { s.position = "0\\0\\" + std::to_string(2.5 * (k / 2)); });
  expect_fault({"0.dcm, 1.dcm", "same position", "nothing in their headers"});
}

TEST_F(DicomTest, GantryTiltIsKeptAsShear) {
  const double angle = 20 * std::acos(-1.0) / 180;
  write_dicom_slices(series, 6, [&](DicomSample& s, int) {
    s.orientation = "1\\0\\0\\0\\" + std::to_string(std::cos(angle)) + "\\" + std::to_string(-std::sin(angle));
  });
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_TRUE(has_notice(notices, "gantry_tilt"));
  EXPECT_NEAR(volume.geometry().shear(), std::sin(angle), 1e-6);
  EXPECT_NEAR(volume.geometry().spacing()[2], 2.5, 1e-12);
  EXPECT_EQ(volume.geometry().index_to_world().linear.column(2), (Vec3{0, 0, 2.5}));
}

TEST_F(DicomTest, SlopesThatVaryGiveFloats) {
  const char* slopes[] = {"1", "0.5", "0.25 ", "+2"};
  write_dicom_slices(series, 4, [&](DicomSample& s, int k) {
    s.slope = slopes[k];
    s.value = 101;
  });
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(volume.dtype(), DataType::float32);
  EXPECT_EQ(first_of_each_slice<float>(volume), (std::vector<float>{101, 50.5f, 25.25f, 202}));
}

struct ValueCase {
  const char* what;
  int allocated, stored, high_bit, is_signed;
  std::string slope, intercept;
  int value;
  DataType type;
  double expected;
};

class DicomValues : public DicomTest, public testing::WithParamInterface<ValueCase> {};

TEST_P(DicomValues, TypeAndValue) {
  const ValueCase& c = GetParam();
  write_dicom_slices(series, 2, [&](DicomSample& s, int) {
    s.bits_allocated = c.allocated;
    s.bits_stored = c.stored;
    s.high_bit = c.high_bit;
    s.is_signed = c.is_signed;
    s.slope = c.slope;
    s.intercept = c.intercept;
    s.value = c.value;
  });
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(volume.dtype(), c.type);
  const double value =
      visit(volume.dtype(), [&](auto tag) { return double(volume.data_as<typename decltype(tag)::type>()[5]); });
  EXPECT_EQ(value, c.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Stored, DicomValues,
    testing::Values(ValueCase{"uint8", 8, 8, 7, 0, "1", "0", 200, DataType::uint8, 200},
                    ValueCase{"int8", 8, 8, 7, 1, "1", "0", -3, DataType::int8, -3},
                    ValueCase{"uint16", 16, 16, 15, 0, "1", "0", 65535, DataType::uint16, 65535},
                    ValueCase{"uint32", 32, 32, 31, 0, "1", "0", -1, DataType::uint32, 4294967295.0},
                    ValueCase{"no_rescale", 16, 16, 15, 1, "", "", -7, DataType::int16, -7},
                    ValueCase{"usual_ct", 16, 12, 11, 0, "1", "-1024", 24, DataType::int16, -1000},
                    ValueCase{"full_range_ct", 16, 16, 15, 1, "1", "-1024", -32768, DataType::int32, -33792},
                    ValueCase{"twelve_bits_signed", 16, 12, 11, 1, "1", "0", 0x0fff, DataType::int16, -1},
                    ValueCase{"overlay_bits_masked", 16, 12, 11, 0, "1", "0", 0x7005, DataType::uint16, 5},
                    ValueCase{"high_bit_15", 16, 12, 15, 0, "1", "0", 0x0150, DataType::uint16, 0x15},
                    ValueCase{"fraction", 16, 12, 11, 0, "0.5", "0.25", 3, DataType::float32, 1.75},
                    ValueCase{"fraction_of_32_bits", 32, 32, 31, 1, "0.5", "0", 16777217, DataType::float64,
                              8388608.5}),
    [](const auto& test) { return test.param.what; });

TEST_F(DicomTest, Monochrome1IsNotInverted) {
  write_dicom_slices(series, 3, [](DicomSample& s, int) { s.photometric = "MONOCHROME1"; });
  Notices notices;
  EXPECT_EQ(first_of_each_slice<std::int16_t>(read_only_source(series, notices)),
            (std::vector<std::int16_t>{10, 20, 30}));
}

TEST_F(DicomTest, OtherKindsOfGreyAreRefused) {
  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.photometric = "MONOCHROME3"; });
  expect_fault({"images of type MONOCHROME3", "grey or 8-bit RGB is expected"});
}

TEST_F(DicomTest, ColourIsThreeChannels) {
  for (const int planar : {0, 1}) {
    write_dicom_slices(series, 2, [&](DicomSample& s, int k) {
      s.photometric = "RGB";
      s.samples = 3;
      s.planar = planar;
      s.bits_allocated = s.bits_stored = 8;
      s.is_signed = 0;
      s.rows = 1;
      s.columns = 2;
      const char a = char(10 * k);
      s.pixels = planar ? std::string{a, char(a + 1), 50, 51, 90, 91} : std::string{a, 50, 90, char(a + 1), 51, 91};
    });
    Notices notices;
    const Volume volume = read_only_source(series, notices);
    EXPECT_EQ(volume.info().component_axis, ComponentAxis::channels);
    const auto* values = volume.data_as<std::uint8_t>();
    EXPECT_EQ(std::vector<int>(values, values + 12), (std::vector<int>{0, 1, 10, 11, 50, 51, 50, 51, 90, 91, 90, 91}));
  }
}

TEST_F(DicomTest, NoPositionOrSpacingIsRefusedByName) {
  write_dicom_slices(series, 3, [](DicomSample& s, int) { s.position.reset(); });
  expect_fault({"0.dcm, 1.dcm, 2.dcm", "ImagePositionPatient is missing"});
  write_dicom_slices(series, 3, [](DicomSample& s, int) { s.orientation.reset(); });
  expect_fault({"ImageOrientationPatient is missing"});
  write_dicom_slices(series, 3, [](DicomSample& s, int) { s.pixel_spacing.reset(); });
  expect_fault({"0.dcm, 1.dcm, 2.dcm", "PixelSpacing is missing"});
}

TEST_F(DicomTest, ShortPixelDataIsAnErrorOfTheSeries) {
  write_dicom_slices(series, 4, [](DicomSample& s, int k) { s.cut = k == 2 ? 60 : 0; });
  expect_fault({"2.dcm", "68 bytes of the 128"});
  Notices notices;
  const Source source{series, {series + "/1.dcm", series + "/2.dcm"}, {}, {}, {}};
  expect_error(ErrorCode::input, "2.dcm", [&] { io::read_info(source, notices); });
  expect_error(ErrorCode::input, "2.dcm", [&] { io::read(source, Buffer::host, notices); });
}

TEST_F(DicomTest, LongPixelDataIsANotice) {
  write_dicom_slices(series, 3, [](DicomSample& s, int k) {
    s.pixels = std::string(128, '\1');
    if (k == 1) s.pixels += std::string(16, '\1');
  });
  Notices notices;
  read_only_source(series, notices);
  EXPECT_TRUE(has_notice(notices, "trailing_bytes"));
}

TEST_F(DicomTest, UnknownTransferSyntaxIsNamed) {
  write_dicom_slices(series, 2, [](DicomSample& s, int) { s.syntax = "1.2.840.10008.1.2.4.201"; });
  expect_fault({"1.2.840.10008.1.2.4.201", "High-Throughput JPEG 2000", "not supported"});
  Notices notices;
  const Source source{series, {series + "/0.dcm", series + "/1.dcm"}, {}, {}, {}};
  expect_error(ErrorCode::unsupported, "1.2.840", [&] { io::read_info(source, notices); });
}

TEST_F(DicomTest, PixelsThatDoNotLieAsTheirSyntaxSaysAreRefused) {
  write_dicom_slices(series, 2, [](DicomSample& s, int) { s.syntax = "1.2.840.10008.1.2.5"; });
  expect_fault({"0.dcm", "announces compressed pixels"});
}

TEST_F(DicomTest, SlicesOfAlternatingSignAreOneFault) {
  write_dicom_slices(series, 6, [](DicomSample& s, int k) { s.is_signed = k % 2; });
  expect_fault({"0.dcm", "1.dcm", "pixel type"});
}

TEST_F(DicomTest, ASeriesThatSplitsIsANotice) {
  write_dicom_slices(series, 6, [](DicomSample& s, int k) {
    if (k >= 3) s.rows = 6;
  });
  const Found found = io::find_sources(series);
  EXPECT_EQ(found.sources.size(), 2u);
  EXPECT_TRUE(has_notice(found.notices, "series_split"));
}

TEST_F(DicomTest, FileCutBeforeItsPixelsIsAFault) {
  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.cut = 140; });
  expect_fault({"0.dcm", "ends before its pixel data"});
}

TEST_F(DicomTest, SingleSliceTakesItsThicknessWithANotice) {
  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.thickness = "5"; });
  Notices notices;
  EXPECT_EQ(read_only_source(series, notices).geometry().spacing()[2], 5);
  EXPECT_TRUE(has_notice(notices, "slice_thickness"));

  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.between_slices = "3"; });
  Notices none;
  EXPECT_EQ(read_only_source(series, none).geometry().spacing()[2], 3);
  EXPECT_TRUE(none.empty());

  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.thickness = ""; });
  expect_fault({"0.dcm", "single slice"});
}

TEST_F(DicomTest, SeveralSlicesDoNotNeedAThickness) {
  write_dicom_slices(series, 3, [](DicomSample& s, int) { s.thickness = ""; });
  Notices notices;
  EXPECT_EQ(read_only_source(series, notices).geometry().spacing()[2], 2.5);
}

TEST_F(DicomTest, ClassicMultiFrameIsRefused) {
  write_dicom_slices(series, 1, [](DicomSample& s, int) { s.frames = "5"; });
  expect_fault({"5 frames without a position"});
}

TEST_F(DicomTest, JunkBesideIsCounted) {
  write_dicom_slices(series, 3);
  write_bytes(series + "/readme.txt", "hello");
  write_bytes(series + "/empty.dcm", "");
  write_bytes(series + "/._0.dcm", std::string("\0\5\x16\7", 4) + std::string(100, 'x'));
  const Found found = io::find_sources(series);
  ASSERT_EQ(found.sources.size(), 1u);
  EXPECT_TRUE(found.faults.empty());
  ASSERT_EQ(found.notices.list().size(), 1u);
  EXPECT_EQ(found.notices.list()[0].message, "passed over 3 files that are not volumes");
}

TEST_F(DicomTest, FilesWithoutPreambleAreTriedByName) {
  write_dicom_slices(series, 2, [](DicomSample& s, int) { s.preamble = false; });
  Notices notices;
  EXPECT_EQ(read_only_source(series, notices).geometry().size()[2], 2);
}

TEST_F(DicomTest, GarbageNamedDcmIsAFault) {
  write_dicom_slices(series, 2);
  write_bytes(series + "/garbage.dcm", std::string(500, 'x'));
  const Found found = io::find_sources(series);
  EXPECT_EQ(found.sources.size(), 1u);
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_NE(found.faults[0].path.find("garbage.dcm"), std::string::npos);
}

TEST_F(DicomTest, PathsMayHoldSpacesAndAnyLetters) {
  series = folder / "S unicode é 画像";
  write_dicom_slices(series, 4);
  Notices notices;
  EXPECT_EQ(read_only_source(series, notices).geometry().size()[2], 4);
}

std::string rle_fragments(const std::string& bytes16) {
  const std::size_t count = bytes16.size() / 2;
  std::string segments[2];
  for (int segment = 0; segment < 2; ++segment)
    for (std::size_t i = 0; i < count; i += 64) {
      segments[segment] += char(std::min<std::size_t>(64, count - i) - 1);
      for (std::size_t j = i; j < std::min(count, i + 64); ++j)
        segments[segment] += bytes16[2 * j + (segment == 0 ? 1 : 0)];
    }
  std::string frame = little_endian(2, 4) + little_endian(64, 4) + little_endian(64 + segments[0].size(), 4);
  frame.resize(64, '\0');
  frame += segments[0] + segments[1];
  if (frame.size() % 2) frame += '\0';
  const auto item = [](const std::string& value) {
    return little_endian(0xfffe, 2) + little_endian(0xe000, 2) + little_endian(value.size(), 4) + value;
  };
  return item("") + item(frame) + little_endian(0xfffe, 2) + little_endian(0xe0dd, 2) + little_endian(0, 4);
}

void write_rle_series(const std::string& folder, std::size_t cut) {
  write_dicom_slices(folder, 2, [&](DicomSample& s, int k) {
    std::string bytes;
    for (int i = 0; i < 64; ++i) bytes += little_endian(std::uint16_t(-300 + 7 * i + k), 2);
    s.syntax = "1.2.840.10008.1.2.5";
    s.encapsulated = true;
    s.pixels = rle_fragments(bytes);
    s.cut = cut;
  });
}

TEST_F(DicomTest, CompressedSlicesAreDecoded) {
  write_rle_series(series, 0);
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  for (int i = 0; i < 128; ++i) ASSERT_EQ(volume.data_as<std::int16_t>()[i], -300 + 7 * (i % 64) + i / 64);
}

/// An enhanced MR file of `positions` slices with `repeats` frames each, the repeats told apart by their echo time.
DicomSample enhanced_sample(int positions, int repeats, bool slices_first) {
  DicomSample sample;
  sample.sop = "1.2.840.10008.5.1.4.1.1.4.1";
  sample.position.reset();
  sample.orientation.reset();
  sample.pixel_spacing.reset();
  sample.slope = sample.intercept = "";
  sample.frames = std::to_string(positions * repeats);
  sample.rows = sample.columns = 2;
  std::vector<std::string> items;
  for (int i = 0; i < positions * repeats; ++i) {
    const int slice = slices_first ? i % positions : i / repeats;
    const int repeat = slices_first ? i / positions : i % repeats;
    items.push_back(
        dicom_sequence(0x18, 0x9114, {dicom_element(0x18, 0x9082, "FD", fd(5.0 + repeat))}) +
        dicom_sequence(0x20, 0x9113,
                       {dicom_element(0x20, 0x32, "DS", "0\\0\\" + std::to_string(3 * (positions - slice)))}) +
        dicom_sequence(
            0x28, 0x9145,
            {dicom_element(0x28, 0x1052, "DS", "0") + dicom_element(0x28, 0x1053, "DS", repeat ? "2" : "1")}));
    for (int p = 0; p < 4; ++p) sample.pixels += little_endian(std::uint64_t(100 * repeat + slice), 2);
  }
  sample.functional_groups =
      dicom_sequence(
          0x5200, 0x9229,
          {dicom_sequence(0x20, 0x9116, {dicom_element(0x20, 0x37, "DS", "1\\0\\0\\0\\1\\0")}) +
           dicom_sequence(0x28, 0x9110,
                          {dicom_element(0x18, 0x50, "DS", "3") + dicom_element(0x28, 0x30, "DS", "1.5\\1.25")})}) +
      dicom_sequence(0x5200, 0x9230, items);
  return sample;
}

TEST_F(DicomTest, ADamagedByteNeverEndsTheProcess) {
  std::filesystem::create_directories(series);
  DicomSample sample = enhanced_sample(2, 1, true);
  sample.acquisition = "1";
  const std::string sound = sample.bytes();
  for (std::size_t at = 128; at < sound.size(); ++at)
    for (const char value : {char(0xff), '\0', '9'}) {
      std::string damaged = sound;
      damaged[at] = value;
      write_bytes(series + "/0.dcm", damaged);
      try {
        Notices notices;
        for (const Source& source : io::find_sources(series).sources) io::read(source, Buffer::host, notices);
      } catch (const Error&) {}
    }
}

TEST_F(DicomTest, CompressedSlicesCutShortAreErrors) {
  for (const std::size_t cut : {20, 60, 100}) {
    write_rle_series(series, cut);
    Notices notices;
    const Found found = io::find_sources(series);
    if (found.sources.empty()) continue;
    expect_error(ErrorCode::input, ".dcm", [&] { io::read(found.sources[0], Buffer::host, notices); });
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_F(DicomTest, SizesBeyondSixteenBitsAreRefused) {
  std::filesystem::create_directories(series);
  std::string bytes = enhanced_sample(4, 1, true).bytes();
  const auto widen = [&](std::uint16_t number, std::uint16_t was, std::uint64_t value, int width) {
    bytes = replaced(bytes, dicom_element(0x28, number, "US", us(was)),
                     dicom_element(0x28, number, "US", little_endian(value, width)));
  };
  widen(0x10, 2, 1 << 30, 4);
  widen(0x11, 2, 1 << 30, 4);
  widen(0x100, 16, 32, 2);  // so that all frames together have 2^64 bytes
  widen(0x101, 16, 32, 2);
  widen(0x102, 15, 31, 2);
  write_bytes(series + "/0.dcm", bytes);
  expect_fault({"1073741824 rows", "expected 1 to 65535"});
}

TEST_F(DicomTest, NumbersOfFramesBeyondAnyFileAreRefused) {
  for (const char* count : {"1e300", "-1e300", "0", "4294967296"}) {
    write_dicom_slices(series, 1, [&](DicomSample& s, int) {
      s.frames = count;
      s.pixels = "ab";
    });
    expect_fault({"NumberOfFrames is"});
  }
}

TEST_F(DicomTest, TextThatEveryFrameWouldRepeatIsBounded) {
  std::filesystem::create_directories(series);
  DicomSample sample = enhanced_sample(2, 1, true);
  sample.image_type = std::string(2000, 'A');
  write_bytes(series + "/0.dcm", sample.bytes());
  expect_fault({"ImageType has 2000 characters"});
}

TEST_F(DicomTest, RleThatCannotHoldTheImageIsAFaultOfTheHeader) {
  write_rle_series(series, 0);
  write_bytes(series + "/0.dcm", replaced(read_bytes(series + "/0.dcm"), dicom_element(0x28, 0x10, "US", us(8)),
                                          dicom_element(0x28, 0x10, "US", us(60000))));
  std::filesystem::remove(series + "/1.dcm");
  expect_fault({"960000 bytes", "more than RLE can pack"});
}

TEST_F(DicomTest, EnhancedFramesAreSortedByTheirOwnPositions) {
  std::filesystem::create_directories(series);
  write_bytes(series + "/enhanced", enhanced_sample(3, 1, true).bytes());
  Notices notices;
  const Volume volume = read_only_source(series, notices);
  EXPECT_EQ(volume.dtype(), DataType::int16);
  EXPECT_EQ(first_of_each_slice<std::int16_t>(volume), (std::vector<std::int16_t>{2, 1, 0}));
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{1.25, 1.5, 3}));
  EXPECT_EQ(volume.geometry().origin(), (Vec3{0, 0, 3}));
}

TEST_F(DicomTest, EnhancedRepeatsAreFrames) {
  for (const bool slices_first : {false, true}) {
    std::filesystem::create_directories(series);
    write_bytes(series + "/enhanced", enhanced_sample(3, 2, slices_first).bytes());
    Notices notices;
    const Volume volume = read_only_source(series, notices);
    ASSERT_EQ(volume.info().components, 2);
    EXPECT_EQ(volume.info().component_axis, ComponentAxis::frames);
    EXPECT_EQ(volume.dtype(), DataType::float32);
    const auto* values = volume.data_as<float>();
    EXPECT_EQ((std::vector<float>{values[0], values[4], values[8]}), (std::vector<float>{2, 1, 0}));
    EXPECT_EQ((std::vector<float>{values[12], values[16], values[20]}), (std::vector<float>{204, 202, 200}));
  }
}

TEST_F(DicomTest, PartialEnhancedRepeatsAreRefused) {
  std::filesystem::create_directories(series);
  DicomSample sample = enhanced_sample(3, 2, true);
  sample.frames = "5";
  write_bytes(series + "/0.dcm", sample.bytes());
  expect_fault({"announces 5 frames and describes 6"});
}

TEST_F(DicomTest, WrittenSeriesReadsBack) {
  const double c = std::cos(0.3), s = std::sin(0.3);
  const Matrix3 direction{{{{c, -s, 0}, {s, c, 0}, {0, 0, 1}}}};
  const VolumeInfo info{.geometry = Geometry::from_spacing({5, 4, 3}, {0.7, 0.8, 2.5}, {-20, 30.5, 100}, direction),
                        .dtype = DataType::int16};
  Volume volume(info, Buffer::host(info.bytes()));
  for (int i = 0; i < 60; ++i) volume.data_as<std::int16_t>()[i] = std::int16_t(-1000 + 31 * i);
  io::write_dicom_series(volume, series, "phantom");
  EXPECT_TRUE(std::filesystem::exists(series + "/slice_0003.dcm"));
  Notices notices;
  const Volume back = read_only_source(series, notices);
  EXPECT_EQ(back.dtype(), DataType::int16);
  EXPECT_TRUE(same_grid(back.geometry(), volume.geometry(), 1e-6));
  EXPECT_EQ(std::memcmp(back.data(), volume.data(), info.bytes()), 0);

  io::write_dicom_series(volume, folder / "again", "phantom");
  EXPECT_EQ(read_bytes(folder / "again/slice_0002.dcm"), read_bytes(series + "/slice_0002.dcm"));
  expect_error(ErrorCode::exists, "slice_0001.dcm", [&] { io::write_dicom_series(volume, series, "phantom"); });
}

TEST_F(DicomTest, ValuesBeyondSixteenBitsAreNotWritten) {
  const VolumeInfo info{.geometry = Geometry({1, 1, 1}, {}), .dtype = DataType::float32};
  Volume volume(info, Buffer::host(info.bytes()));
  volume.data_as<float>()[0] = 40000;
  expect_error(ErrorCode::unsupported, "40000", [&] { io::write_dicom_series(volume, series, "phantom"); });
}

struct RealDicom : DicomTest {};

TEST_F(RealDicom, SeriesOfSeventeenSlices) {
  const auto path = sample_file("torchio_dicom");
  if (path.empty()) GTEST_SKIP() << "the shared data folder is absent";
  Notices notices;
  const Volume volume = read_only_source(path, notices);
  EXPECT_EQ(volume.geometry().size(), (Index3{88, 128, 17}));
  EXPECT_EQ(volume.geometry().orientation(), "RAS");
  const auto* values = volume.data_as<std::int16_t>();
  EXPECT_EQ(std::accumulate(values, values + volume.info().value_count(), std::int64_t(0)), 28382022);
}

TEST_F(RealDicom, EnhancedFieldMapHasMagnitudeAndPhase) {
  const auto path = sample_file("dicom_enhanced");
  if (path.empty()) GTEST_SKIP() << "the shared data folder is absent";
  Notices notices;
  const Volume volume = read_only_source(path, notices);
  EXPECT_EQ(volume.geometry().size(), (Index3{64, 64, 32}));
  EXPECT_EQ(volume.info().components, 2);
  EXPECT_EQ(volume.dtype(), DataType::float32);
}

TEST_F(RealDicom, OddHeaders) {
  const auto decimal = sample_file("nibabel_dicom/decimal_rescale.dcm");
  const auto empty = sample_file("nibabel_dicom/slicethickness_empty_string.dcm");
  const auto enhanced = sample_file("niivue/enh.dcm");
  if (decimal.empty()) GTEST_SKIP() << "the shared data folder is absent";
  Notices notices;
  EXPECT_EQ(read_only_source(decimal, notices).geometry().size(), (Index3{128, 96, 1}));
  EXPECT_EQ(read_only_source(enhanced, notices).geometry().size(), (Index3{64, 64, 6}));
  series = empty;
  expect_fault({"slicethickness_empty_string.dcm", "single slice"});
}

}  // namespace

}  // namespace volpipe::test
