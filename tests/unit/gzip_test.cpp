// gzip streams, checked to the last byte; zlib is the witness.
#include "io/gzip.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "file_helpers.h"

namespace volpipe::io {
namespace {

using test::expect_error;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using test::zlib_gunzip;
using test::zlib_gzip;

std::string noisy(std::size_t bytes, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) content[i] = char(i / 64 + random() % 7);
  return content;
}

std::string unpack(const std::string& path, std::size_t step = 1 << 16) {
  InputFile file(path);
  GzipReader reader(file);
  std::string content, chunk(step, '\0');
  while (const std::size_t count = reader.read(chunk.data(), step)) content.append(chunk, 0, count);
  EXPECT_EQ(reader.bytes_read(), content.size());
  return content;
}

class Gzip : public ::testing::Test {
 protected:
  std::string file(const std::string& bytes) { return write_bytes(folder_ / "a.gz", bytes); }
  void expect_fault(const std::string& bytes, const std::string& part) {
    expect_error(ErrorCode::input, part, [&] { unpack(file(bytes)); });
  }
  TemporaryFolder folder_;
};

TEST_F(Gzip, UnpacksWhatZlibPacked) {
  for (const std::size_t size : {0u, 1u, 17u, 32768u, 32769u, 100000u, 3000000u})
    for (const int level : {0, 1, 6, 9}) {
      const std::string content = noisy(size);
      EXPECT_EQ(unpack(file(zlib_gzip(content, level))), content) << size << " bytes, level " << level;
    }
}

TEST_F(Gzip, UnpacksInStepsOfAnySize) {
  const std::string content = noisy(200000);
  file(zlib_gzip(content));
  for (const std::size_t step : {1u, 7u, 348u, 4096u, 65537u, 200000u, 200001u})
    EXPECT_EQ(unpack(folder_ / "a.gz", step), content) << step;
}

TEST_F(Gzip, UnpacksConcatenatedMembers) {
  const std::string a = noisy(100000, 1), b = noisy(5, 2), c = noisy(2000000, 3);
  EXPECT_EQ(unpack(file(zlib_gzip(a) + zlib_gzip(b) + zlib_gzip("") + zlib_gzip(c))), a + b + c);
  std::string many, expected;
  for (unsigned i = 0; i < 3000; ++i) {
    many += zlib_gzip(noisy(i % 50, i));
    expected += noisy(i % 50, i);
  }
  EXPECT_EQ(unpack(file(many)), expected);
}

TEST_F(Gzip, ReadsTheOptionalHeaderFields) {
  const std::string plain = zlib_gzip("content");
  std::string named = plain;
  named[3] = 4 | 8 | 16;  // extra, name, comment
  named.insert(10, std::string("\x05\x00"
                               "extra"
                               "name\0comment\0",
                               2 + 5 + 5 + 8));
  EXPECT_EQ(unpack(file(named)), "content");
}

TEST_F(Gzip, AcceptsZeroPaddingOnly) {
  const std::string packed = zlib_gzip(noisy(1000));
  EXPECT_EQ(unpack(file(packed + std::string(3000000, '\0'))), noisy(1000));
  EXPECT_EQ(unpack(file(packed + std::string(1, '\0'))), noisy(1000));
  expect_fault(packed + "j", "not gzip follow");
  expect_fault(packed + std::string(2000000, '\0') + "junk", "not gzip follow");
}

TEST_F(Gzip, NamesEveryTruncation) {
  const std::string content = noisy(20000), packed = zlib_gzip(content);
  for (std::size_t length = 2; length < packed.size(); length += (length < 60 || length + 60 > packed.size()) ? 1 : 50)
    expect_fault(packed.substr(0, length), "truncated");
  expect_fault(packed.substr(0, 1), "does not start as gzip");
  expect_fault("", "does not start as gzip");
}

TEST_F(Gzip, NamesATruncatedSecondMember) {
  const std::string first = zlib_gzip(noisy(1000)), second = zlib_gzip(noisy(5000, 2));
  for (std::size_t length = 2; length < second.size(); length += 37)
    expect_fault(first + second.substr(0, length), "truncated");
}

TEST_F(Gzip, TellsHowFarItCame) {
  const std::string packed = zlib_gzip(noisy(20000), 0);
  InputFile input(file(packed.substr(0, packed.size() - 8)));
  GzipReader reader(input);
  reader.expect(20000);
  std::string out(20001, '\0');
  expect_error(ErrorCode::input,
               "20000 of 20000 unpacked bytes (the file has " + std::to_string(packed.size() - 8) + ")",
               [&] { reader.read(out.data(), out.size()); });
}

TEST_F(Gzip, TellsCrcFromLength) {
  const std::string packed = zlib_gzip(noisy(20000));
  std::string crc = packed, length = packed;
  crc[crc.size() - 8] = char(crc[crc.size() - 8] ^ 0xFF);
  length[length.size() - 4] = char(length[length.size() - 4] ^ 1);
  expect_fault(crc, "CRC mismatch");
  expect_fault(length, "length mismatch");
  expect_fault(crc + zlib_gzip("more"), "CRC mismatch");
  expect_fault(zlib_gzip("less") + length, "length mismatch");
}

TEST_F(Gzip, NoFlippedBitChangesTheContentUnseen) {
  const std::string content = noisy(1000), packed = zlib_gzip(content);
  int unnoticed = 0;
  for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << (bit % 8)));
    try {
      EXPECT_EQ(unpack(file(damaged)), content) << "bit " << bit;
      ++unnoticed;
    } catch (const Error& error) {
      const bool unused = bit / 8 >= 4 && bit / 8 < 10;  // time, extra flags and system in the header
      EXPECT_FALSE(unused) << "bit " << bit << ": " << error.what();
      EXPECT_EQ(error.code(), ErrorCode::input);
      EXPECT_EQ(error.path(), folder_ / "a.gz");
    }
  }
  EXPECT_LT(unnoticed, 6 * 8 + 30) << "beyond the unused header bytes only padding and unused codes may differ";
}

TEST_F(Gzip, ReadsAHeaderWithoutTheRest) {
  const std::string content = noisy(100000), packed = zlib_gzip(content);
  InputFile input(file(packed.substr(0, 2000)));
  GzipReader reader(input);
  std::string start(348, '\0');
  EXPECT_EQ(reader.read(start.data(), start.size()), 348u);
  EXPECT_EQ(start, content.substr(0, 348));
}

TEST_F(Gzip, KnowsGzipByItsBytes) {
  InputFile packed(file(zlib_gzip("x"))), plain(write_bytes(folder_ / "b.gz", "plain")),
      empty(write_bytes(folder_ / "c.gz", ""));
  EXPECT_TRUE(is_gzip(packed));
  EXPECT_FALSE(is_gzip(plain));
  EXPECT_FALSE(is_gzip(empty));
}

}  // namespace
}  // namespace volpipe::io
