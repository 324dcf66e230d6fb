// gzip files of blocks packed in parallel: zlib unpacks them, and so do we.
#include "io/gzip_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "file_helpers.h"
#include "io/crc32.h"
#include "io/gzip.h"
#include "volume/phantom.h"

namespace volpipe::io {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::zlib_gunzip;
using test::zlib_gzip;

constexpr std::size_t kBlock = GzipWriter::kBlock;

std::string noisy(std::size_t bytes) {
  std::mt19937 random(1);
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) content[i] = char(i / 64 + random() % 7);
  return content;
}

std::string incompressible(std::size_t bytes) {
  std::mt19937_64 random(5);
  std::string content(bytes, '\0');
  for (char& c : content) c = char(random());
  return content;
}

class GzipWriting : public ::testing::Test {
 protected:
  std::string packed(const std::string& content, int level = 0, const HostThreads* threads = nullptr,
                     std::size_t step = std::string::npos) {
    AtomicFile file(folder_ / "w.gz", true);
    GzipWriter writer(file, level, threads);
    for (std::size_t done = 0; done < content.size(); done += std::min(step, content.size() - done))
      writer.write(content.data() + done, std::min(step, content.size() - done));
    writer.finish();
    EXPECT_EQ(writer.content_bytes(), content.size());
    file.commit();
    return read_bytes(folder_ / "w.gz");
  }

  std::string unpacked() {
    InputFile file(folder_ / "w.gz");
    GzipReader reader(file);
    std::string content, chunk(100000, '\0');
    while (const std::size_t count = reader.read(chunk.data(), chunk.size())) content.append(chunk, 0, count);
    return content;
  }

  TemporaryFolder folder_;
};

TEST(Crc32, OfThePartsGivesThatOfTheWhole) {
  const std::string content = incompressible(100000);
  const std::uint32_t whole = crc32_of(content.data(), content.size());
  EXPECT_EQ(whole, ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size())));
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const std::size_t split = i < 5    ? std::size_t(i)
                              : i < 10 ? content.size() - std::size_t(i - 5)
                                       : random() % content.size();
    EXPECT_EQ(crc32_combine(crc32_of(content.data(), split), crc32_of(content.data() + split, content.size() - split),
                            content.size() - split),
              whole)
        << split;
  }
}

TEST(Crc32, CombinesOverLengthsBeyond32Bits) {
  const std::uint32_t first = 0x12345678;
  for (const std::uint64_t bytes : {std::uint64_t(1) << 32, (std::uint64_t(5) << 33) + 12345})
    EXPECT_EQ(crc32_combine(first, 0x9ABCDEF0, bytes), ::crc32_combine64(first, 0x9ABCDEF0, z_off64_t(bytes))) << bytes;
}

TEST_F(GzipWriting, ZlibUnpacksWhatWePack) {
  for (const std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(352), kBlock - 1, kBlock, kBlock + 1,
                                 4 * kBlock, 5 * kBlock + 12345})
    for (const auto& content : {noisy(size), incompressible(size), std::string(size, '\0')})
      for (const int level : {1, 2, 3}) {
        EXPECT_TRUE(zlib_gunzip(packed(content, level)) == content) << size << " bytes, level " << level;
        EXPECT_TRUE(unpacked() == content) << size << " bytes, level " << level;
        InputFile file(folder_ / "w.gz");
        EXPECT_EQ(gzip_trailer_length(file), size);
      }
}

TEST_F(GzipWriting, TheBytesDoNotDependOnThreadsOrCalls) {
  const std::string content = noisy(9 * kBlock + 777) + incompressible(3 * kBlock);
  for (const int level : {1, 2, 3}) {
    const std::string alone = packed(content, level);
    for (const int count : {1, 2, 7}) {
      const HostThreads threads(count);
      EXPECT_TRUE(packed(content, level, &threads) == alone) << count << " threads, level " << level;
    }
    const HostThreads threads(3);
    for (const std::size_t step : {std::size_t(70000), kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5})
      EXPECT_TRUE(packed(content, level, &threads, step) == alone) << "in steps of " << step << ", level " << level;
  }
  EXPECT_EQ(packed(content).substr(4, 4), std::string(4, '\0')) << "no time in the header";
  EXPECT_TRUE(packed(content, 0) == packed(content, kGzipLevel));
}

TEST_F(GzipWriting, BlocksUseTheBytesBeforeThem) {
  // With a period of 20 000 bytes, a block that starts without a dictionary holds a whole period of literals. Level 3
  // alone finds matches that far back in every block.
  const std::string period = incompressible(20000);
  std::string content;
  while (content.size() < 16 * kBlock) content += period;
  EXPECT_LT(packed(content, 3).size(), period.size() + 16 * period.size() / 2);
}

TEST_F(GzipWriting, GrowsByNoMoreThanStoredBlocks) {
  // A stored block holds 65 535 bytes and takes 5; the end of one of ours takes 6, the file's header and trailer 18.
  const std::string content = incompressible(6 * kBlock + 100);
  for (const int level : {1, 2, 3})
    EXPECT_LE(packed(content, level).size(), content.size() + 7 * (5 * (kBlock / 65535 + 1) + 6) + 18) << level;
}

// Of zlib's level 6; the margin is what the fast writer was asked to keep to.
TEST_F(GzipWriting, PacksNoisyVoxelsNearlyAsWellAsZlib) {
  const Volume head = head_phantom(96).image;
  const auto* values = head.data_as<std::uint16_t>();
  const auto count = std::size_t(head.info().value_count());
  std::mt19937 random(7);
  std::normal_distribution<float> noise(0, 12);
  std::string integers, reals;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::hypot(float(values[i]) + noise(random), noise(random));
    const auto integer = std::int16_t(magnitude);
    integers.append(reinterpret_cast<const char*>(&integer), sizeof integer);
    reals.append(reinterpret_cast<const char*>(&magnitude), sizeof magnitude);
  }
  for (const auto& content : {integers, reals, std::string(reinterpret_cast<const char*>(values), count * 2)})
    for (const int level : {0, 1, 2, 3})
      EXPECT_LE(double(packed(content, level).size()), 1.06 * double(zlib_gzip(content).size())) << level;
}

}  // namespace
}  // namespace volpipe::io
