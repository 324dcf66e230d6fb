// The CPU executors against maps applied voxel by voxel in double.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/separable_reference.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing;

const std::vector<Index3> kSizes{{1, 1, 1}, {2, 3, 1}, {3, 1, 2}, {17, 33, 5}, {33, 17, 40}};

std::optional<GridMap> map_if_possible(const char* entry, const VolumeInfo& input) {
  try {
    return map_of(entry, input);
  } catch (const Error&) {
    return std::nullopt;  // a crop that leaves nothing of a small volume
  }
}

TEST(Separable, EveryCaseAtEverySize) {
  const auto context = make_context(Device::cpu(), 2);
  for (const Index3& size : kSizes) {
    const Volume input = random_volume(info_of(size));
    for (const char* entry : separable_cases()) {
      const auto map = map_if_possible(entry, input.info());
      if (!map) continue;
      const Volume output = apply_map(*context, input, *map, fill_of(*map));
      EXPECT_LE(relative_difference(values_of(output), reference(input, *map, fill_of(*map))), 2e-6)
          << entry << " on " << size_in_words(size);
    }
  }
}

TEST(Separable, TurnsVolumesLargerThanATile) {
  const auto context = make_context(Device::cpu(), 2);
  for (const auto& [type, depth] : {std::pair{DataType::uint8, 530}, std::pair{DataType::float32, 140}, std::pair{DataType::float64, 70}}) {
    const Volume input = random_volume(info_of({70, 9, depth}, type));
    for (const char* order : {"zyx", "zxy", "yxz", "yzx"})
      for (const char* pad : {R"({"op":"pad","before":1,"after":[0,3,1],"fill":7})", R"({"op":"flip","axes":"xz"})"}) {
        const GridMap turn = map_of((R"({"op":"permute","order":")" + std::string(order) + "\"}").c_str(), input.info());
        const auto map = compose(map_of(pad, turn.output), turn);
        const Volume output = apply_map(*context, input, *map, 7);
        EXPECT_EQ(relative_difference(values_of(output), reference(input, *map, 7)), 0) << order << pad << to_string(type);
      }
  }
}

TEST(Separable, EveryPixelTypeAndSeveralComponents) {
  const auto context = make_context(Device::cpu(), 2);
  for (const DataType type : all_types()) {
    const Volume input = random_volume(info_of({19, 12, 9}, type, 2));
    for (const char* entry : separable_cases()) {
      const auto map = map_if_possible(entry, input.info());
      const Volume output = apply_map(*context, input, *map, fill_of(*map));
      const double difference = relative_difference(values_of(output), reference(input, *map, fill_of(*map)));
      EXPECT_LE(difference, map->copies() && output.dtype() == type ? 0 : 2e-6) << entry << " on " << to_string(type);
    }
  }
}

TEST(Separable, DoublePrecision) {
  const auto context = make_context(Device::cpu(), 2);
  const Volume input = random_volume(info_of({19, 18, 21}, DataType::float64));
  for (const char* entry : separable_cases()) {
    GridMap map = map_of(entry, input.info());
    map.output.dtype = DataType::float64;
    const Volume output = apply_map(*context, input, map, fill_of(map));
    EXPECT_LE(relative_difference(values_of(output), reference(input, map, fill_of(map))), 1e-14) << entry;
  }
}

TEST(Separable, CopyingMatricesConvert) {
  const auto context = make_context(Device::cpu());
  const Volume input = volume_from(info_of({3, 2, 1}, DataType::int32), [](std::int64_t i) { return 16777217 + i; });
  for (const char* entry : {R"({"op":"gaussian","sigma":0})", R"({"op":"resize","size":[3,2,1]})",
                            R"({"op":"resize","size":[1,2,1],"antialias":false})"}) {
    GridMap map = map_of(entry, input.info());
    EXPECT_TRUE(map.computes && map.copies()) << entry;
    map.output.dtype = DataType::float64;
    EXPECT_EQ(values_of(apply_map(*context, input, map, 0)), reference(input, map, 0)) << entry;
  }
}

TEST(Separable, TheSameForAnyNumberOfThreads) {
  const auto one = make_context(Device::cpu(), 1), several = make_context(Device::cpu(), 5);
  const Volume input = random_volume(info_of({70, 45, 37}, DataType::int16));
  for (const char* entry : separable_cases()) {
    const GridMap map = map_of(entry, input.info());
    const Volume a = apply_map(*one, input, map, fill_of(map)), b = apply_map(*several, input, map, fill_of(map));
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.info().bytes()), 0) << entry;
  }
}

TEST(Separable, CopiesKeepEveryBit) {
  const auto context = make_context(Device::cpu());
  const Volume labels =
      volume_from(info_of({5, 4, 3}, DataType::uint32), [](std::int64_t i) { return 4294967295.0 - double(i); });
  const Volume flipped = apply_map(*context, labels, map_of(R"({"op":"flip","axes":"xyz"})", labels.info()), 0);
  for (std::int64_t i = 0; i < 60; ++i)
    EXPECT_EQ(flipped.data_as<std::uint32_t>()[i], labels.data_as<std::uint32_t>()[59 - i]);

  Volume bits(info_of({4, 3, 2}), Buffer::host(96));
  for (std::uint32_t i = 0; i < 24; ++i)
    bits.data_as<std::uint32_t>()[i] = 0x7f800001u + i * 0x01000000u;  // signalling NaNs among them
  const Volume turned = apply_map(*context, bits, map_of(R"({"op":"permute","order":"zyx"})", bits.info()), 0);
  for (std::int64_t z = 0; z < 2; ++z)
    for (std::int64_t y = 0; y < 3; ++y)
      for (std::int64_t x = 0; x < 4; ++x)
        EXPECT_EQ(turned.data_as<std::uint32_t>()[z + 2 * (y + 3 * x)],
                  bits.data_as<std::uint32_t>()[x + 4 * (y + 3 * z)]);
}

TEST(Separable, FillRoundsAndSaturates) {
  const auto context = make_context(Device::cpu());
  const auto padded = [&](DataType type, double fill) {
    const Volume input = volume_from(info_of({1, 1, 1}, type), [](std::int64_t) { return 5; });
    return values_of(apply_map(*context, input, map_of(R"({"op":"pad","before":[1,0,0]})", input.info()), fill))
        .front();
  };
  EXPECT_EQ(padded(DataType::uint8, 300), 255);
  EXPECT_EQ(padded(DataType::uint8, -3), 0);
  EXPECT_EQ(padded(DataType::int16, -2.5), -3);
  EXPECT_EQ(padded(DataType::float32, -2.5), -2.5);
}

TEST(Separable, NaNStaysWithinTheSupport) {
  const auto context = make_context(Device::cpu());
  const std::int64_t n = 41;
  Volume input = volume_from(info_of({n, n, n}), [](std::int64_t) { return 1; });
  input.data_as<float>()[20 + n * (20 + n * 20)] = std::numeric_limits<float>::quiet_NaN();
  const auto bad = [&](const char* entry) {
    const std::vector<double> values = values_of(apply_map(*context, input, map_of(entry, input.info()), 0));
    return std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  };
  EXPECT_EQ(bad(R"({"op":"flip","axes":"y"})"), 1);
  EXPECT_EQ(bad(R"({"op":"gaussian","sigma":1})"), 9 * 9 * 9);
  EXPECT_EQ(bad(R"({"op":"gaussian","sigma":[1,0,0]})"), 9);
  EXPECT_EQ(bad(R"({"op":"gaussian","sigma":[1,0,0],"order":[1,0,0]})"), 8);  // the middle weight is 0
  EXPECT_EQ(bad(R"({"op":"resize","size":41})"), 1);
  EXPECT_EQ(bad(R"({"op":"resize","size":[81,41,41],"align":"centers"})"), 3);
}

TEST(Separable, ComposedEqualsStaged) {
  const auto context = make_context(Device::cpu());
  const Volume input = random_volume(info_of({19, 18, 21}, DataType::int16));
  const std::vector<const char*> lattice{R"({"op":"flip","axes":"xz"})",
                                         R"({"op":"permute","order":"zxy"})",
                                         R"({"op":"reorient","axes":"PSL"})",
                                         R"({"op":"crop","start":[2,1,3],"size":9,"clip":true})",
                                         R"({"op":"pad","before":3,"after":2,"boundary":"reflect"})",
                                         R"({"op":"pad","before":3,"after":2,"boundary":"grid-wrap"})",
                                         R"({"op":"pad","before":[0,2,0],"after":3,"fill":4})"};
  const std::vector<const char*> computing{
      R"({"op":"resize","scale":0.7})", R"({"op":"gaussian","sigma":1.5,"boundary":"grid-wrap"})",
      R"({"op":"resize","scale":1.6,"interpolation":"bspline3","boundary":"mirror"})"};
  const auto check = [&](const char* first_entry, const char* second_entry) {
    const GridMap first = map_of(first_entry, input.info());
    const GridMap second = map_of(second_entry, first.output);
    const auto both = compose(second, first);
    if (!both) return false;
    const Volume between = apply_map(*context, input, first, fill_of(first));
    const Volume staged = apply_map(*context, between, second, fill_of(second));
    const Volume composed = apply_map(*context, input, *both, fill_of(*both));
    EXPECT_EQ(composed.info(), staged.info()) << first_entry << second_entry;
    EXPECT_LE(relative_difference(values_of(composed), values_of(staged)), 2e-6) << first_entry << second_entry;
    return true;
  };
  for (const char* a : lattice)
    for (const char* b : lattice) check(a, b);
  int composed = 0;
  for (const char* a : lattice)
    for (const char* b : computing) composed += int(check(a, b)) + int(check(b, a));
  EXPECT_GE(composed, 36);
  for (const char* a : computing)
    for (const char* b : computing) EXPECT_FALSE(check(a, b));
}

TEST(Separable, DoesNotComposeWhatWouldChange) {
  const VolumeInfo input = info_of({8, 8, 8}, DataType::int16);
  const auto composes = [&](const char* second, const char* first) {
    const GridMap before = map_of(first, input);
    return compose(map_of(second, before.output), before).has_value();
  };
  GridMap exact = map_of(R"({"op":"gaussian","sigma":1})", input);
  exact.output.dtype = DataType::float64;
  EXPECT_FALSE(compose(exact, map_of(R"({"op":"gaussian","sigma":0})", input)));  // which rounds to float32
  EXPECT_FALSE(composes(R"({"op":"pad","after":1,"fill":2})", R"({"op":"pad","after":1,"fill":1})"));
  EXPECT_FALSE(composes(R"({"op":"pad","after":1,"fill":"min"})", R"({"op":"flip","axes":"x"})"));
  EXPECT_TRUE(composes(R"({"op":"flip","axes":"x"})", R"({"op":"pad","after":1,"fill":"min"})"));
  const VolumeInfo single = info_of({8, 8, 8});
  const GridMap rounded = map_of(R"({"op":"pad","after":1,"fill":0.1})", single);  // to float32, then smoothed
  EXPECT_FALSE(compose(map_of(R"({"op":"gaussian","sigma":1})", rounded.output), rounded));
}

TEST(Separable, ScratchIsWhatBothOrdersNeed) {
  const VolumeInfo input = info_of({40, 20, 10}, DataType::int16, 3);
  EXPECT_EQ(scratch_bytes(input, map_of(R"({"op":"flip","axes":"x"})", input)), 0u);
  EXPECT_EQ(scratch_bytes(input, map_of(R"({"op":"gaussian","sigma":[1,1,0]})", input)), 0u);
  EXPECT_EQ(scratch_bytes(input, map_of(R"({"op":"gaussian","sigma":1})", input)), std::size_t(40 * 20 * 10 * 3) * 4);
}

}  // namespace
}  // namespace volpipe
