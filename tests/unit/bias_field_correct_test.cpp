// N4 bias field correction: what it finds of a known field, splines over sampled grids, degenerate images, faults.
#include <gtest/gtest.h>

#include <filesystem>

#include "stages/n4/n4.h"
#include "stages/separable/bspline.h"
#include "support/bias_phantom.h"
#include "support/pointwise_data.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;

/// The field's value at a voxel, by its own tables.
double field_value(const Field& field, const Index3& at) {
  double sum = 0;
  const auto &x = field.axes[0], &y = field.axes[1], &z = field.axes[2];
  for (int c = 0; c < z.taps; ++c)
    for (int b = 0; b < y.taps; ++b)
      for (int a = 0; a < x.taps; ++a) {
        const auto of = [](const Field::Axis& axis, std::int64_t i, int tap) {
          return axis.weights[std::size_t(i * axis.taps + tap)];
        };
        const std::int64_t i = x.first[std::size_t(at[0])] + a, j = y.first[std::size_t(at[1])] + b,
                           k = z.first[std::size_t(at[2])] + c;
        sum += of(x, at[0], a) * of(y, at[1], b) * of(z, at[2], c) *
               field.coefficients[std::size_t((k * y.count + j) * x.count + i)];
      }
  return sum;
}

SplineLattice lattice_of(const Index3& points, int order, const std::function<double(const Index3&)>& coefficient) {
  SplineLattice lattice{points, order, {}};
  for (std::int64_t k = 0; k < points[2]; ++k)
    for (std::int64_t j = 0; j < points[1]; ++j)
      for (std::int64_t i = 0; i < points[0]; ++i) lattice.coefficients.push_back(coefficient({i, j, k}));
  return lattice;
}

TEST(SampledAxis, LiesInTheMiddleAndKeepsEightVoxels) {
  const auto check = [](std::int64_t size, std::int64_t factor, std::int64_t step, std::int64_t count,
                        std::int64_t first) {
    const SampledAxis axis = SampledAxis::shrunk(size, factor);
    EXPECT_EQ(axis.step, step) << size;
    EXPECT_EQ(axis.count, count) << size;
    EXPECT_EQ(axis.first, first) << size;
    EXPECT_LT(axis.first + (axis.count - 1) * axis.step, size) << size;
  };
  check(96, 3, 3, 32, 1);
  check(97, 3, 3, 32, 2);
  check(100, 1, 1, 100, 0);
  check(30, 4, 3, 10, 1);
  check(20, 4, 2, 10, 1);
  check(15, 4, 1, 15, 0);
  check(1, 4, 1, 1, 0);
  for (std::int64_t size = 1; size < 200; ++size)
    for (std::int64_t factor = 1; factor < 20; ++factor) {
      const SampledAxis axis = SampledAxis::shrunk(size, factor);
      EXPECT_GE(axis.count, std::min<std::int64_t>(size, 8));
      EXPECT_LE(std::abs(axis.first - (size - 1 - (axis.first + (axis.count - 1) * axis.step))), axis.step);
    }
}

/// Splines give linear coefficients back as a linear function: of the place in spans, (order - 1) / 2 after the first
/// coefficient.
TEST(SplineField, IsExactForLinearFunctionsBeyondTheSamplesToo) {
  const std::array<SampledAxis, 3> axes{SampledAxis::shrunk(43, 4), SampledAxis::shrunk(20, 2),
                                        SampledAxis{1, 1, 1, 0}};
  for (const int order : {1, 2, 3}) {
    const SplineLattice lattice = lattice_of({order + 4, order + 1, order + 1}, order, [](const Index3& at) {
      return 2 + 0.5 * double(at[0]) - 3 * double(at[1]);
    });
    const auto field = field_over(lattice, axes);
    const double shift = (order - 1) / 2.0;
    for (std::int64_t j = 0; j < 20; ++j)
      for (std::int64_t i = 0; i < 43; ++i) {
        const double u = double(i - axes[0].first) / double(axes[0].step * (axes[0].count - 1)) * 4;
        const double v = double(j - axes[1].first) / double(axes[1].step * (axes[1].count - 1));
        ASSERT_NEAR(field_value(*field, {i, j, 0}), 2 + 0.5 * (u + shift) - 3 * (v + shift), 1e-12) << i << " " << j;
      }
  }
}

TEST(SplineField, IsTheCubicSplineOfItsCoefficients) {
  const std::array<SampledAxis, 3> axes{SampledAxis{60, 2, 29, 1}, SampledAxis{2, 1, 2, 0}, SampledAxis{2, 1, 2, 0}};
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values;
  const SplineLattice lattice = lattice_of({10, 4, 4}, 3, [&](const Index3& at) {
    if (at[1] == 0 && at[2] == 0) values.push_back(uniform(random));
    return values[std::size_t(at[0])];
  });
  const auto field = field_over(lattice, axes);
  for (std::int64_t i = 1; i < 57; ++i) {  // the last sample, place 57, begins the next span there
    const BsplineWeights weights = bspline_weights(3, double(i - 1) / 56 * 7 + 1);
    double wanted = 0;
    for (std::size_t tap = 0; tap < 4; ++tap) wanted += weights.weights[tap] * values[std::size_t(weights.start) + tap];
    ASSERT_NEAR(field_value(*field, {i, 0, 0}), wanted, 1e-12) << i;
  }
}

/// Standard deviation over mean of the voxels of a tissue.
double variation(const Volume& image, const BiasPhantom& phantom, int tissue) {
  double sum = 0, squares = 0, count = 0;
  const auto values = values_of(image), tissues = values_of(phantom.tissue);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (tissues[i] != tissue) continue;
    sum += values[i];
    squares += values[i] * values[i];
    ++count;
  }
  return std::sqrt(squares / count - sum / count * sum / count) / (sum / count);
}

/// Largest difference of log(found) from log(known) within the tissues, once their means agree.
double field_error(const Volume& image, const BiasPhantom& phantom) {
  const auto before = values_of(phantom.image), after = values_of(image), tissues = values_of(phantom.tissue);
  std::vector<double> differences;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (tissues[i] != 0) differences.push_back(std::log(before[i] / after[i]) - std::log(phantom.field[i]));
  double mean = 0, worst = 0;
  for (const double difference : differences) mean += difference / double(differences.size());
  for (const double difference : differences) worst = std::max(worst, std::abs(difference - mean));
  return worst;
}

TEST(BiasFieldCorrect, FindsASmoothField) {
  const BiasPhantom phantom = bias_phantom({64, 60, 48});
  for (const char* parameters :
       {R"("mask": "tissue", "on": "image")", R"("on": "image")", R"("shrink": 3, "mask": "nonzero", "on": "image")"}) {
    SCOPED_TRACE(parameters);
    const Volume image = corrected(phantom, parameters);
    EXPECT_EQ(image.dtype(), DataType::float32);
    for (const int tissue : {1, 2, 3}) {
      // From 0.22; the noise alone has 0.02.
      EXPECT_LT(variation(image, phantom, tissue), variation(phantom.image, phantom, tissue) / 8) << tissue;
    }
    EXPECT_LT(field_error(image, phantom), 0.06);
  }
}

/// White matter, the tissue of most voxels that are no edges.
TEST(BiasFieldCorrect, EvensAHeadOut) {
  Phantom head = head_phantom(64);
  const Geometry& grid = head.image.geometry();
  const Index3& n = grid.size();
  BiasPhantom phantom{copy_of(head.image), std::move(*head.label), {}};
  for (std::int64_t i = 0; i < grid.voxel_count(); ++i) {
    const Vec3 mm = grid.to_world({double(i % n[0]), double(i / n[0] % n[1]), double(i / n[0] / n[1])});
    const double field = std::exp(0.003 * mm[0] - 0.25e-4 * mm[1] * mm[1] + 0.3 * std::sin(0.02 * mm[2]));
    auto& voxel = phantom.image.data_as<std::uint16_t>()[i];
    voxel = std::uint16_t(std::lround(voxel * field));
  }
  const Volume image = corrected(phantom, R"("on": "image")");
  EXPECT_LT(variation(image, phantom, 3), variation(phantom.image, phantom, 3) / 1.8);
}

TEST(BiasFieldCorrect, LeavesWhatHasNoField) {
  BiasPhantom phantom = bias_phantom({48, 44, 40}, 0.01);
  for (std::int64_t i = 0; i < phantom.image.info().value_count(); ++i) {
    phantom.image.data_as<float>()[i] /= float(phantom.field[std::size_t(i)]);
    phantom.field[std::size_t(i)] = 1;
  }
  EXPECT_LT(field_error(corrected(phantom, R"("mask": "tissue", "on": "image")"), phantom), 0.05);
}

TEST(BiasFieldCorrect, IsTheSameForAnyNumberOfThreads) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const char* const parameters = R"("shrink": 2, "iterations": [6, 6], "on": "image")";
  const Volume one = corrected(phantom, parameters, 1);
  EXPECT_TRUE(same_bytes(one, corrected(phantom, parameters, 3)));
  EXPECT_TRUE(same_bytes(one, corrected(phantom, parameters, 2)));
}

/// ITK's own pool would stay, as large as the machine.
TEST(BiasFieldCorrect, StartsNoThreadsOfItsOwn) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const BiasPhantom phantom = bias_phantom({20, 18, 16});
  const auto before = threads();
  corrected(phantom, R"("on": "image")", 1);
  EXPECT_EQ(threads(), before);
}

TEST(BiasFieldCorrect, MasksSelectAlike) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const std::string more = R"(, "shrink": 2, "iterations": [6], "on": "image")";
  const Volume by_image = corrected(phantom, R"("mask": "tissue")" + more);
  EXPECT_TRUE(same_bytes(by_image, corrected(phantom, R"("mask": "nonzero")" + more)));  // the background is 0
  EXPECT_TRUE(same_bytes(by_image, corrected(phantom, R"("mask": {"above": 1})" + more)));
  EXPECT_FALSE(same_bytes(by_image, corrected(phantom, R"("mask": {"above": 500})" + more)));
}

TEST(BiasFieldCorrect, StopsAtTheIterationsAndAtConvergence) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const std::string more = R"(, "shrink": 2, "on": "image")";
  const Volume once = corrected(phantom, R"("iterations": [1, 1])" + more);
  EXPECT_TRUE(same_bytes(once, corrected(phantom, R"("iterations": [50, 50], "convergence": 1000)" + more)));
  EXPECT_FALSE(same_bytes(once, corrected(phantom, R"("iterations": [1, 3], "convergence": 0)" + more)));
}

TEST(BiasFieldCorrect, ControlPointsAreGivenByNumberOrDistance) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});  // 35.1, 45.5 and 65.1 mm between the outermost centres
  const std::string more = R"(, "shrink": 2, "iterations": [4], "on": "image")";
  const Volume by_number = corrected(phantom, R"("control_points": [5, 6, 7])" + more);
  EXPECT_TRUE(same_bytes(by_number, corrected(phantom, R"("spacing": [17.6, 15.2, 16.3])" + more)));
  EXPECT_FALSE(same_bytes(by_number, corrected(phantom, R"("spacing": 1000)" + more)));
  EXPECT_TRUE(same_bytes(corrected(phantom, R"("spacing": 1000)" + more), corrected(phantom, R"("order": 3)" + more)));
}

PipelineResult run(const std::string& parameters, Volume image) {
  Images images;
  images.emplace("image", std::move(image));
  const auto cpu = make_context(Device::cpu(), 2);
  return run_pipeline(*cpu, pipeline_of(R"({"op": "bias_field_correct")" + parameters + "}"), std::move(images));
}

VolumeInfo info_of(const Index3& size, DataType type = DataType::float32, std::int64_t components = 1) {
  return {oblique_grid(size), type, components, ImageKind::image, ComponentAxis::none, 1.0};
}

TEST(BiasFieldCorrect, TakesEveryPixelTypeAndEachComponentByItself) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const std::int64_t n = phantom.image.info().value_count();
  const auto scaled = [&](double scale) {
    return [&phantom, scale, n](std::int64_t i) { return std::round(phantom.image.data_as<float>()[i % n] * scale); };
  };
  const std::string parameters = R"(, "shrink": 2, "iterations": [8], "mask": "nonzero")";
  for (const DataType type : kAllTypes) {
    const double scale = size_of(type) == 1 ? 0.06 : 1;
    const auto wanted = values_of(run(parameters, volume_of(info_of({40, 36, 32}), scaled(scale))).images.at("image"));
    const auto got =
        values_of(run(parameters, volume_of(info_of({40, 36, 32}, type), scaled(scale))).images.at("image"));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-6 * wanted[i]) << to_string(type);
  }
  const auto both =
      values_of(run(parameters, volume_of(info_of({40, 36, 32}, DataType::float32, 2),
                                          [&](std::int64_t i) {
                                            return i < n ? scaled(1)(i)
                                                         : double(phantom.tissue.data_as<std::uint8_t>()[i - n]) * 100 +
                                                               double(i % 7);
                                          }))
                    .images.at("image"));
  const auto first = values_of(run(parameters, volume_of(info_of({40, 36, 32}), scaled(1))).images.at("image"));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), both.begin()));
}

TEST(BiasFieldCorrect, ComputesInDoubleWhereAsked) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const std::string more = R"("shrink": 2, "iterations": [4], "on": "image")";
  const Volume fine = corrected(phantom, more + R"(, "precision": "double")");
  ASSERT_EQ(fine.dtype(), DataType::float64);
  const auto a = values_of(fine), b = values_of(corrected(phantom, more));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 3e-7 * a[i]);
}

TEST(BiasFieldCorrect, OddVoxelsAreLeftOut) {
  const BiasPhantom phantom = bias_phantom({40, 36, 32});
  const std::string more = R"("shrink": 1, "iterations": [4], "on": "image", "mask": "tissue")";
  BiasPhantom odd = bias_phantom({40, 36, 32});
  std::vector<std::int64_t> changed;
  const float values[] = {std::nanf(""), std::numeric_limits<float>::infinity(), -5, 0};
  for (std::int64_t i = 7; i < 40 * 36 * 32; i += 50) {
    odd.image.data_as<float>()[i] = values[changed.size() % 4];
    changed.push_back(i);
  }
  const auto result = run_correction(odd, more);
  ASSERT_EQ(result.record.warnings.size(), 1u);
  EXPECT_EQ(result.record.warnings[0].code, "not_positive");
  const auto a = values_of(result.images.at("image")), b = values_of(corrected(phantom, more));
  EXPECT_TRUE(std::isnan(a[7]));
  EXPECT_EQ(a[57], std::numeric_limits<double>::infinity());
  EXPECT_LT(a[107], 0);
  // One in fifty voxels less changes the field a little.
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || a[i] <= 0) continue;
    ASSERT_NEAR(a[i], b[i], 0.02 * b[i]) << i;
  }
}

TEST(BiasFieldCorrect, DegenerateImagesStayAsTheyAre) {
  const auto stays = [](const std::string& parameters, const VolumeInfo& info,
                        const std::function<double(std::int64_t)>& value) {
    const auto result = run(parameters, volume_of(info, value));
    EXPECT_EQ(result.images.at("image").dtype(), DataType::float32);
    const auto values = values_of(result.images.at("image"));
    for (std::int64_t i = 0; i < info.value_count(); ++i) EXPECT_EQ(values[std::size_t(i)], value(i));
    ASSERT_FALSE(result.record.warnings.empty());
    EXPECT_EQ(result.record.warnings.back().code, "no_voxels");
  };
  stays("", info_of({5, 4, 3}, DataType::int16), [](std::int64_t) { return 7; });
  stays("", info_of({1, 1, 1}), [](std::int64_t) { return 7; });
  stays(R"(, "mask": "nonzero")", info_of({5, 4, 3}), [](std::int64_t) { return 0; });
  stays(R"(, "mask": "nonzero")", info_of({5, 4, 3}), [](std::int64_t i) { return -1.0 - double(i); });
  stays(R"(, "mask": {"above": 1000})", info_of({5, 4, 3}), [](std::int64_t i) { return 1.0 + double(i); });
}

TEST(BiasFieldCorrect, SmallAndFlatImagesGiveFiniteValues) {
  for (const Index3& size : {Index3{2, 1, 1}, Index3{1, 3, 1}, Index3{17, 13, 1}, Index3{1, 33, 20}, Index3{3, 2, 2}}) {
    const auto result = run(R"(, "mask": "nonzero", "iterations": [3, 3])",
                            volume_of(info_of(size), [](std::int64_t i) { return 100 + 10 * std::sin(double(i)); }));
    for (const double value : values_of(result.images.at("image"))) {
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_GT(value, 0);
    }
  }
}

TEST(BiasFieldCorrect, IsPlannedForTheHost) {
  const Plan plan = make_plan(pipeline_of(R"({"op": "bias_field_correct"})"), {{"image", info_of({40, 36, 32})}}, {});
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_TRUE(plan.groups[0].volume->on_host());
}

TEST(BiasFieldCorrect, SaysWhatDoesNotFit) {
  for (const char* wrong :
       {R"("iterations": [])", R"("iterations": [0])", R"("iterations": [1,1,1,1,1,1,1,1,1])", R"("shrink": 0)",
        R"("convergence": -1)", R"("control_points": 3)", R"("control_points": 4, "spacing": 10)", R"("spacing": 0)",
        R"("order": 4)", R"("order": 2, "control_points": [2, 3, 4])", R"("bins": 1)", R"("fwhm": 0)",
        R"("wiener": 0)"})
    EXPECT_THROW(pipeline_of(std::string(R"({"op": "bias_field_correct", )") + wrong + "}"), Error) << wrong;
  EXPECT_THROW(run(R"(, "spacing": 0.1)", volume_of(info_of({40, 36, 32}), [](std::int64_t i) { return i; })), Error);
  EXPECT_THROW(run(R"(, "control_points": 1000)", volume_of(info_of({4, 3, 3}), [](std::int64_t i) { return i; })),
               Error);
  Images images;
  images.emplace("image", volume_of(info_of({4, 3, 3}, DataType::uint8), [](std::int64_t i) { return i; }));
  const auto cpu = make_context(Device::cpu(), 1);
  EXPECT_THROW(run_pipeline(*cpu,
                            pipeline_of(R"({"op": "bias_field_correct", "on": "image"})",
                                        R"(, "inputs": {"image": {"kind": "label"}})"),
                            std::move(images)),
               Error);
}

}  // namespace
}  // namespace volpipe
