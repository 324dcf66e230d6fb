#include "stages/fourier/line_transform.h"

#include <algorithm>
#include <numbers>

namespace volpipe::cpu {

namespace {

using Complex = LineTransform::Complex;

/// Beyond it KissFFT's general step, quadratic in the factor, is slower than the convolution.
constexpr std::int64_t kLargestFactor = 31;

/// The least number from `least` on whose prime factors are 2, 3 and 5.
std::size_t smooth_length(std::int64_t least) {
  while (largest_prime_factor(least) > 5) ++least;
  return std::size_t(least);
}

}  // namespace

std::int64_t largest_prime_factor(std::int64_t n) {
  std::int64_t largest = 1;
  for (std::int64_t factor = 2; factor * factor <= n; ++factor)
    for (; n % factor == 0; n /= factor) largest = factor;
  return std::max(largest, n);
}

LineTransform::LineTransform(std::int64_t length, bool inverse)
    : length_(std::size_t(length)),
      chirped_(largest_prime_factor(length) > kLargestFactor),
      plan_(chirped_ ? smooth_length(2 * length - 1) : length_, !chirped_ && inverse) {
  if (chirped_) make_chirp(inverse);
}

void LineTransform::make_chirp(bool inverse) {
  const std::size_t padded = smooth_length(2 * std::int64_t(length_) - 1);
  const double step = (inverse ? std::numbers::pi : -std::numbers::pi) / double(length_);
  chirp_.resize(length_);
  for (std::size_t j = 0; j < length_; ++j) chirp_[j] = std::polar(1.0, step * double(j * j % (2 * length_)));

  line_.assign(padded, 0);
  kernel_.resize(padded);
  coefficients_.resize(padded);
  for (std::size_t j = 0; j < length_; ++j)
    line_[j] = line_[(padded - j) % padded] = std::conj(chirp_[j]) / double(padded);
  plan_.transform(line_.data(), kernel_.data());
}

void LineTransform::run(const Complex* from, Complex* to) {
  if (!chirped_) return plan_.transform(from, to);
  for (std::size_t j = 0; j < length_; ++j) line_[j] = from[j] * chirp_[j];
  std::fill(line_.begin() + std::ptrdiff_t(length_), line_.end(), 0);
  plan_.transform(line_.data(), coefficients_.data());
  // The inverse transform is the conjugate of the forward transform of the conjugate.
  for (std::size_t k = 0; k < kernel_.size(); ++k) coefficients_[k] = std::conj(coefficients_[k] * kernel_[k]);
  plan_.transform(coefficients_.data(), line_.data());
  for (std::size_t k = 0; k < length_; ++k) to[k] = std::conj(line_[k]) * chirp_[k];
}

}  // namespace volpipe::cpu
