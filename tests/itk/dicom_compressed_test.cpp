// Compressed transfer syntaxes, packed by GDCM here, as lib/io reads them.
#include <gdcmImageChangeTransferSyntax.h>
#include <gdcmImageReader.h>
#include <gdcmImageWriter.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "device/host_threads.h"
#include "io/io.h"
#include "unit/dicom_samples.h"

namespace volpipe::test {

namespace {

using Syntax = gdcm::TransferSyntax;

struct Packed {
  const char* name;
  Syntax::TSType syntax;
  int bits_allocated, bits_stored, is_signed;
  double tolerance;  ///< of a stored value, 0 for lossless syntaxes
  bool colour = false;
};

constexpr int kRows = 24, kColumns = 40;

/// A smooth picture, with noise where the syntax keeps every value; each slice differs.
std::string pixels_of(const Packed& packed, int slice) {
  std::mt19937 random{unsigned(slice)};
  const int samples = packed.colour ? 3 : 1;
  const double top = std::ldexp(1, packed.bits_stored) - 1,
               lowest = packed.is_signed ? -std::ldexp(1, packed.bits_stored - 1) : 0;
  std::string bytes;
  for (int y = 0; y < kRows; ++y)
    for (int x = 0; x < kColumns; ++x)
      for (int c = 0; c < samples; ++c) {
        double value = top * (0.5 + 0.4 * std::sin(0.1 * x + 0.2 * slice + c) * std::cos(0.12 * y));
        if (packed.tolerance == 0) value = std::clamp(value + double(random() % 41) - 20, 0.0, top);
        const auto stored = std::uint64_t(std::int64_t(std::floor(value + lowest)));
        bytes += little_endian(stored & ((std::uint64_t(1) << packed.bits_allocated) - 1), packed.bits_allocated / 8);
      }
  return bytes;
}

DicomSample sample_of(const Packed& packed, int slice) {
  DicomSample sample;
  sample.instance = slice + 1;
  sample.position = "0\\0\\" + std::to_string(2.5 * slice);
  sample.rows = kRows;
  sample.columns = kColumns;
  sample.bits_allocated = packed.bits_allocated;
  sample.bits_stored = packed.bits_stored;
  sample.is_signed = packed.is_signed;
  if (packed.colour) {
    sample.samples = 3;
    sample.photometric = "RGB";
  }
  sample.pixels = pixels_of(packed, slice);
  return sample;
}

void pack(const std::string& plain, const std::string& out, Syntax::TSType syntax) {
  gdcm::ImageReader reader;
  reader.SetFileName(plain.c_str());
  ASSERT_TRUE(reader.Read());
  gdcm::ImageChangeTransferSyntax change;
  change.SetTransferSyntax(Syntax(syntax));
  change.SetInput(reader.GetImage());
  ASSERT_TRUE(change.Change());
  gdcm::ImageWriter writer;
  writer.SetFile(reader.GetFile());
  writer.SetImage(change.GetOutput());
  writer.SetFileName(out.c_str());
  ASSERT_TRUE(writer.Write());
}

struct Series {
  TemporaryFolder folder;
  std::string plain = folder / "plain", packed = folder / "packed";

  Series(const Packed& kind, int slices) {
    std::filesystem::create_directories(plain);
    std::filesystem::create_directories(packed);
    for (int k = 0; k < slices; ++k) {
      write_bytes(plain + "/" + std::to_string(k) + ".dcm", sample_of(kind, k).bytes());
      pack(plain + "/" + std::to_string(k) + ".dcm", packed_file(k), kind.syntax);
    }
  }

  std::string packed_file(int slice) const { return packed + "/" + std::to_string(slice) + ".dcm"; }
};

Volume read_series(const std::string& path, const HostThreads* threads = nullptr) {
  io::ReadOptions options;
  options.threads = threads;
  const io::Found found = io::find_sources(path, options);
  if (found.sources.size() != 1)
    throw std::runtime_error(found.faults.empty() ? "no single source" : found.faults[0].message);
  Notices notices;
  return io::read(found.sources[0], Buffer::host, notices, nullptr, options);
}

double value_at(const Volume& volume, std::int64_t i) {
  return visit(volume.dtype(), [&](auto tag) { return double(volume.data_as<typename decltype(tag)::type>()[i]); });
}

class Compressed : public testing::TestWithParam<Packed> {};

TEST_P(Compressed, ReadsWhatWasPacked) {
  const Series series(GetParam(), 3);
  const Volume plain = read_series(series.plain), packed = read_series(series.packed);
  ASSERT_EQ(packed.info(), plain.info());
  double worst = 0;
  for (std::int64_t i = 0; i < plain.info().value_count(); ++i)
    worst = std::max(worst, std::abs(value_at(packed, i) - value_at(plain, i)));
  EXPECT_LE(worst, GetParam().tolerance);
}

/// The last fragment of a file of one frame: where its value starts, and its length.
std::pair<std::size_t, std::size_t> fragment_in(const std::string& bytes) {
  const std::string item = little_endian(0xfffe, 2) + little_endian(0xe000, 2);
  std::size_t at = bytes.find(little_endian(0x7fe0, 2) + little_endian(0x10, 2) + "OB") + 12;
  std::pair<std::size_t, std::size_t> last;
  while (bytes.compare(at, 4, item) == 0) {
    std::uint32_t length;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    last = {at + 8, length};
    at += 8 + length;
  }
  return last;
}

void expect_damage(const Series& series, const std::string& what) {
  try {
    read_series(series.packed);
    ADD_FAILURE() << what << " was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input) << what;
    EXPECT_NE(std::string(error.what()).find("1.dcm"), std::string::npos) << error.what();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("1.dcm"), std::string::npos) << what;
  }
}

TEST_P(Compressed, AFrameCutShortIsAnError) {
  const Series series(GetParam(), 2);
  const std::string sound = read_bytes(series.packed_file(1));
  const auto [start, length] = fragment_in(sound);
  for (const std::size_t kept : {std::size_t(2), length / 8, length / 2, length - 20}) {
    const std::size_t even = kept / 2 * 2;
    write_bytes(series.packed_file(1), sound.substr(0, start - 4) + little_endian(even, 4) + sound.substr(start, even) +
                                           sound.substr(start + length));
    expect_damage(series, "a frame of " + std::to_string(even) + " of " + std::to_string(length) + " bytes");
  }
}

TEST_P(Compressed, ADamagedHeadOfAFrameIsAnError) {
  const Series series(GetParam(), 2);
  const std::string sound = read_bytes(series.packed_file(1));
  const auto [start, length] = fragment_in(sound);
  std::string damaged = sound;
  for (std::size_t i = 0; i < 40; ++i) damaged[start + i] = char(0x55);
  write_bytes(series.packed_file(1), damaged);
  expect_damage(series, "a frame without its head");
}

/// Bits that decode to other values are a picture to any decoder; codes that do not exist, are too few or too many are
/// damage, and nobody prints of it. JPEG 2000 and RLE have no such codes, and OpenJPEG prints.
TEST_P(Compressed, DamagedCodesAreErrorsWhereTheyCanBeSeen) {
  const Series series(GetParam(), 2);
  const std::string sound = read_bytes(series.packed_file(1));
  const auto [start, length] = fragment_in(sound);
  const std::string name = GetParam().name;
  const bool has_codes = !name.starts_with("rle") && !name.starts_with("jpeg_2000");
  int errors = 0;
  testing::internal::CaptureStderr();
  for (std::size_t at = length / 3; at + 10 < length; at += length / 40 + 1)
    for (const int mask : {0x04, 0xff}) {
      std::string damaged = sound;
      for (std::size_t k = 0; k < 4; ++k) damaged[start + at + k] = char(damaged[start + at + k] ^ mask);
      write_bytes(series.packed_file(1), damaged);
      try {
        read_series(series.packed);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::input) << error.what();
        ++errors;
      }
    }
  const std::string printed = testing::internal::GetCapturedStderr();
  if (!has_codes) return;
  EXPECT_GT(errors, 10);
  EXPECT_EQ(printed, "");
}

TEST_P(Compressed, ADamagedByteNeverEndsTheProcess) {
  const Series series(GetParam(), 1);
  const std::string sound = read_bytes(series.packed_file(0));
  const auto [start, length] = fragment_in(sound);
  testing::internal::CaptureStderr();
  for (std::size_t at = 0; at < length; at += at < 250 ? 1 : 17)
    for (const char value : {char(0xff), '\0', char(sound[start + at] ^ 1), char(sound[start + at] ^ 0x80)}) {
      std::string damaged = sound;
      damaged[start + at] = value;
      write_bytes(series.packed_file(0), damaged);
      try {
        read_series(series.packed);
      } catch (const Error&) {}
    }
  testing::internal::GetCapturedStderr();
}

bool is_sequential_or_lossless_jpeg(const std::string& name) {
  return name.starts_with("jpeg_") && !name.starts_with("jpeg_ls") && !name.starts_with("jpeg_2000");
}

TEST_P(Compressed, BytesBehindTheLastPixelAreLeftOut) {
  if (!is_sequential_or_lossless_jpeg(GetParam().name)) return;
  const Series series(GetParam(), 1);
  const Volume sound = read_series(series.packed);
  const std::string bytes = read_bytes(series.packed_file(0));
  const auto [start, length] = fragment_in(bytes);
  std::string stream = bytes.substr(start, length);
  const std::size_t end = stream.rfind("\xff\xd9");
  ASSERT_NE(end, std::string::npos);
  for (const std::string& padding : {std::string("\x3f\x12", 2), std::string("\xff\0\xff\0", 4), std::string(20, '\0'),
                                     std::string("\xff\xff", 2)}) {
    const std::string padded = stream.substr(0, end) + padding + stream.substr(end);
    write_bytes(series.packed_file(0),
                bytes.substr(0, start - 4) + little_endian(padded.size(), 4) + padded + bytes.substr(start + length));
    testing::internal::CaptureStderr();
    const Volume volume = read_series(series.packed);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(std::memcmp(volume.data(), sound.data(), sound.info().bytes()), 0);
  }
}

TEST_P(Compressed, AnotherKindOfJpegIsNamed) {
  if (!is_sequential_or_lossless_jpeg(GetParam().name)) return;
  const Series series(GetParam(), 1);
  const std::string sound = read_bytes(series.packed_file(0));
  const std::size_t start = fragment_in(sound).first;
  const std::string size = std::string("\0", 1) + char(kRows) + std::string("\0", 1) + char(kColumns);
  const std::size_t head = sound.find(size, start) - 5;
  const bool lossless = sound[head + 1] == char(0xc3);
  for (const auto& [marker, code] : {std::pair{0xc2, ErrorCode::unsupported}, std::pair{0xc9, ErrorCode::unsupported},
                                     std::pair{lossless ? 0xc1 : 0xc3, ErrorCode::input}}) {
    std::string other = sound;
    other[head + 1] = char(marker);
    write_bytes(series.packed_file(0), other);
    try {
      read_series(series.packed);
      ADD_FAILURE() << "it was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find("JPEG"), std::string::npos) << error.what();
    }
  }
}

TEST_P(Compressed, FramesOfAnotherSizeAreErrors) {
  if (std::string(GetParam().name).starts_with("rle")) return;  // says nothing of its size
  const Series series(GetParam(), 2);
  std::string wrong = read_bytes(series.packed_file(1));
  const std::string rows = dicom_element(0x28, 0x10, "US", us(kRows));
  const std::size_t at = wrong.find(rows);
  ASSERT_NE(at, std::string::npos);
  for (const int k : {0, 1}) {
    wrong = read_bytes(series.packed_file(k));
    write_bytes(series.packed_file(k), wrong.replace(at, rows.size(), dicom_element(0x28, 0x10, "US", us(kRows + 6))));
  }
  try {
    read_series(series.packed);
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("24 rows"), std::string::npos) << error.what();
  }
}

TEST_P(Compressed, ThreadsDoNotChangeTheResult) {
  const Series series(GetParam(), 12);
  const Volume alone = read_series(series.packed);
  const HostThreads threads(8);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Volume together = read_series(series.packed, &threads);
    ASSERT_EQ(together.info(), alone.info());
    ASSERT_EQ(std::memcmp(together.data(), alone.data(), alone.info().bytes()), 0);
  }
}

// Baseline JPEG keeps a smooth 8-bit picture to a few grey values at GDCM's quality; lossy JPEG 2000 likewise.
INSTANTIATE_TEST_SUITE_P(Syntaxes, Compressed,
                         testing::Values(Packed{"jpeg_baseline_8", Syntax::JPEGBaselineProcess1, 8, 8, 0, 4},
                                         Packed{"jpeg_extended_12", Syntax::JPEGExtendedProcess2_4, 16, 12, 0, 64},
                                         Packed{"jpeg_lossless_8", Syntax::JPEGLosslessProcess14_1, 8, 8, 0, 0},
                                         Packed{"jpeg_lossless_12", Syntax::JPEGLosslessProcess14_1, 16, 12, 0, 0},
                                         Packed{"jpeg_lossless_16", Syntax::JPEGLosslessProcess14_1, 16, 16, 0, 0},
                                         Packed{"jpeg_lossless_16_signed", Syntax::JPEGLosslessProcess14_1, 16, 16, 1,
                                                0},
                                         Packed{"jpeg_lossless_process14", Syntax::JPEGLosslessProcess14, 16, 16, 0, 0},
                                         Packed{"jpeg_lossless_rgb", Syntax::JPEGLosslessProcess14_1, 8, 8, 0, 0, true},
                                         Packed{"jpeg_ls_8", Syntax::JPEGLSLossless, 8, 8, 0, 0},
                                         Packed{"jpeg_ls_12", Syntax::JPEGLSLossless, 16, 12, 0, 0},
                                         Packed{"jpeg_ls_16_signed", Syntax::JPEGLSLossless, 16, 16, 1, 0},
                                         Packed{"jpeg_2000_8", Syntax::JPEG2000Lossless, 8, 8, 0, 0},
                                         Packed{"jpeg_2000_12_signed", Syntax::JPEG2000Lossless, 16, 12, 1, 0},
                                         Packed{"jpeg_2000_16", Syntax::JPEG2000Lossless, 16, 16, 0, 0},
                                         Packed{"jpeg_2000_rgb", Syntax::JPEG2000Lossless, 8, 8, 0, 0, true},
                                         Packed{"jpeg_2000_lossy", Syntax::JPEG2000, 8, 8, 0, 4},
                                         Packed{"rle_8", Syntax::RLELossless, 8, 8, 0, 0},
                                         Packed{"rle_16_signed", Syntax::RLELossless, 16, 16, 1, 0},
                                         Packed{"rle_rgb", Syntax::RLELossless, 8, 8, 0, 0, true}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace

}  // namespace volpipe::test
