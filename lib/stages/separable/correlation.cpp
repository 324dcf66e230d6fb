#include "stages/separable/correlation.h"

#include <algorithm>
#include <cmath>

#include "stages/separable/sampling.h"

namespace volpipe {

namespace {

/// One row without its zero ends.
struct Kernel {
  std::int64_t start;
  std::vector<double> weights;
};

Kernel trimmed_row(const AxisMatrix& matrix, std::int64_t j) {
  const auto row = matrix.weights().subspan(std::size_t(j * matrix.taps()), std::size_t(matrix.taps()));
  const auto counts = [](double weight) { return float(weight) != 0; };
  const auto first = std::find_if(row.begin(), row.end(), counts);
  const auto last = std::find_if(row.rbegin(), row.rend(), counts).base();
  Kernel kernel{matrix.start()[std::size_t(j)] + (first - row.begin()), {}};
  if (first < last) kernel.weights.assign(first, last);
  return kernel;
}

std::vector<std::int32_t> extended(const AxisMatrix& matrix, const Kernel& kernel, std::int64_t offset,
                                   Boundary boundary) {
  const std::int64_t size = matrix.input_size();
  std::vector<std::int32_t> source;
  for (std::int64_t v = 0; v < matrix.output_size() + std::int64_t(kernel.weights.size()) - 1; ++v) {
    const std::int64_t i = v + offset;
    source.push_back(std::int32_t(i >= 0 && i < size ? i : fold_index(i, size, boundary)));
  }
  return source;
}

class Comparison {
 public:
  Comparison(const AxisMatrix& matrix, const Kernel& kernel)
      : matrix_(matrix), kernel_(kernel), difference_(std::size_t(matrix.input_size()) + 1) {
    const auto [smallest, largest] = std::minmax_element(kernel.weights.begin(), kernel.weights.end(),
                                                         [](double a, double b) { return std::abs(a) < std::abs(b); });
    smallest_ = std::abs(*smallest);
    largest_ = std::abs(*largest);
  }

  bool all_rows(const std::vector<std::int32_t>& source) {
    for (std::int64_t j = 0; j < matrix_.output_size(); ++j)
      if (!row(j, source.data() + j)) return false;
    return true;
  }

 private:
  static constexpr double kTolerance = 1e-10;  // far below float32's rounding

  bool row(std::int64_t j, const std::int32_t* source) {
    touched_.clear();
    for (std::size_t t = 0; t < kernel_.weights.size(); ++t) add(source[t], kernel_.weights[t]);
    bool equal = true;
    for (const std::size_t i : touched_) equal = equal && std::abs(difference_[i]) > kTolerance * smallest_;
    const int taps = matrix_.taps();
    for (int t = 0; t < taps; ++t)
      if (const double weight = matrix_.weights()[std::size_t(j * taps + t)]; float(weight) != 0)
        add((matrix_.start()[std::size_t(j)] + t) % matrix_.input_size(), -weight);
    add(-1, -matrix_.fill_weights()[std::size_t(j)]);
    for (const std::size_t i : touched_) {
      equal = equal && std::abs(difference_[i]) <= kTolerance * largest_;
      difference_[i] = 0;
    }
    return equal;
  }

  void add(std::int64_t index, double weight) {
    difference_[std::size_t(index + 1)] += weight;
    touched_.push_back(std::size_t(index + 1));
  }

  const AxisMatrix& matrix_;
  const Kernel& kernel_;
  double smallest_ = 0, largest_ = 0;
  std::vector<double> difference_;  ///< of a row: the fill's, then every voxel's; 0 between rows
  std::vector<std::size_t> touched_;
};

}  // namespace

std::optional<Correlation> as_correlation(const AxisMatrix& matrix) {
  const std::int64_t middle = matrix.output_size() / 2;
  const Kernel kernel = trimmed_row(matrix, middle);
  const bool gapless =
      std::all_of(kernel.weights.begin(), kernel.weights.end(), [](double w) { return float(w) != 0; });
  if (kernel.weights.empty() || !gapless) return std::nullopt;
  Correlation result{{kernel.weights.begin(), kernel.weights.end()}, kernel.start - middle, {}};
  Comparison comparison(matrix, kernel);
  for (const Boundary boundary :
       {Boundary::reflect, Boundary::mirror, Boundary::nearest, Boundary::grid_wrap, Boundary::grid_constant}) {
    result.source = extended(matrix, kernel, result.offset, boundary);
    if (comparison.all_rows(result.source)) return result;
  }
  return std::nullopt;
}

}  // namespace volpipe
