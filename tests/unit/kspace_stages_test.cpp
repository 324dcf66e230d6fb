// The k-space stages against their formulas, by Fourier transforms from the definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "stages/geometry/spatial_maps.h"
#include "stages/registry.h"
#include "support/direct_dft.h"
#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::HasSubstr;
using Complex = std::complex<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

const char* const kTransforming[] = {
    R"({"op": "gibbs", "alpha": 0.6})", R"({"op": "ghosting", "axis": "x", "ghosts": 2, "intensity": 0.7})",
    R"({"op": "ghosting", "axis": "z", "ghosts": 3, "intensity": 1, "restore": 0})",
    R"({"op": "motion", "degrees": 20, "translation": 3, "movements": 3, "axis": "y"})"};
const char* const kSpike = R"({"op": "kspace_spike", "count": 3, "intensity": 0.2})";

const Index3 kSizes[] = {{1, 1, 1}, {2, 1, 1}, {1, 1, 3}, {1, 8, 1}, {2, 3, 1},  {5, 1, 7},
                         {1, 9, 8}, {2, 2, 2}, {3, 5, 4}, {8, 6, 7}, {17, 33, 3}};

VolumeInfo info_of(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
  return {oblique_grid(size), dtype, components, ImageKind::image, ComponentAxis::none, 1.0};
}

Volume volume_of(DeviceContext& context, const VolumeInfo& info, const std::vector<double>& values) {
  Volume volume(info, context.allocate(info.bytes()));
  visit(info.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::transform(values.begin(), values.end(), volume.data_as<T>(), [](double value) { return T(value); });
  });
  return volume;
}

/// Smooth enough for a k-space that means something, with values far from 0.
std::vector<double> test_values(const Index3& size) {
  std::vector<double> values;
  for (std::int64_t z = 0; z < size[2]; ++z)
    for (std::int64_t y = 0; y < size[1]; ++y)
      for (std::int64_t x = 0; x < size[0]; ++x)
        values.push_back(std::round(100 + 40 * std::sin(0.9 * double(x) + 0.4 * double(y)) +
                                    30 * std::cos(1.3 * double(y) - 0.5 * double(z)) +
                                    double((x * 7 + y * 3 + z * 5) % 11)));
  return values;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / double(values.size());
}

class KSpaceStages : public testing::Test {
 protected:
  PipelineResult run(const std::string& stage, Volume volume, int threads = 2, const ItemKey& key = {}) {
    Images images;
    images.emplace("image", std::move(volume));
    return run_pipeline(*make_context(Device::cpu(), threads), pipeline_of(stage), std::move(images), key);
  }
  std::vector<double> run(const std::string& stage, const VolumeInfo& info, const std::vector<double>& values,
                          int threads = 2) {
    return values_of(run(stage, volume_of(*context_, info, values), threads).images.at("image"));
  }
  std::vector<double> run(const std::string& stage, const Index3& size, const std::vector<double>& values) {
    return run(stage, info_of(size), values);
  }

  /// The stage's faults, by place.
  std::vector<std::string> faults(const std::string& stage) {
    Faults faults;
    const Json entry = Json::parse(stage);
    EXPECT_EQ(find_stage(entry["op"].get<std::string>())->make(entry, "", faults), nullptr) << stage;
    std::vector<std::string> places;
    for (const Fault& fault : faults.list()) places.push_back(fault.pointer);
    return places;
  }

  std::unique_ptr<DeviceContext> context_ = make_context(Device::cpu(), 2);
};

/// float32 holds values of about 100 to 8e-6 each, and the deviations from their mean better than that.
constexpr double kTolerance = 3e-5;

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance = kTolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], tolerance) << "voxel " << i;
}

/// What becomes of an image when factor(k) multiplies its coefficients, k signed; the imaginary part must be 0.
std::vector<double> filtered(const std::vector<double>& values, const Index3& size,
                             const std::function<double(const Index3&)>& factor) {
  std::vector<Complex> spectrum = direct_dft(values, size);
  std::size_t at = 0;
  for (std::int64_t z = 0; z < size[2]; ++z)
    for (std::int64_t y = 0; y < size[1]; ++y)
      for (std::int64_t x = 0; x < size[0]; ++x)
        spectrum[at++] *=
            factor({signed_frequency(x, size[0]), signed_frequency(y, size[1]), signed_frequency(z, size[2])});
  std::vector<double> result;
  for (const Complex& value : direct_dft(std::move(spectrum), size, true)) {
    EXPECT_NEAR(value.imag(), 0, 1e-10);
    result.push_back(value.real());
  }
  return result;
}

TEST_F(KSpaceStages, KeepTheMeanAndTheGrid) {
  for (const std::string stage : kTransforming)
    for (const Index3& size : kSizes) {
      SCOPED_TRACE(stage);
      const std::vector<double> values = test_values(size);
      const PipelineResult result = run(stage, volume_of(*context_, info_of(size, DataType::int16), values));
      const Volume& volume = result.images.at("image");
      EXPECT_EQ(volume.info(), info_of(size));
      const double tolerance = 1e-5;  // voxels are rounded to 4e-6 each, and not all the same way
      EXPECT_NEAR(mean_of(values_of(volume)), mean_of(values), tolerance);
    }
}

TEST_F(KSpaceStages, LeaveAConstantImageAlone) {
  for (const std::string stage : {kTransforming[0], kTransforming[1], kTransforming[3], kSpike})
    for (const DataType dtype : {DataType::uint8, DataType::float32, DataType::float64})
      for (const Index3& size : {Index3{1, 1, 1}, Index3{7, 6, 5}}) {
        const std::vector<double> constant(std::size_t(size[0] * size[1] * size[2]), 37);
        EXPECT_EQ(run(stage, info_of(size, dtype), constant), constant) << stage;
      }
}

TEST_F(KSpaceStages, TakeEachComponentByItself) {
  const Index3 size{9, 8, 5};
  const std::vector<double> first = test_values(size);
  std::vector<double> second = first, both = first;
  for (double& value : second) value = 500 - 3 * value;
  both.insert(both.end(), second.begin(), second.end());
  for (const std::string stage : {kTransforming[0], kTransforming[2], kTransforming[3], kSpike}) {
    std::vector<double> wanted = run(stage, size, first);
    for (const double value : run(stage, size, second)) wanted.push_back(value);
    EXPECT_EQ(run(stage, info_of(size, DataType::float32, 2), both), wanted) << stage;
  }
}

TEST_F(KSpaceStages, ComputeTheSameForEveryPixelType) {
  const Index3 size{9, 8, 5};
  for (const std::string stage : {kTransforming[0], kTransforming[2], kTransforming[3], kSpike}) {
    const std::vector<double> wanted = run(stage, size, test_values(size));
    for (const DataType dtype : {DataType::uint8, DataType::int16, DataType::uint32, DataType::float64})
      expect_near(run(stage, info_of(size, dtype), test_values(size)), wanted);
  }
}

/// The mean of the others stands for them meanwhile; they are where they were, and nowhere else.
TEST_F(KSpaceStages, PutBackWhatIsNotFinite) {
  const Index3 size{9, 8, 5};
  for (const std::string stage : {kTransforming[0], kTransforming[2], kTransforming[3]}) {
    std::vector<double> values = test_values(size);
    const double total = mean_of(values) * 360 - values[7] - values[100] - values[359];
    values[7] = values[100] = values[359] = total / 357;
    std::vector<double> wanted = run(stage, info_of(size, DataType::float64), values);
    values[7] = wanted[7] = kNaN;
    values[100] = wanted[100] = kInfinity;
    values[359] = wanted[359] = -kInfinity;
    const PipelineResult result = run(stage, volume_of(*context_, info_of(size), values));
    const std::vector<double> got = values_of(result.images.at("image"));
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::isfinite(wanted[i])) EXPECT_NEAR(got[i], wanted[i], kTolerance) << i;
      else EXPECT_TRUE(std::isnan(wanted[i]) ? std::isnan(got[i]) : got[i] == wanted[i]) << i;
    ASSERT_EQ(result.record.warnings.size(), 1u) << stage;
    EXPECT_EQ(result.record.warnings[0].code, "non_finite_voxels");
    EXPECT_THAT(result.record.warnings[0].message, HasSubstr("3 voxels"));
  }
  const std::vector<double> nothing(8, kNaN);
  for (const double value : run(kTransforming[0], {2, 2, 2}, nothing)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(KSpaceStages, HaveTheSameBitsForAnyNumberOfThreads) {
  const Index3 size{33, 40, 17};
  for (const std::string stage : {kTransforming[0], kTransforming[2], kTransforming[3], kSpike}) {
    const std::vector<double> wanted = run(stage, info_of(size), test_values(size), 1);
    for (const int threads : {2, 7}) EXPECT_EQ(run(stage, info_of(size), test_values(size), threads), wanted) << stage;
  }
}

TEST_F(KSpaceStages, ComputeInDoubleWhereAsked) {
  const Index3 size{6, 7, 5};
  const std::vector<double> values = test_values(size);
  const std::vector<double> got =
      run(R"({"op": "ghosting", "ghosts": 3, "restore": 0, "precision": "double"})", size, values);
  expect_near(got, filtered(values, size, [](const Index3& k) { return k[1] != 0 && k[1] % 3 == 0 ? 0.5 : 1.0; }),
              1e-12);
}

TEST_F(KSpaceStages, DoNothingWhenAskedForNothing) {
  const Index3 size{9, 8, 5};
  const std::vector<double> values = test_values(size);
  for (const std::string stage :
       {R"({"op": "gibbs", "alpha": 0})", R"({"op": "ghosting", "intensity": 0})",
        R"({"op": "motion", "degrees": 0, "translation": 0})", R"({"op": "kspace_spike", "intensity": 0})"})
    EXPECT_EQ(run(stage, size, values), values) << stage;
}

TEST_F(KSpaceStages, GibbsKeepsAnEllipsoid) {
  for (const Index3& size : kSizes)
    for (const double alpha : {0.2, 0.5, 0.75, 1.0}) {
      const std::vector<double> values = test_values(size);
      const auto kept = [&](const Index3& k) {
        double radius = 0;
        int axes = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
          if (size[axis] == 1) continue;
          ++axes;
          radius += 4 * double(k[axis] * k[axis]) / double(size[axis] * size[axis]);
        }
        return radius <= axes * (1 - alpha) * (1 - alpha) + 1e-9 ? 1.0 : 0.0;
      };
      expect_near(run(R"({"op": "gibbs", "alpha": )" + std::to_string(alpha) + "}", size, values),
                  filtered(values, size, kept));
    }
}

TEST_F(KSpaceStages, GhostsLieAtSharesOfTheFieldOfView) {
  const Index3 size{5, 12, 4};
  const std::vector<double> values = test_values(size);
  for (const std::int64_t ghosts : {2, 3, 4, 6}) {
    // f - intensity (sum over j of f(y - j N / n) / n - mean of the line), for the line k = 0 is left alone
    std::vector<double> wanted = values;
    for (std::int64_t z = 0; z < 4; ++z)
      for (std::int64_t x = 0; x < 5; ++x) {
        const auto at = [&](std::int64_t y) { return std::size_t(x + 5 * ((y + 12) % 12 + 12 * z)); };
        double mean = 0;
        for (std::int64_t y = 0; y < 12; ++y) mean += values[at(y)] / 12;
        for (std::int64_t y = 0; y < 12; ++y) {
          double sum = 0;
          for (std::int64_t j = 0; j < ghosts; ++j) sum += values[at(y - j * 12 / ghosts)] / double(ghosts);
          wanted[at(y)] -= 0.8 * (sum - mean);
        }
      }
    expect_near(run(R"({"op": "ghosting", "axis": "y", "intensity": 0.8, "restore": 0, "ghosts": )" +
                        std::to_string(ghosts) + "}",
                    size, values),
                wanted);
  }
}

TEST_F(KSpaceStages, GhostingLeavesTheMiddleOfKSpaceAlone) {
  for (const Index3& size : {Index3{16, 7, 3}, Index3{17, 4, 2}})
    for (const double restore : {0.0, 0.25, 0.5, 1.0}) {
      const auto factor = [&](const Index3& k) {
        const bool damped = k[0] % 2 == 0 && double(std::abs(k[0])) > restore * double(size[0]) / 2;
        return damped ? 0.25 : 1.0;
      };
      const std::string stage = R"({"op": "ghosting", "axis": "x", "ghosts": 2, "intensity": 0.75, "restore": )";
      const std::vector<double> values = test_values(size);
      expect_near(run(stage + std::to_string(restore) + "}", size, values), filtered(values, size, factor));
    }
}

TEST_F(KSpaceStages, ASpikeIsACosine) {
  struct Case {
    Index3 size;
    std::array<int, 3> k;
  };
  for (const Case& spike : {Case{{8, 9, 5}, {1, 0, 0}}, Case{{8, 9, 5}, {-3, 2, 1}}, Case{{8, 9, 5}, {0, -4, 2}},
                            Case{{8, 6, 4}, {4, -3, 2}}, Case{{1, 9, 1}, {0, 2, 0}}, Case{{300, 2, 1}, {149, 1, 0}}}) {
    const Index3& size = spike.size;
    std::vector<double> values = test_values(size), wanted = values;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    std::size_t at = 0;
    for (std::int64_t z = 0; z < size[2]; ++z)
      for (std::int64_t y = 0; y < size[1]; ++y)
        for (std::int64_t x = 0; x < size[0]; ++x)
          wanted[at++] +=
              0.3 * (*high - *low) *
              std::cos(2 * std::numbers::pi *
                       (double(spike.k[0] * x) / double(size[0]) + double(spike.k[1] * y) / double(size[1]) +
                        double(spike.k[2] * z) / double(size[2])));
    const Json stage = {{"op", "kspace_spike"}, {"location", spike.k}, {"intensity", 0.3}};
    expect_near(run(stage.dump(), size, values), wanted);
  }
}

TEST_F(KSpaceStages, RandomSpikesAreConjugatePairs) {
  const Index3 size{8, 9, 5};
  const std::vector<double> values = test_values(size);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double height = 0.2 * (*high - *low);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const PipelineResult result = run(R"({"op": "kspace_spike", "intensity": 0.2})",
                                      volume_of(*context_, info_of(size), values), 2, {.seed = seed});
    std::vector<double> stripe = values_of(result.images.at("image"));
    for (std::size_t i = 0; i < stripe.size(); ++i) stripe[i] -= values[i];
    const std::vector<Complex> spectrum = direct_dft(stripe, size);
    int spikes = 0;
    for (std::size_t i = 0; i < spectrum.size(); ++i) {
      if (std::abs(spectrum[i]) < 1e-4 * height * 360) continue;
      ++spikes;
      EXPECT_NE(i, 0u);
      EXPECT_NEAR(std::abs(spectrum[i]), height * 360 / 2, height * 360 * 0.5001);  // all of it where k = -k
    }
    EXPECT_TRUE(spikes == 1 || spikes == 2) << spikes;
  }
}

TEST_F(KSpaceStages, RefuseWhatTheyCannotDo) {
  using Places = std::vector<std::string>;
  EXPECT_EQ(faults(R"({"op": "gibbs", "alpha": 1.1})"), Places{"/alpha"});
  EXPECT_EQ(faults(R"({"op": "ghosting", "ghosts": 1})"), Places{"/ghosts"});
  EXPECT_EQ(faults(R"({"op": "ghosting", "intensity": -0.1})"), Places{"/intensity"});
  EXPECT_EQ(faults(R"({"op": "ghosting", "restore": 2})"), Places{"/restore"});
  EXPECT_EQ(faults(R"({"op": "ghosting", "axis": "w"})"), Places{"/axis"});
  EXPECT_EQ(faults(R"({"op": "motion", "degrees": -1})"), Places{"/degrees"});
  EXPECT_EQ(faults(R"({"op": "motion", "translation": [1, 2]})"), Places{"/translation"});
  EXPECT_EQ(faults(R"({"op": "motion", "movements": 0})"), Places{"/movements"});
  EXPECT_EQ(faults(R"({"op": "kspace_spike", "location": [0, 0, 0]})"), Places{"/location"});
  EXPECT_EQ(faults(R"({"op": "kspace_spike", "location": [1, 0.5, 0]})"), Places{"/location"});
  EXPECT_EQ(faults(R"({"op": "kspace_spike", "location": [1, 0, 0], "count": 2})"), Places{"/count"});
  EXPECT_EQ(faults(R"({"op": "kspace_spike", "count": 5})"), Places{"/count"});
  EXPECT_THROW(run(R"({"op": "kspace_spike", "location": [0, 0, 3]})", {8, 8, 5}, test_values({8, 8, 5})), Error);
}

// ---- motion

double trilinear(const std::vector<double>& values, const Index3& size, const Vec3& p, double outside) {
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::int64_t element = 0, stride = 1;
    bool inside = true;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double lower = std::floor(p[axis]), share = p[axis] - lower;
      const bool upper = corner >> axis & 1;
      const std::int64_t i = std::int64_t(lower) + upper;
      weight *= upper ? share : 1 - share;
      inside &= i >= 0 && i < size[axis];
      element += i * stride;
      stride *= size[axis];
    }
    sum += weight * (inside ? values[std::size_t(element)] : outside);
  }
  return sum;
}

/// Draws what the stage says it draws, in its order: for each position the time, the rotations, the shifts.
TEST_F(KSpaceStages, MotionPutsKSpaceTogetherFromPositions) {
  const Index3 size{6, 9, 5};
  const Vec3 degrees{10, 20, 30}, shift{2, 1, 3};
  const int movements = 3;
  const std::vector<double> values = test_values(size);
  const Geometry grid = oblique_grid(size);
  const double outside = *std::min_element(values.begin(), values.end());
  std::vector<Complex> spectrum = direct_dft(values, size);
  DrawStream draws(7, "case", 1, 0x80000000u);
  const auto draw = [&](double amplitude) { return amplitude * (2 * draws.uniform() - 1); };
  for (int i = 1; i <= movements; ++i) {
    const double from = (i - 0.5 + draws.uniform()) / (movements + 1);
    Matrix3 rotation = Matrix3::identity();
    for (int axis = 0; axis < 3; ++axis) rotation = rotation_about(axis, draw(degrees[std::size_t(axis)])) * rotation;
    Vec3 by;
    for (std::size_t axis = 0; axis < 3; ++axis) by[axis] = draw(shift[axis]);
    const Affine push = about_center(rotation, center_of(grid), by);
    const Affine points = grid.world_to_index() * push.inverse() * grid.index_to_world();
    std::vector<double> moved;
    for (std::int64_t z = 0; z < size[2]; ++z)
      for (std::int64_t y = 0; y < size[1]; ++y)
        for (std::int64_t x = 0; x < size[0]; ++x)
          moved.push_back(trilinear(values, size, points({double(x), double(y), double(z)}), outside));
    const std::vector<Complex> later = direct_dft(moved, size);
    for (std::size_t at = 0; at < spectrum.size(); ++at) {
      const std::int64_t k = signed_frequency(std::int64_t(at) / size[0] % size[1], size[1]);
      if (2 * double(std::abs(k)) / double(size[1]) > from) spectrum[at] = later[at];
    }
  }
  std::vector<double> wanted;
  for (const Complex& value : direct_dft(spectrum, size, true)) wanted.push_back(value.real());

  const PipelineResult result =
      run(R"({"op": "motion", "degrees": [10, 20, 30], "translation": [2, 1, 3], "movements": 3, "axis": "y"})",
          volume_of(*context_, info_of(size), values), 2, {.seed = 7, .item_id = "case", .repeat = 1});
  // Interpolation in float32 weighs some values of 200 by shares known to 1e-7.
  expect_near(values_of(result.images.at("image")), wanted, 1e-4);
}

TEST_F(KSpaceStages, MotionIsAlikeForAllImagesOfAnItem) {
  const Index3 size{8, 9, 7};
  const Pipeline pipeline = pipeline_of(R"({"op": "motion", "degrees": 10, "translation": 2})",
                                        R"(, "inputs": {"a": {}, "b": {"suffix": "_b"}})");
  Images images;
  for (const char* name : {"a", "b"}) images.emplace(name, volume_of(*context_, info_of(size), test_values(size)));
  const PipelineResult result = run_pipeline(*context_, pipeline, std::move(images));
  EXPECT_TRUE(same_bytes(result.images.at("a"), result.images.at("b")));
  EXPECT_NE(values_of(result.images.at("a")), test_values(size));
}

TEST_F(KSpaceStages, ASliceMovesInItsPlane) {
  const Index3 size{12, 9, 1};
  VolumeInfo info = info_of(size);
  info.geometry = Geometry::from_spacing(size, {1, 1.5, 4}, {3, 4, 5});
  const std::vector<double> values = test_values(size);
  expect_near(run(R"({"op": "motion", "degrees": 0, "translation": [0, 0, 50]})", info, values), values);
  EXPECT_NE(run(R"({"op": "motion", "degrees": 0, "translation": [0, 2, 0]})", info, values), values);
}

}  // namespace
}  // namespace volpipe
