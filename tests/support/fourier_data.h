// What the tests of Fourier transforms share: volumes and spectra in double on the host, transformed on any context.
#pragma once

#include <complex>
#include <cstdint>
#include <random>
#include <vector>

#include "stages/fourier/fft.h"

namespace volpipe::testing_support {

/// Normal values, rounded to the type.
inline std::vector<double> random_values(const Index3& size, DataType type, unsigned seed = 5) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(std::size_t(size[0] * size[1] * size[2]));
  for (double& value : values) {
    value = normal(random);
    if (type == DataType::float32) value = double(float(value));
  }
  return values;
}

/// A device buffer of `values` in the type, and back.
inline Buffer uploaded(DeviceContext& context, const double* values, std::int64_t count, DataType type) {
  VolumeInfo info;
  info.geometry = Geometry({count, 1, 1}, Affine{});
  info.dtype = type;
  Volume volume(info, context.allocate_host(info.bytes()));
  for (std::int64_t i = 0; i < count; ++i)
    if (type == DataType::float64) volume.data_as<double>()[i] = values[i];
    else volume.data_as<float>()[i] = float(values[i]);
  return context.to_device(std::move(volume)).take_buffer();
}

inline void download(DeviceContext& context, Buffer buffer, std::int64_t count, DataType type, double* values) {
  VolumeInfo info;
  info.geometry = Geometry({count, 1, 1}, Affine{});
  info.dtype = type;
  const Volume volume = context.to_host(Volume(info, std::move(buffer)));
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = type == DataType::float64 ? volume.data_as<double>()[i] : double(volume.data_as<float>()[i]);
}

inline std::vector<std::complex<double>> transformed(DeviceContext& context, const std::vector<double>& volume,
                                                     const Index3& size, DataType type) {
  const SpectrumLayout layout(size);
  const Buffer input = uploaded(context, volume.data(), std::int64_t(volume.size()), type);
  Buffer spectrum = context.allocate(layout.bytes(type));
  make_fourier_transform(context, size, type)->forward(input.data(), spectrum.data());
  std::vector<std::complex<double>> result(std::size_t(layout.count()));
  download(context, std::move(spectrum), 2 * layout.count(), type, reinterpret_cast<double*>(result.data()));
  return result;
}

inline std::vector<double> transformed_back(DeviceContext& context, const std::vector<std::complex<double>>& spectrum,
                                            const Index3& size, DataType type) {
  Buffer input =
      uploaded(context, reinterpret_cast<const double*>(spectrum.data()), 2 * std::int64_t(spectrum.size()), type);
  std::vector<double> result(std::size_t(size[0] * size[1] * size[2]));
  Buffer output = context.allocate(result.size() * size_of(type));
  make_fourier_transform(context, size, type)->inverse(input.data(), output.data());
  download(context, std::move(output), std::int64_t(result.size()), type, result.data());
  return result;
}

}  // namespace volpipe::testing_support
