// Fourier transforms against the sum that defines them, in double, and against what is known of them.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>

#include "stages/fourier/fft.h"
#include "stages/fourier/spectrum.h"
#include "support/direct_dft.h"
#include "support/fourier_data.h"

namespace volpipe {
namespace {

using namespace testing_support;
using Complex = std::complex<double>;

/// Each coefficient that a spectrum keeps, and its frequencies brought to 0 .. n - 1.
template <class Body>
void for_each_kept(const Index3& size, const Body& body) {
  const SpectrumLayout layout(size);
  const std::vector<std::int64_t> x = layout.frequencies(0), y = layout.frequencies(1), z = layout.frequencies(2);
  std::size_t element = 0;
  for (const std::int64_t kz : z)
    for (const std::int64_t ky : y)
      for (const std::int64_t kx : x) body(element++, Index3{kx, ky, kz});
}

std::size_t element_of(const Index3& k, const Index3& size) {
  Index3 at;
  for (std::size_t axis = 0; axis < 3; ++axis) at[axis] = (k[axis] % size[axis] + size[axis]) % size[axis];
  return std::size_t(at[0] + size[0] * (at[1] + size[1] * at[2]));
}

/// Errors of an FFT grow with the root of the number of steps, those of a coefficient with the volume's norm: 1e-6 of
/// the norm is 16 roundings to float32, of which a line of three axes has six; the double's share is 1e-14.
double tolerance_for(DataType type) { return type == DataType::float64 ? 1e-14 : 1e-6; }

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

class Fourier : public testing::TestWithParam<Index3> {
 protected:
  std::unique_ptr<DeviceContext> context_ = make_context(Device::cpu(), 2);
};

TEST_P(Fourier, IsTheSumThatDefinesIt) {
  const Index3 size = GetParam();
  for (const DataType type : {DataType::float32, DataType::float64}) {
    const std::vector<double> volume = random_values(size, type);
    const std::vector<Complex> wanted = direct_dft(volume, size), got = transformed(*context_, volume, size, type);
    const double tolerance = tolerance_for(type) * norm_of(volume);
    for_each_kept(size, [&](std::size_t element, const Index3& k) {
      const std::size_t at = element_of(k, size);
      ASSERT_NEAR(std::abs(got[element] - wanted[at]), 0, tolerance)
          << k[0] << " " << k[1] << " " << k[2] << ", " << to_string(type);
    });
  }
}

TEST_P(Fourier, IsUndoneByTheInverse) {
  const Index3 size = GetParam();
  for (const DataType type : {DataType::float32, DataType::float64}) {
    const std::vector<double> volume = random_values(size, type);
    const std::vector<double> back =
        transformed_back(*context_, transformed(*context_, volume, size, type), size, type);
    const double tolerance = type == DataType::float64 ? 1e-13 : 3e-6;  // of values of about 1
    for (std::size_t i = 0; i < volume.size(); ++i) ASSERT_NEAR(back[i], volume[i], tolerance) << i;
  }
}

/// sum |f|^2 = sum |F|^2 / N, every coefficient that is left out standing beside its conjugate.
TEST_P(Fourier, KeepsTheEnergy) {
  const Index3 size = GetParam();
  const std::vector<double> volume = random_values(size, DataType::float64);
  const std::vector<Complex> spectrum = transformed(*context_, volume, size, DataType::float64);
  const SpectrumLayout layout(size);
  const auto halved = std::size_t(layout.halved_axis());
  double energy = 0;
  for_each_kept(size, [&](std::size_t element, const Index3& k) {
    const bool own_conjugate = k[halved] == 0 || 2 * k[halved] == size[halved];
    energy += (own_conjugate ? 1 : 2) * std::norm(spectrum[element]);
  });
  const double wanted = norm_of(volume) * norm_of(volume);
  EXPECT_NEAR(energy / double(volume.size()), wanted, 1e-12 * wanted);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Fourier,
                         testing::Values(Index3{1, 1, 1}, Index3{2, 1, 1}, Index3{3, 1, 1}, Index3{5, 1, 1},
                                         Index3{7, 1, 1}, Index3{8, 1, 1}, Index3{17, 1, 1}, Index3{33, 1, 1},
                                         Index3{1, 2, 1}, Index3{1, 1, 2}, Index3{1, 1, 33}, Index3{1, 5, 3},
                                         Index3{2, 1, 2}, Index3{3, 1, 8}, Index3{2, 2, 2}, Index3{3, 5, 7},
                                         Index3{8, 7, 5}, Index3{17, 3, 8}, Index3{33, 2, 17}, Index3{7, 33, 2},
                                         Index3{5, 8, 33}, Index3{37, 1, 1}, Index3{127, 1, 1}, Index3{131, 1, 1},
                                         Index3{1, 131, 1}, Index3{2, 3, 127}, Index3{127, 131, 1}, Index3{74, 41, 2},
                                         Index3{210, 3, 2}, Index3{1, 360, 1}, Index3{1, 2, 1024}, Index3{1021, 1, 1}));

TEST(FourierLayout, HalvesTheFirstAxisWithMoreThanOneVoxel) {
  EXPECT_EQ(SpectrumLayout({6, 5, 4}).size(), (Index3{4, 5, 4}));
  EXPECT_EQ(SpectrumLayout({5, 5, 4}).size(), (Index3{3, 5, 4}));
  EXPECT_EQ(SpectrumLayout({1, 7, 4}).size(), (Index3{1, 4, 4}));
  EXPECT_EQ(SpectrumLayout({1, 1, 2}).size(), (Index3{1, 1, 2}));
  EXPECT_EQ(SpectrumLayout({1, 1, 1}).size(), (Index3{1, 1, 1}));
  EXPECT_EQ(SpectrumLayout({6, 5, 4}).frequencies(0), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(SpectrumLayout({6, 5, 4}).frequencies(1), (std::vector<std::int64_t>{0, 1, 2, -2, -1}));
  EXPECT_EQ(SpectrumLayout({6, 5, 4}).frequencies(2), (std::vector<std::int64_t>{0, 1, 2, -1}));
}

TEST(FourierTransform, OfAnImpulseIsAPhaseAndOfAConstantAnImpulse) {
  const auto context = make_context(Device::cpu(), 2);
  const Index3 size{12, 9, 10}, place{5, 2, 7};
  std::vector<double> impulse(12 * 9 * 10, 0), constant(impulse.size(), 2.5);
  impulse[element_of(place, size)] = 1;
  const std::vector<Complex> phases = transformed(*context, impulse, size, DataType::float64);
  const std::vector<Complex> peak = transformed(*context, constant, size, DataType::float64);
  for_each_kept(size, [&](std::size_t element, const Index3& k) {
    double cycles = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) cycles += double(k[axis] * place[axis]) / double(size[axis]);
    EXPECT_NEAR(std::abs(phases[element] - std::polar(1.0, -2 * std::numbers::pi * cycles)), 0, 1e-14);
    EXPECT_NEAR(std::abs(peak[element]), element == 0 ? 2.5 * 1080 : 0.0, 1e-11);
  });
}

TEST(FourierTransform, OfAShiftedVolumeHasItsPhasesTurned) {
  const auto context = make_context(Device::cpu(), 2);
  const Index3 size{10, 7, 6}, shift{3, 5, 2};
  const std::vector<double> volume = random_values(size, DataType::float64);
  std::vector<double> shifted(volume.size());
  for (std::int64_t z = 0; z < size[2]; ++z)
    for (std::int64_t y = 0; y < size[1]; ++y)
      for (std::int64_t x = 0; x < size[0]; ++x)
        shifted[element_of({x + shift[0], y + shift[1], z + shift[2]}, size)] = volume[element_of({x, y, z}, size)];
  const std::vector<Complex> before = transformed(*context, volume, size, DataType::float64);
  const std::vector<Complex> after = transformed(*context, shifted, size, DataType::float64);
  for_each_kept(size, [&](std::size_t element, const Index3& k) {
    double cycles = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) cycles += double(k[axis] * shift[axis]) / double(size[axis]);
    EXPECT_NEAR(std::abs(after[element] - before[element] * std::polar(1.0, -2 * std::numbers::pi * cycles)), 0, 1e-12);
  });
}

/// What of a coefficient has no meaning in a real volume is left out, whether or not it is 0.
TEST(FourierTransform, TakesTheRealPartOfCoefficientsThatMustBeReal) {
  const auto context = make_context(Device::cpu(), 1);
  const Index3 size{6, 1, 1};
  std::vector<Complex> spectrum = transformed(*context, {1, 2, 3, 4, 5, 7}, size, DataType::float64);
  spectrum[0] += Complex(0, 5);
  spectrum[3] += Complex(0, -3);
  const std::vector<double> back = transformed_back(*context, spectrum, size, DataType::float64);
  const double wanted[] = {1, 2, 3, 4, 5, 7};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(back[i], wanted[i], 1e-14);
}

TEST(FourierTransform, HasTheSameBitsForAnyNumberOfThreads) {
  const Index3 size{37, 130, 45};
  for (const DataType type : {DataType::float32, DataType::float64}) {
    const std::vector<double> volume = random_values(size, type);
    const std::vector<Complex> wanted = transformed(*make_context(Device::cpu(), 1), volume, size, type);
    for (const int threads : {2, 7}) {
      const auto context = make_context(Device::cpu(), threads);
      const std::vector<Complex> got = transformed(*context, volume, size, type);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(Complex)), 0);
      EXPECT_EQ(transformed_back(*context, got, size, type),
                transformed_back(*make_context(Device::cpu(), 1), wanted, size, type));
    }
  }
}

TEST(SpectrumEdit, ChangesWhatItsValuesSay) {
  const auto context = make_context(Device::cpu(), 2);
  const Index3 size{4, 3, 2};
  const SpectrumLayout layout(size);
  SpectrumEdit edit(layout);
  edit.values = {{{0, 1, 2}, {0, 10, 10}, {0, 100}}};
  edit.limit = 11;
  edit.factor = 0.5;
  std::vector<float> source(36), target(36, -1);
  for (std::size_t i = 0; i < 36; ++i) source[i] = float(i);
  edit_spectrum(*context, layout, DataType::float32, edit, source.data(), target.data());
  for_each_kept(size, [&](std::size_t element, const Index3& k) {
    const bool chosen = k[2] != 0 || (k[1] != 0 && k[0] == 2);
    for (const std::size_t part : {2 * element, 2 * element + 1})
      EXPECT_EQ(target[part], chosen ? 0.5f * source[part] : -1.f) << part;
  });
}

}  // namespace
}  // namespace volpipe
