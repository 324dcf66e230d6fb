#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "file_helpers.h"
#include "io/io.h"
#include "sample_files.h"

namespace volpipe::test {

namespace {

io::Source file_source(const std::string& path) { return {path, {}, {}, {}, {}}; }

Volume read_file(const std::string& path, Notices& notices) {
  Notices info_notices;
  const VolumeInfo info = io::read_info(file_source(path), info_notices);
  Volume volume = io::read(file_source(path), Buffer::host, notices);
  EXPECT_EQ(info, volume.info());
  EXPECT_EQ(info_notices.list().size(), notices.list().size());
  return volume;
}

bool has_notice(const Notices& notices, const std::string& code) {
  return std::any_of(notices.list().begin(), notices.list().end(),
                     [&](const Notice& notice) { return notice.code == code; });
}

/// Rotated about two axes and left-handed.
Geometry oblique(const Index3& size) {
  const double a = 0.4, b = -0.7;
  const Matrix3 about_z{{{{std::cos(a), -std::sin(a), 0}, {std::sin(a), std::cos(a), 0}, {0, 0, 1}}}};
  const Matrix3 about_x{{{{1, 0, 0}, {0, std::cos(b), -std::sin(b)}, {0, std::sin(b), std::cos(b)}}}};
  const Matrix3 mirrored{{{{-1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}};
  return Geometry::from_spacing(size, {0.9, 1.0 / 3, 2.5}, {-12.3456789012345, 1e-7, 987.654321},
                                about_z * about_x * mirrored);
}

/// Every value differs from its neighbours; the ends of the type's range are among them.
Volume sample_volume(VolumeInfo info) {
  Volume volume(info, Buffer::host(info.bytes()));
  visit(info.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < info.value_count(); ++i) volume.data_as<T>()[i] = T(i * 37 % 251);
    volume.data_as<T>()[0] = std::numeric_limits<T>::lowest();
    volume.data_as<T>()[1] = std::numeric_limits<T>::max();
  });
  return volume;
}

void expect_same(const Volume& found, const Volume& wanted) {
  EXPECT_EQ(to_string(found.dtype()), to_string(wanted.dtype()));
  EXPECT_EQ(found.info().components, wanted.info().components);
  EXPECT_EQ(found.info().component_axis, wanted.info().component_axis);
  EXPECT_DOUBLE_EQ(found.info().frame_spacing, wanted.info().frame_spacing);
  EXPECT_LT(max_corner_distance_mm(found.geometry(), wanted.geometry()), 1e-11);
  ASSERT_EQ(found.info().bytes(), wanted.info().bytes());
  EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.info().bytes()), 0);
}

const std::vector<std::string> kFormats = {"nrrd", "mha", "mhd"};
const std::vector<DataType> kTypes = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                                      DataType::uint32, DataType::int32, DataType::float32, DataType::float64};

class FormatRoundTrip : public testing::TestWithParam<std::tuple<std::string, DataType>> {};

TEST_P(FormatRoundTrip, KeepsVoxelsTypeAndGeometry) {
  const auto& [format, dtype] = GetParam();
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({7, 5, 3}), .dtype = dtype});
  const std::string path = folder / ("é 画像/v." + format);
  io::write(volume, path);
  Notices notices;
  expect_same(read_file(path, notices), volume);
  EXPECT_TRUE(notices.empty());
}

TEST_P(FormatRoundTrip, KeepsChannels) {
  const auto& [format, dtype] = GetParam();
  TemporaryFolder folder;
  const Volume volume = sample_volume(
      {.geometry = oblique({6, 5, 4}), .dtype = dtype, .components = 3, .component_axis = ComponentAxis::channels});
  io::write(volume, folder / ("v." + format));
  Notices notices;
  expect_same(read_file(folder / ("v." + format), notices), volume);
}

TEST_P(FormatRoundTrip, KeepsFrames) {
  const auto& [format, dtype] = GetParam();
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({4, 3, 2}),
                                       .dtype = dtype,
                                       .components = 5,
                                       .component_axis = ComponentAxis::frames,
                                       .frame_spacing = 2.25});
  io::write(volume, folder / ("v." + format));
  Notices notices;
  expect_same(read_file(folder / ("v." + format), notices), volume);
}

INSTANTIATE_TEST_SUITE_P(All, FormatRoundTrip, testing::Combine(testing::ValuesIn(kFormats), testing::ValuesIn(kTypes)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::string(to_string(std::get<1>(test.param)));
                         });

Geometry sheared() {
  Affine map;
  map.linear = Matrix3{{{{1, 0, 0}, {0, 1, 0.5}, {0, 0, 2}}}};
  map.offset = {1, 2, 3};
  return Geometry({4, 3, 2}, map);
}

TEST(Nrrd, HoldsAShearedGrid) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = sheared(), .dtype = DataType::int16});
  io::write(volume, folder / "v.nrrd");
  Notices notices;
  expect_same(read_file(folder / "v.nrrd", notices), volume);
}

TEST(MetaImage, RefusesAShearedGrid) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = sheared(), .dtype = DataType::int16});
  for (const std::string name : {"v.mha", "v.mhd"})
    expect_error(ErrorCode::unsupported, "untilt", [&] { io::write(volume, folder / name); });
  EXPECT_TRUE(folder.names().empty());
}

TEST(Formats, ExistingOutputsAreReplacedOnlyWhenAsked) {
  for (const std::string& format : kFormats) {
    TemporaryFolder folder;
    const std::string path = folder / ("v." + format);
    const Volume first = sample_volume({.geometry = oblique({3, 3, 3}), .dtype = DataType::int16});
    const Volume second = sample_volume({.geometry = oblique({2, 3, 4}), .dtype = DataType::float32});
    io::write(first, path);
    expect_error(ErrorCode::exists, "", [&] { io::write(second, path); });
    Notices notices;
    expect_same(read_file(path, notices), first);
    io::write(second, path, {.overwrite = true});
    expect_same(read_file(path, notices), second);
    EXPECT_EQ(folder.names(),
              format == "mhd" ? (std::vector<std::string>{"v.mhd", "v.raw"}) : std::vector<std::string>{"v." + format});
  }
}

TEST(MetaImage, ADataFileOfAnotherHeaderIsNeverReplaced) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({3, 3, 3}), .dtype = DataType::int16});
  write_bytes(folder / "v.raw", "mine");
  expect_error(ErrorCode::exists, "v.raw", [&] { io::write(volume, folder / "v.mhd"); });
  write_bytes(folder / "v.mhd", "ObjectType = Image\nElementDataFile = other.raw\n");
  expect_error(ErrorCode::exists, "v.raw", [&] { io::write(volume, folder / "v.mhd", {.overwrite = true}); });
  EXPECT_EQ(read_bytes(folder / "v.raw"), "mine");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"v.mhd", "v.raw"}));
}

TEST(MetaImage, ADataFileWithoutItsHeaderIsReplacedWhenThatIsAllowed) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({3, 3, 3}), .dtype = DataType::int16});
  write_bytes(folder / "v.raw", "left by a run that was killed");
  io::write(volume, folder / "v.mhd", {.overwrite = true});
  Notices notices;
  expect_same(read_file(folder / "v.mhd", notices), volume);
}

TEST(MetaImage, UpperCaseMhaIsOneFile) {
  TemporaryFolder folder;
  io::write(sample_volume({.geometry = oblique({3, 3, 3})}), folder / "v.MHA");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"v.MHA"});
}

TEST(Formats, EveryFileOfAVolumeIsNamed) {
  TemporaryFolder folder;
  using Files = std::vector<std::string>;
  EXPECT_EQ(io::output_files("a/v.nii.gz"), Files{"a/v.nii.gz"});
  EXPECT_EQ(io::output_files("a/v.mha"), Files{"a/v.mha"});
  EXPECT_EQ(io::output_files("a/v.mhd"), (Files{"a/v.mhd", "a/v.raw"}));
  EXPECT_EQ(io::input_files(file_source("a/v.nii.gz")), Files{"a/v.nii.gz"});
  EXPECT_EQ(io::input_files(file_source("a/v.hdr")), (Files{"a/v.hdr", "a/v.img"}));
  EXPECT_EQ(io::input_files({"a", {"a/1.dcm", "a/2.dcm"}, {}, {}, {}}), (Files{"a/1.dcm", "a/2.dcm"}));
  const auto files = [&](const std::string& name, const std::string& header) {
    return io::input_files(file_source(write_bytes(folder / name, header)));
  };
  EXPECT_EQ(files("v.mhd", "NDims = 3\nElementDataFile = x.zraw\n"), (Files{folder / "v.mhd", folder / "x.zraw"}));
  EXPECT_EQ(files("v.mha", "NDims = 3\nElementDataFile = LOCAL\nabc=d"), Files{folder / "v.mha"});
  EXPECT_EQ(files("v.nhdr", "NRRD0004\nData File: /x.raw\n\n"), (Files{folder / "v.nhdr", "/x.raw"}));
  EXPECT_EQ(files("l.nhdr", "NRRD0004\ndata file: LIST\na.raw\nb.raw\n"),
            (Files{folder / "l.nhdr", folder / "a.raw", folder / "b.raw"}));
  EXPECT_EQ(files("p.nhdr", "NRRD0004\ndata file: s%02d.raw 9 11 1\n\n"),
            (Files{folder / "p.nhdr", folder / "s09.raw", folder / "s10.raw", folder / "s11.raw"}));
  EXPECT_EQ(files("v.nrrd", "NRRD0004\n\ndata file: no"), Files{folder / "v.nrrd"});
}

TEST(Formats, EqualVolumesGiveEqualBytes) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({9, 8, 7}), .dtype = DataType::float32});
  for (const std::string& format : kFormats) {
    io::write(volume, folder / ("a." + format));
    io::write(volume, folder / ("b." + format));
  }
  for (const std::string extension : {".nrrd", ".mha", ".raw"})
    EXPECT_EQ(read_bytes(folder / ("a" + extension)), read_bytes(folder / ("b" + extension)));
}

TEST(ItkFormats, TheBytesDoNotDependOnTheThreads) {
  TemporaryFolder folder;
  const HostThreads threads(3);
  VolumeInfo info{.geometry = oblique({70, 60, 50}), .dtype = DataType::float32};
  info.components = 3;
  info.component_axis = ComponentAxis::channels;
  const Volume volume = sample_volume(info);
  for (const std::string name : {"v.nrrd", "v.mha"})
    for (const int compression : {0, 1, 3}) {
      io::write(volume, folder / name, {.overwrite = true, .compression = compression});
      const std::string alone = read_bytes(folder / name);
      io::write(volume, folder / name, {.overwrite = true, .compression = compression, .threads = &threads});
      EXPECT_TRUE(read_bytes(folder / name) == alone) << name << ", compression " << compression;
      Notices notices;
      expect_same(read_file(folder / name, notices), volume);
    }
}

TEST(Formats, FilesCutShortAreErrors) {
  TemporaryFolder folder;
  const Volume volume = sample_volume({.geometry = oblique({20, 20, 20}), .dtype = DataType::int16});
  io::write(volume, folder / "v.nrrd");
  io::write(volume, folder / "v.mha");
  io::write(volume, folder / "v.mhd");
  for (const std::string name : {"v.nrrd", "v.mha", "v.raw", "v.mhd"}) {
    const std::string whole = read_bytes(folder / name);
    for (const std::size_t cut : {std::size_t(1), std::size_t(8), std::size_t(100), whole.size() / 2, whole.size()}) {
      if (cut > whole.size() || (name == "v.mhd" && cut < whole.size() / 2)) continue;
      write_bytes(folder / name, whole.substr(0, whole.size() - cut));
      Notices notices;
      expect_error(ErrorCode::input, "",
                   [&] { io::read(file_source(folder / (name == "v.raw" ? "v.mhd" : name)), Buffer::host, notices); });
    }
    write_bytes(folder / name, whole);
  }
}

TEST(Formats, AFlippedBitInPackedVoxelsIsAnError) {
  TemporaryFolder folder;
  io::write(sample_volume({.geometry = oblique({20, 20, 20}), .dtype = DataType::int16}), folder / "v.nrrd");
  std::string bytes = read_bytes(folder / "v.nrrd");
  bytes[bytes.size() - 40] ^= 4;
  write_bytes(folder / "v.nrrd", bytes);
  Notices notices;
  expect_error(ErrorCode::input, "", [&] { io::read(file_source(folder / "v.nrrd"), Buffer::host, notices); });
}

TEST(Formats, AMissingDataFileIsNamed) {
  TemporaryFolder folder;
  io::write(sample_volume({.geometry = oblique({3, 3, 3})}), folder / "v.mhd");
  std::filesystem::remove(folder / "v.raw");
  Notices notices;
  expect_error(ErrorCode::input, "v.raw", [&] { io::read_info(file_source(folder / "v.mhd"), notices); });
}

std::string zlib_stream(const std::string& content) {
  std::string packed(compressBound(content.size()), '\0');
  uLongf length = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &length, reinterpret_cast<const Bytef*>(content.data()),
           content.size());
  packed.resize(length);
  return packed;
}

std::string counting_shorts(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += char(i & 0xff);
    bytes += char(i >> 8);
  }
  return bytes;
}

std::string meta_header(const std::string& more, const std::string& data_file = "LOCAL") {
  return "ObjectType = Image\nNDims = 3\nBinaryData = True\n" + more +
         "DimSize = 10 10 10\nElementType = MET_SHORT\nElementDataFile = " + data_file + "\n";
}

const std::string kMetaGeometry = "TransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 1 2 3\nElementSpacing = 1 2 3\n";

TEST(MetaImage, PackedVoxels) {
  TemporaryFolder folder;
  const std::string packed = zlib_stream(counting_shorts(1000));
  const auto header = [&](std::size_t length) {
    return meta_header(kMetaGeometry + "CompressedData = True\nCompressedDataSize = " + std::to_string(length) + "\n");
  };
  write_bytes(folder / "v.mha", header(packed.size()) + packed);
  Notices notices;
  const Volume volume = read_file(folder / "v.mha", notices);
  EXPECT_EQ(volume.data_as<std::int16_t>()[999], 999);
  EXPECT_EQ(volume.geometry().origin(), (Vec3{-1, -2, 3}));
  EXPECT_EQ(volume.geometry().orientation(), "LPS");
  EXPECT_TRUE(notices.empty());

  write_bytes(folder / "short.mha", header(packed.size()) + packed.substr(0, packed.size() / 2));
  expect_error(ErrorCode::input, "short", [&] { io::read(file_source(folder / "short.mha"), Buffer::host, notices); });
  const std::string few = zlib_stream(counting_shorts(900));
  write_bytes(folder / "few.mha", header(few.size()) + few);
  expect_error(ErrorCode::input, "1800 bytes of the 2000",
               [&] { io::read(file_source(folder / "few.mha"), Buffer::host, notices); });
  const std::string many = zlib_stream(counting_shorts(1001));
  write_bytes(folder / "many.mha", header(many.size()) + many);
  expect_error(ErrorCode::input, "longer", [&] { io::read(file_source(folder / "many.mha"), Buffer::host, notices); });
}

TEST(MetaImage, BigEndianAndMissingGeometry) {
  TemporaryFolder folder;
  std::string bytes = counting_shorts(1000);
  for (std::size_t i = 0; i < bytes.size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
  write_bytes(folder / "v.mhd", meta_header("BinaryDataByteOrderMSB = True\n", "voxels.bin"));
  write_bytes(folder / "voxels.bin", bytes);
  Notices notices;
  const Volume volume = read_file(folder / "v.mhd", notices);
  EXPECT_EQ(volume.data_as<std::int16_t>()[513], 513);
  EXPECT_TRUE(has_notice(notices, "no_spacing"));
  EXPECT_TRUE(has_notice(notices, "no_direction"));
}

TEST(MetaImage, VoxelsInManyFilesOrAsTextAreUnsupported) {
  TemporaryFolder folder;
  Notices notices;
  write_bytes(folder / "list.mhd", meta_header(kMetaGeometry, "LIST"));
  expect_error(ErrorCode::unsupported, "several files",
               [&] { io::read_info(file_source(folder / "list.mhd"), notices); });
  write_bytes(folder / "text.mhd",
              "ObjectType = Image\nNDims = 3\nBinaryData = False\nDimSize = 1 1 1\nElementType = "
              "MET_SHORT\nElementDataFile = LOCAL\n1\n");
  expect_error(ErrorCode::unsupported, "text", [&] { io::read_info(file_source(folder / "text.mhd"), notices); });
}

TEST(MetaImage, UnitsOfLength) {
  TemporaryFolder folder;
  write_bytes(folder / "v.mha", meta_header(kMetaGeometry + "DistanceUnits = um\n") + counting_shorts(1000));
  Notices notices;
  const Geometry geometry = read_file(folder / "v.mha", notices).geometry();
  EXPECT_EQ(geometry.spacing(), (Vec3{0.001, 0.002, 0.003}));
  EXPECT_EQ(geometry.origin(), (Vec3{-0.001, -0.002, 0.003}));
  EXPECT_TRUE(notices.empty());
  write_bytes(folder / "v.mha", meta_header(kMetaGeometry + "DistanceUnits = ell\n") + counting_shorts(1000));
  read_file(folder / "v.mha", notices);
  EXPECT_TRUE(has_notice(notices, "unknown_unit"));
}

TEST(Formats, BytesAfterTheVoxelsAreANotice) {
  TemporaryFolder folder;
  write_bytes(folder / "v.mha", meta_header(kMetaGeometry) + counting_shorts(1001));
  write_bytes(folder / "v.mhd", meta_header(kMetaGeometry, "v.raw"));
  write_bytes(folder / "v.raw", counting_shorts(1001));
  for (const std::string name : {"v.mha", "v.mhd"}) {
    Notices notices;
    read_file(folder / name, notices);
    EXPECT_TRUE(has_notice(notices, "trailing_bytes")) << name;
  }
}

TEST(Formats, BytesAfterAPackedStreamAreANotice) {
  TemporaryFolder folder;
  const std::string packed = zlib_stream(counting_shorts(1000));
  const auto header = [&](std::size_t length) {
    return meta_header(kMetaGeometry + "CompressedData = True\nCompressedDataSize = " + std::to_string(length) + "\n");
  };
  io::write(sample_volume({.geometry = oblique({20, 20, 20}), .dtype = DataType::int16}), folder / "v.nrrd");
  const std::string nrrd = read_bytes(folder / "v.nrrd");
  for (const std::size_t extra : {1, 2, 7, 8, 9, 64, 5000, 3000000}) {
    const std::string tail(extra, 'x');
    write_bytes(folder / "counted.mha", header(packed.size()) + packed + tail);
    write_bytes(folder / "all.mha", header(packed.size() + extra) + packed + tail);
    write_bytes(folder / "v.nrrd", nrrd + tail);
    for (const std::string name : {"counted.mha", "all.mha", "v.nrrd"}) {
      Notices notices;
      io::read(file_source(folder / name), Buffer::host, notices);
      ASSERT_EQ(notices.list().size(), 1u) << name << ", " << extra;
      EXPECT_EQ(notices.list()[0].code, "trailing_bytes");
      EXPECT_EQ(notices.list()[0].message.substr(0, notices.list()[0].message.find(' ')), std::to_string(extra))
          << name;
    }
  }
}

TEST(Formats, HeadersAreDescribed) {
  TemporaryFolder folder;
  io::write(sample_volume({.geometry = oblique({4, 5, 6}), .dtype = DataType::int16}), folder / "v.nrrd");
  io::write(sample_volume({.geometry = oblique({4, 5, 6}), .dtype = DataType::int16}), folder / "v.mha");
  for (const auto& [name, size, type] : {std::tuple("v.nrrd", "sizes", "type"), {"v.mha", "DimSize", "ElementType"}}) {
    bool sized = false, typed = false;
    for (const io::HeaderField& field : io::describe_header(file_source(folder / name))) {
      sized |= field.name == size && field.numbers == std::vector<double>{4, 5, 6};
      typed |= field.name == type && field.numbers.empty() && !field.text.empty();
    }
    EXPECT_TRUE(sized) << name;
    EXPECT_TRUE(typed) << name;
  }
}

TEST(MetaImage, TwoDimensionsAreOneSlice) {
  TemporaryFolder folder;
  write_bytes(folder / "v.mha",
              "ObjectType = Image\nNDims = 2\nBinaryData = True\nTransformMatrix = 1 0 0 1\nOffset = 5 "
              "6\nElementSpacing = 0.5 0.25\nDimSize = 3 2\nElementType = MET_UCHAR\nElementDataFile = LOCAL\nabcdef");
  Notices notices;
  const Volume volume = read_file(folder / "v.mha", notices);
  EXPECT_EQ(volume.geometry().size(), (Index3{3, 2, 1}));
  EXPECT_EQ(volume.geometry().spacing(), (Vec3{0.5, 0.25, 1}));
  EXPECT_EQ(volume.geometry().orientation(), "LPS");
  EXPECT_TRUE(has_notice(notices, "two_dimensional"));
}

TEST(MetaImage, DamagedHeadersAreErrors) {
  TemporaryFolder folder;
  Notices notices;
  for (const std::string& content :
       {std::string("hello"), std::string(1000, '\0'), meta_header("ElementSpacing = 0 1 1\n") + counting_shorts(1000),
        meta_header("ElementSpacing = nan 1 1\n") + counting_shorts(1000),
        meta_header("ElementSpacing = 1 -1 1\n") + counting_shorts(1000),
        meta_header("ElementSpacing = 1 1 1\nElementSpacing = 2 2 2\n") + counting_shorts(1000),
        meta_header("TransformMatrix = 1 0 0 1 0 0 0 0 1\n") + counting_shorts(1000),
        std::string("ObjectType = Image\nNDims = 2\nDimSize = 1 1 2\nElementType = MET_UCHAR\nElementDataFile = "
                    "LOCAL\nab")}) {
    write_bytes(folder / "v.mha", content);
    expect_error(ErrorCode::input, "", [&] { io::read_info(file_source(folder / "v.mha"), notices); });
  }
}

std::string nrrd(const std::string& fields, const std::string& voxels) { return "NRRD0004\n" + fields + "\n" + voxels; }

const std::string kNrrdShorts = "type: short\ndimension: 3\nsizes: 2 3 4\nendian: little\nencoding: raw\n";
const std::string kNrrdGeometry = "space directions: (0,2,0) (-1,0,0) (0,0,3)\nspace origin: (10,20,30)\n";

TEST(Nrrd, SpacesAreTurnedToRas) {
  TemporaryFolder folder;
  for (const bool ras : {true, false}) {
    write_bytes(folder / "v.nrrd",
                nrrd(kNrrdShorts + "space: " + (ras ? "right-anterior-superior" : "left-posterior-superior") + "\n" +
                         kNrrdGeometry,
                     counting_shorts(24)));
    Notices notices;
    const Volume volume = read_file(folder / "v.nrrd", notices);
    const double sign = ras ? 1 : -1;
    EXPECT_EQ(volume.geometry().index_to_world().linear.column(0), (Vec3{0, 2 * sign, 0}));
    EXPECT_EQ(volume.geometry().index_to_world().linear.column(1), (Vec3{-sign, 0, 0}));
    EXPECT_EQ(volume.geometry().origin(), (Vec3{10 * sign, 20 * sign, 30}));
    EXPECT_EQ(volume.data_as<std::int16_t>()[23], 23);
    EXPECT_TRUE(notices.empty());
  }
}

const std::string kPlainDirections = "space directions: (1,0,0) (0,2,0) (0,0,3)\nspace origin: (1,2,3)\n";

struct SpaceCase {
  std::string fields;
  Vec3 diagonal, origin;
  std::string notice;
};

TEST(Nrrd, EverySpaceAndUnit) {
  const std::vector<SpaceCase> cases = {
      {"space: LAS\n", {-1, 2, 3}, {-1, 2, 3}, ""},
      {"space: left-anterior-superior\n", {-1, 2, 3}, {-1, 2, 3}, ""},
      {"space: RAS\n", {1, 2, 3}, {1, 2, 3}, ""},
      {"space: left-posterior-superior\n", {-1, -2, 3}, {-1, -2, 3}, ""},
      {"space: scanner-xyz\n", {-1, -2, 3}, {-1, -2, 3}, "space_not_anatomical"},
      {"space dimension: 3\n", {-1, -2, 3}, {-1, -2, 3}, "no_space"},
      {"space: RAS\nspace units: \"um\" \"um\" \"um\"\n", {0.001, 0.002, 0.003}, {0.001, 0.002, 0.003}, ""},
      {"space: RAS\nspace units: \"cm\" \"cm\" \"m\"\n", {10, 20, 3000}, {10, 20, 3000}, ""},
      {"space: RAS\nspace units: \"mm\" \"mm\" \"furlong\"\n", {1, 2, 3}, {1, 2, 3}, "unknown_unit"}};
  TemporaryFolder folder;
  for (const SpaceCase& sample : cases) {
    write_bytes(folder / "v.nrrd", nrrd(kNrrdShorts + sample.fields + kPlainDirections, counting_shorts(24)));
    Notices notices;
    const Geometry geometry = read_file(folder / "v.nrrd", notices).geometry();
    const auto wanted = [&] {
      Affine map;
      for (int axis = 0; axis < 3; ++axis) map.linear[axis][axis] = sample.diagonal[axis];
      map.offset = sample.origin;
      return map;
    };
    EXPECT_EQ(geometry.index_to_world(), wanted()) << sample.fields;
    if (sample.notice.empty()) EXPECT_TRUE(notices.empty()) << sample.fields;
    else EXPECT_TRUE(has_notice(notices, sample.notice)) << sample.fields;
  }
}

TEST(Nrrd, UnusableGeometryIsAnErrorThatNamesTheField) {
  TemporaryFolder folder;
  for (const std::string& fields :
       {std::string("spacings: 1 nan 1\n"), std::string("space: LPS\nspace directions: (1,0,0) none (0,0,1)\n"),
        std::string("space: LPS\nspace directions: (1,0,0) (1,0,0) (0,0,1)\n"),
        std::string("space: LPS\nspace directions: (1,0,0) (0,nan,0) (0,0,1)\n"),
        std::string("space: LPS\nspace directions: (1,0,0) (0,1,0) (0,0,1)\nspace origin: (nan,0,0)\n")}) {
    write_bytes(folder / "v.nrrd", nrrd(kNrrdShorts + fields, counting_shorts(24)));
    Notices notices;
    expect_error(ErrorCode::input, "space", [&] { io::read_info(file_source(folder / "v.nrrd"), notices); });
  }
}

TEST(Nrrd, ErrorsOfItkAreCleaned) {
  TemporaryFolder folder;
  write_bytes(folder / "v.nrrd", nrrd("type: nonsense\ndimension: 3\nsizes: 2 3 4\nencoding: raw\n", "x"));
  Notices notices;
  try {
    io::read_info(file_source(folder / "v.nrrd"), notices);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("0x"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("ERROR:"), std::string::npos) << error.what();
  }
}

TEST(Nrrd, MissingGeometryIsANotice) {
  TemporaryFolder folder;
  write_bytes(folder / "v.nrrd", nrrd(kNrrdShorts + "spacings: 1 2 3\n", counting_shorts(24)));
  Notices spacings;
  EXPECT_EQ(read_file(folder / "v.nrrd", spacings).geometry().spacing(), (Vec3{1, 2, 3}));
  EXPECT_TRUE(has_notice(spacings, "no_direction"));
  EXPECT_FALSE(has_notice(spacings, "no_spacing"));
  write_bytes(folder / "v.nrrd", nrrd(kNrrdShorts, counting_shorts(24)));
  Notices nothing;
  read_file(folder / "v.nrrd", nothing);
  EXPECT_TRUE(has_notice(nothing, "no_spacing"));
}

TEST(Nrrd, DetachedHeaderAndSkips) {
  TemporaryFolder folder;
  write_bytes(folder / "v.nhdr",
              nrrd(kNrrdShorts + "space: LPS\n" + kNrrdGeometry + "byte skip: 5\ndata file: v.raw\n", ""));
  write_bytes(folder / "v.raw", "12345" + counting_shorts(24));
  Notices notices;
  EXPECT_EQ(read_file(folder / "v.nhdr", notices).data_as<std::int16_t>()[23], 23);
  write_bytes(folder / "v.raw", "1234" + counting_shorts(24));
  expect_error(ErrorCode::input, "47 bytes of the 48", [&] { io::read_info(file_source(folder / "v.nhdr"), notices); });
}

TEST(Nrrd, TextVoxelsGoThroughItk) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 24; ++i) text += std::to_string(i) + " ";
  const std::string header = "type: short\ndimension: 3\nsizes: 2 3 4\nencoding: text\nspace: LPS\n" + kNrrdGeometry;
  write_bytes(folder / "v.nrrd", nrrd(header, text));
  Notices notices;
  EXPECT_EQ(read_file(folder / "v.nrrd", notices).data_as<std::int16_t>()[23], 23);
  write_bytes(folder / "v.nrrd", nrrd(header, text.substr(0, text.size() / 2)));
  expect_error(ErrorCode::input, "", [&] { io::read(file_source(folder / "v.nrrd"), Buffer::host, notices); });
}

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

TEST(Formats, NoThreadsAreStarted) {
  TemporaryFolder folder;
  const auto before = threads_of_process();
  const Volume volume = sample_volume({.geometry = oblique({20, 30, 40}), .dtype = DataType::int16});
  write_bytes(folder / "text.nrrd", "NRRD0004\ntype: short\ndimension: 3\nsizes: 3 1 1\nencoding: ascii\n\n1 -2 300\n");
  Notices notices;
  io::read(file_source(folder / "text.nrrd"), Buffer::host, notices);
  for (const std::string name : {"v.nrrd", "v.mha", "v.mhd"}) {
    io::write(volume, folder / name);
    io::read(file_source(folder / name), Buffer::host, notices);
  }
  io::write_png(folder / "p.png", {1, 2, 3, 4}, 2, 2, 1);
  EXPECT_EQ(threads_of_process(), before);
}

TEST(Nrrd, ListAxesAreFramesWhereverTheyAre) {
  TemporaryFolder folder;
  for (const bool last : {true, false}) {
    const std::string header =
        std::string("type: short\ndimension: 4\nendian: little\nencoding: raw\nspace: LPS\nspace origin: (0,0,0)\n") +
        (last ? "sizes: 2 2 1 3\nkinds: domain domain domain list\nspace directions: (1,0,0) (0,1,0) (0,0,1) none\n"
              : "sizes: 3 2 2 1\nkinds: list domain domain domain\nspace directions: none (1,0,0) (0,1,0) (0,0,1)\n");
    write_bytes(folder / "v.nrrd", nrrd(header, counting_shorts(12)));
    Notices notices;
    const Volume volume = read_file(folder / "v.nrrd", notices);
    EXPECT_EQ(volume.geometry().size(), (Index3{2, 2, 1}));
    EXPECT_EQ(volume.info().components, 3);
    EXPECT_EQ(volume.info().component_axis, ComponentAxis::frames);
    const auto* values = volume.data_as<std::int16_t>();
    const std::vector<int> wanted = last ? std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
                                         : std::vector<int>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
    EXPECT_EQ(std::vector<int>(values, values + 12), wanted);
  }
}

TEST(Nrrd, SixtyFourBitIntegersAreNarrowedWhenTheyFit) {
  TemporaryFolder folder;
  const auto with = [&](const char* type, std::int64_t value) {
    std::string bytes(24 * 8, '\0');
    std::memcpy(bytes.data() + 8 * 5, &value, 8);
    return write_bytes(
        folder / "v.nrrd",
        nrrd(std::string("type: ") + type +
                 "\ndimension: 3\nsizes: 2 3 4\nendian: little\nencoding: raw\nspace: LPS\n" + kNrrdGeometry,
             bytes));
  };
  Notices notices;
  EXPECT_EQ(read_file(with("int64", -2147483648ll), notices).data_as<std::int32_t>()[5], -2147483647 - 1);
  EXPECT_TRUE(has_notice(notices, "narrowed"));
  notices = {};
  EXPECT_EQ(read_file(with("uint64", 4294967295ll), notices).data_as<std::uint32_t>()[5], 4294967295u);
  with("int64", 2147483648ll);
  expect_error(ErrorCode::unsupported, "2147483648",
               [&] { io::read(file_source(folder / "v.nrrd"), Buffer::host, notices); });
}

TEST(Nrrd, NarrowingAndASingleFrameAreNotices) {
  TemporaryFolder folder;
  write_bytes(folder / "v.nrrd",
              nrrd("type: int64\ndimension: 4\nsizes: 2 1 1 1\nendian: little\nencoding: raw\nspacings: 1 1 1 1\n",
                   std::string(16, '\0')));
  Notices notices;
  EXPECT_EQ(read_file(folder / "v.nrrd", notices).info().components, 1);
  EXPECT_TRUE(has_notice(notices, "narrowed"));
  EXPECT_TRUE(has_notice(notices, "single_frame"));
}

TEST(Formats, NonFiniteVoxelsAreKeptAndCounted) {
  TemporaryFolder folder;
  Volume volume = sample_volume({.geometry = oblique({3, 3, 3}), .dtype = DataType::float32});
  volume.data_as<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  volume.data_as<float>()[5] = std::numeric_limits<float>::infinity();
  for (const std::string& format : kFormats) {
    io::write(volume, folder / ("v." + format));
    Notices notices;
    const Volume back = io::read(file_source(folder / ("v." + format)), Buffer::host, notices);
    EXPECT_EQ(std::memcmp(back.data(), volume.data(), volume.info().bytes()), 0);
    EXPECT_TRUE(has_notice(notices, "non_finite_voxels"));
  }
}

TEST(Png, GreyAndColour) {
  TemporaryFolder folder;
  io::write_png(folder / "grey.png", std::vector<std::uint8_t>(6, 128), 3, 2, 1);
  io::write_png(folder / "sub/colour.png", std::vector<std::uint8_t>(18, 200), 3, 2, 3);
  io::write_png(folder / "grey.png", std::vector<std::uint8_t>(12, 128), 3, 4, 1);
  const std::string bytes = read_bytes(folder / "grey.png");
  EXPECT_EQ(bytes.substr(1, 3), "PNG");
  EXPECT_EQ(bytes.substr(16, 8), std::string("\0\0\0\3\0\0\0\4", 8));
  EXPECT_EQ(read_bytes(folder / "sub/colour.png")[25], 2);
}

TEST(Png, PixelsUnpackAsGiven) {
  TemporaryFolder folder;
  constexpr int kWidth = 40, kHeight = 30;
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < kWidth * kHeight * 3; ++i) pixels.push_back(std::uint8_t(i * i * 7919 >> 5));
  io::write_png(folder / "v.png", pixels, kWidth, kHeight, 3);
  const std::string bytes = read_bytes(folder / "v.png");
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | std::uint8_t(bytes[at + std::size_t(i)]);
    return value;
  };
  std::size_t at = 8;
  std::string packed;
  for (; at < bytes.size(); at += 12 + number(at)) {
    const std::string chunk = bytes.substr(at + 4, 4 + number(at));
    EXPECT_EQ(number(at + 8 + number(at)), crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), uInt(chunk.size())));
    if (chunk.starts_with("IDAT")) packed += chunk.substr(4);
  }
  EXPECT_EQ(at, bytes.size());
  std::vector<std::uint8_t> rows(kHeight * (kWidth * 3 + 1) + 1);
  uLongf length = rows.size();
  ASSERT_EQ(uncompress(rows.data(), &length, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
  ASSERT_EQ(length, rows.size() - 1);
  std::vector<std::uint8_t> unfiltered;
  for (int y = 0; y < kHeight; ++y) {
    ASSERT_EQ(rows[std::size_t(y) * (kWidth * 3 + 1)], 2);
    for (int x = 0; x < kWidth * 3; ++x)
      unfiltered.push_back(std::uint8_t(rows[std::size_t(y * (kWidth * 3 + 1) + 1 + x)] +
                                        (y ? unfiltered[std::size_t((y - 1) * kWidth * 3 + x)] : 0)));
  }
  EXPECT_EQ(unfiltered, pixels);
}

TEST(Formats, AFileThatCannotGrowIsAnErrorAndLeavesNothing) {
  TemporaryFolder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{4096, before.rlim_max};
  const Volume volume = sample_volume({.geometry = oblique({64, 64, 2}), .dtype = DataType::uint8});
  std::vector<std::uint8_t> noise;
  for (std::uint32_t i = 0, x = 1; i < 200 * 200; ++i)
    noise.push_back(std::uint8_t((x = x * 1664525 + 1013904223) >> 24));
  setrlimit(RLIMIT_FSIZE, &tight);
  EXPECT_THROW(io::write_png(folder / "v.png", noise, 200, 200, 1), Error);
  EXPECT_THROW(io::write_dicom_series(volume, folder.path(), "full"), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(folder.names().empty());
}

TEST(Formats, UnknownExtensionsAreNamed) {
  expect_error(ErrorCode::usage, ".nii.gz", [] { io::check_output_format("v.png"); });
  for (const std::string name : {"v.nii", "v.NII.GZ", "v.nrrd", "v.mha", "v.MHD"})
    EXPECT_NO_THROW(io::check_output_format(name)) << name;
  for (const std::string name : {"v.hdr", "v.img", "v.nhdr", "nii", ".nii"})
    EXPECT_THROW(io::check_output_format(name), Error) << name;
}

TEST(RealMetaImage, LungAndBrain) {
  const auto lung = sample_file("lung/3DCT_lung_baseline_small.mha");
  const auto brain = sample_file("niivue/mha.mha");
  if (lung.empty()) GTEST_SKIP() << "the shared data folder is absent";
  Notices notices;
  const Volume small = read_file(lung, notices);
  EXPECT_EQ(small.geometry().size(), (Index3{57, 78, 64}));
  EXPECT_EQ(small.geometry().spacing(), (Vec3{2.732, 2.732, 5}));
  EXPECT_EQ(small.geometry().origin(), (Vec3{152.461, 148.986, -1432}));
  EXPECT_EQ(small.dtype(), DataType::int16);
  const Volume head = read_file(brain, notices);
  EXPECT_EQ(head.geometry().orientation(), "LAS");
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < head.info().value_count(); ++i) sum += head.data_as<std::int16_t>()[i];
  EXPECT_EQ(sum, 79944614);
}

}  // namespace

}  // namespace volpipe::test
