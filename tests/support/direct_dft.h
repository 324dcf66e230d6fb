// The discrete Fourier transform by its definition, in double, axis after axis.
#pragma once

#include <complex>
#include <cstdint>
#include <numbers>
#include <vector>

#include "volume/matrix.h"

namespace volpipe::testing_support {

/// sum over x of f(x) exp(-2 pi i (k_x x / n_x + ..)), every k from 0 to n - 1; the inverse turns the other way and
/// divides by the number of voxels.
inline std::vector<std::complex<double>> direct_dft(std::vector<std::complex<double>> values, const Index3& size,
                                                    bool inverse = false) {
  const std::int64_t strides[] = {1, size[0], size[0] * size[1]};
  const double turn = (inverse ? 2 : -2) * std::numbers::pi;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t n = size[axis];
    std::vector<std::complex<double>> sums(values.size());
    for (std::int64_t at = 0; at < std::int64_t(values.size()); ++at) {
      const std::int64_t k = at / strides[axis] % n;
      for (std::int64_t x = 0; x < n; ++x)
        sums[std::size_t(at)] += values[std::size_t(at + (x - k) * strides[axis])] *
                                 std::polar(inverse ? 1 / double(n) : 1.0, turn * double(x * k % n) / double(n));
    }
    values = std::move(sums);
  }
  return values;
}

inline std::vector<std::complex<double>> direct_dft(const std::vector<double>& values, const Index3& size) {
  return direct_dft(std::vector<std::complex<double>>(values.begin(), values.end()), size);
}

/// Frequency of index k of an axis of n: n / 2 of an even n is positive.
inline std::int64_t signed_frequency(std::int64_t k, std::int64_t n) { return k <= n / 2 ? k : k - n; }

}  // namespace volpipe::testing_support
