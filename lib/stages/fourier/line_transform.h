// Discrete Fourier transforms of single lines of any length, on the host.
#pragma once

#include <complex>
#include <cstdint>
#include <kissfft/kissfft.hh>
#include <vector>

namespace volpipe::cpu {

/// sum over j of line[j] exp(-+ 2 pi i j k / n), not divided by n: by KissFFT, or where the length has a large prime
/// factor as a convolution with a chirp (Bluestein 1970). It works in memory of its own: a copy for each thread.
class LineTransform {
 public:
  using Complex = std::complex<double>;

  LineTransform(std::int64_t length, bool inverse);
  /// `from` and `to` have the length of the line and do not overlap.
  void run(const Complex* from, Complex* to);

 private:
  void make_chirp(bool inverse);

  std::size_t length_;
  bool chirped_;
  kissfft<double> plan_;
  std::vector<Complex> chirp_, kernel_;  ///< exp(-+ pi i j j / n); the coefficients of what it is convolved with
  std::vector<Complex> line_, coefficients_;
};

std::int64_t largest_prime_factor(std::int64_t n);

}  // namespace volpipe::cpu
