#include "stages/fourier/fft.h"

#include <algorithm>

#include "stages/fourier/executors.h"
#include "stages/fourier/line_transform.h"

namespace volpipe {

SpectrumLayout::SpectrumLayout(const Index3& volume_size) : volume_size_(volume_size), size_(volume_size) {
  while (halved_axis_ < 2 && size_[std::size_t(halved_axis_)] == 1) ++halved_axis_;
  auto& halved = size_[std::size_t(halved_axis_)];
  halved = halved / 2 + 1;
}

std::vector<std::int64_t> SpectrumLayout::frequencies(int axis) const {
  const std::int64_t n = volume_size_[std::size_t(axis)];
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < size_[std::size_t(axis)]; ++i) result.push_back(i <= n / 2 ? i : i - n);
  return result;
}

namespace {

using Complex = cpu::LineTransform::Complex;

/// Lines that lie `stride` apart are taken so many at a time: whole cache lines, and what is worked on stays near.
constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kTiles = 4, kRowPairs = 16;  ///< of one piece of parallel work

/// A thread's own transform of an axis, with the lines it goes from and to.
struct Lines {
  Lines(const cpu::LineTransform& transform, std::int64_t values) : transform(transform) {
    input.resize(std::size_t(values));
    output.resize(std::size_t(values));
  }
  /// Of the line of `length` that is at place `number`.
  void run(std::int64_t number, std::int64_t length) {
    const auto begin = std::size_t(number * length);
    transform.run(&input[begin], &output[begin]);
  }

  cpu::LineTransform transform;
  std::vector<Complex> input, output;
};

template <class T>
class CpuFourierTransform final : public FourierTransform {
 public:
  CpuFourierTransform(DeviceContext& context, const Index3& size)
      : context_(context), size_(without_single_voxels(size)), half_(size_[0] / 2 + 1) {
    for (const bool inverse : {false, true})
      for (const std::int64_t n : size_) transforms_[inverse].emplace_back(n, inverse);
  }

  void forward(const void* volume, void* spectrum) override {
    auto* coefficients = static_cast<std::complex<T>*>(spectrum);
    rows_forward(static_cast<const T*>(volume), coefficients);
    for (std::size_t axis = 1; axis < 3; ++axis) transform_columns(axis, false, coefficients);
  }

  void inverse(void* spectrum, void* volume) override {
    auto* coefficients = static_cast<std::complex<T>*>(spectrum);
    for (std::size_t axis = 2; axis > 0; --axis) transform_columns(axis, true, coefficients);
    rows_inverse(coefficients, static_cast<T*>(volume));
  }

 private:
  std::int64_t rows() const { return size_[1] * size_[2]; }

  /// body(lines, row, second) for rows two by two: the second is row + 1, or row itself where it is the last. Two real
  /// lines are one complex line.
  template <class Body>
  void over_row_pairs(bool inverse, const Body& body) const {
    context_.parallel((rows() + 1) / 2, kRowPairs, [&](std::int64_t begin, std::int64_t end) {
      Lines lines(transforms_[inverse][0], size_[0]);
      for (std::int64_t pair = begin; pair < end; ++pair) body(lines, 2 * pair, std::min(2 * pair + 1, rows() - 1));
    });
  }

  void rows_forward(const T* volume, std::complex<T>* spectrum) const {
    const std::int64_t n = size_[0];
    over_row_pairs(false, [&](Lines& lines, std::int64_t row, std::int64_t second) {
      for (std::int64_t i = 0; i < n; ++i)
        lines.input[std::size_t(i)] = {double(volume[row * n + i]), double(volume[second * n + i])};
      lines.run(0, n);
      for (std::int64_t k = 0; k < half_; ++k) {
        const Complex here = lines.output[std::size_t(k)],
                      there = std::conj(lines.output[std::size_t(k == 0 ? 0 : n - k)]);
        const Complex sum = 0.5 * (here + there), difference = 0.5 * (here - there);
        spectrum[row * half_ + k] = std::complex<T>(sum);
        spectrum[second * half_ + k] =
            second == row ? std::complex<T>(sum) : std::complex<T>(T(difference.imag()), T(-difference.real()));
      }
    });
  }

  void rows_inverse(const std::complex<T>* spectrum, T* volume) const {
    const std::int64_t n = size_[0];
    const double scale = 1 / (double(n) * double(rows()));
    over_row_pairs(true, [&](Lines& lines, std::int64_t row, std::int64_t second) {
      for (std::int64_t k = 0; k < half_; ++k) {
        const Complex a(spectrum[row * half_ + k]), b(spectrum[second * half_ + k]);
        const bool real = k == 0 || 2 * k == n;
        lines.input[std::size_t(k)] =
            real ? Complex(a.real(), b.real()) : Complex(a.real() - b.imag(), a.imag() + b.real());
        if (!real) lines.input[std::size_t(n - k)] = {a.real() + b.imag(), b.real() - a.imag()};
      }
      lines.run(0, n);
      for (std::int64_t i = 0; i < n; ++i) {
        volume[second * n + i] = T(scale * lines.output[std::size_t(i)].imag());
        volume[row * n + i] = T(scale * lines.output[std::size_t(i)].real());
      }
    });
  }

  void transform_columns(std::size_t axis, bool inverse, std::complex<T>* spectrum) const {
    const std::int64_t n = size_[axis], stride = axis == 1 ? half_ : half_ * size_[1];
    if (n == 1) return;
    const std::int64_t tiles = (stride + kColumns - 1) / kColumns, blocks = axis == 1 ? size_[2] : 1;
    context_.parallel(blocks * tiles, kTiles, [&](std::int64_t begin, std::int64_t end) {
      Lines lines(transforms_[inverse][axis], kColumns * n);
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile % tiles * kColumns, columns = std::min(kColumns, stride - first);
        std::complex<T>* const corner = spectrum + tile / tiles * n * stride + first;
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t c = 0; c < columns; ++c)
            lines.input[std::size_t(c * n + i)] = Complex(corner[i * stride + c]);
        for (std::int64_t c = 0; c < columns; ++c) lines.run(c, n);
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t c = 0; c < columns; ++c)
            corner[i * stride + c] = std::complex<T>(lines.output[std::size_t(c * n + i)]);
      }
    });
  }

  DeviceContext& context_;
  Index3 size_;
  std::int64_t half_;
  std::array<std::vector<cpu::LineTransform>, 2> transforms_;  ///< forward and inverse, for each axis
};

}  // namespace

std::unique_ptr<FourierTransform> cpu::make_fourier_transform(DeviceContext& context, const Index3& size,
                                                              DataType type) {
  if (type == DataType::float64) return std::make_unique<CpuFourierTransform<double>>(context, size);
  return std::make_unique<CpuFourierTransform<float>>(context, size);
}

std::unique_ptr<FourierTransform> make_fourier_transform(DeviceContext& context, const Index3& size, DataType type) {
  return run_on(context, cpu::make_fourier_transform, cuda::make_fourier_transform, size, type);
}

std::size_t fourier_scratch_bytes(const Index3& size, DataType type) {
  // What cuFFT takes. Lengths with a prime factor above 127 are convolutions, for which its manual gives the bound.
  constexpr std::int64_t kLargestFactor = 127;
  const auto convolved = [](std::int64_t n) { return cpu::largest_prime_factor(n) > kLargestFactor; };
  const auto voxels = std::size_t(size[0] * size[1] * size[2]);
  const bool any = std::any_of(size.begin(), size.end(), convolved);
  return (std::size_t(1) << 20) + (any ? 8 * voxels * 2 * size_of(type) : 2 * SpectrumLayout(size).bytes(type));
}

}  // namespace volpipe
