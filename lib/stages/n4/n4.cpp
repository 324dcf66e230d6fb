#include "stages/n4/n4.h"

#include <algorithm>
#include <cmath>

#include "device/load_library.h"
#include "stages/n4/module/module.h"

namespace volpipe {

namespace {

const N4Module& load_module() {
  static const N4Module* const module = reinterpret_cast<decltype(&volpipe_n4_module)>(
      load_symbol({"libvolpipe_n4.so", "the module for N4", "ITK"}, kN4ModuleSymbol))();
  return *module;
}

/// Axes of one voxel doubled.
N4Image thickened(const N4Image& image) {
  N4Image thick{image.size, {}, {}};
  for (std::int64_t& n : thick.size) n = std::max<std::int64_t>(n, 2);
  const auto &n = image.size, &m = thick.size;
  for (std::int64_t k = 0; k < m[2]; ++k)
    for (std::int64_t j = 0; j < m[1]; ++j)
      for (std::int64_t i = 0; i < m[0]; ++i) {
        const auto voxel =
            std::size_t((std::min(k, n[2] - 1) * n[1] + std::min(j, n[1] - 1)) * n[0] + std::min(i, n[0] - 1));
        thick.values.push_back(image.values[voxel]);
        thick.mask.push_back(image.mask[voxel]);
      }
  return thick;
}

/// Weights of the order + 1 coefficients that count in a span, at place t of it; [0, 1] is the span (Cox, de Boor).
std::vector<double> span_weights(int order, double t) {
  std::vector<double> weights{1};
  for (int degree = 1; degree <= order; ++degree) {
    std::vector<double> next(std::size_t(degree) + 1, 0.0);
    for (int j = 0; j < degree; ++j) {
      next[std::size_t(j)] += weights[std::size_t(j)] * (1 - t + j) / degree;
      next[std::size_t(j) + 1] += weights[std::size_t(j)] * (t + degree - 1 - j) / degree;
    }
    weights = std::move(next);
  }
  return weights;
}

Field::Axis axis_over(const SplineLattice& lattice, std::size_t axis, const SampledAxis& sampled) {
  Field::Axis result{lattice.control_points[axis], lattice.order + 1, {}, {}};
  const double spans = double(lattice.spans(axis)), last_sample = double(std::max<std::int64_t>(sampled.count - 1, 1));
  for (std::int64_t i = 0; i < sampled.size; ++i) {
    const double sample = sampled.count == 1 ? 0 : double(i - sampled.first) / double(sampled.step);
    const double place = sample / last_sample * spans;
    const double span = std::clamp(std::floor(place), 0.0, spans - 1);
    result.first.push_back(std::int32_t(span));
    for (const double weight : span_weights(lattice.order, place - span)) result.weights.push_back(weight);
  }
  return result;
}

}  // namespace

SplineLattice fit_bias_field(const N4Image& image, const N4Settings& settings, const HostThreads& threads) {
  const bool flat = std::find(image.size.begin(), image.size.end(), 1) != image.size.end();
  return load_module().fit(flat ? thickened(image) : image, settings, threads);
}

SampledAxis SampledAxis::shrunk(std::int64_t size, std::int64_t factor) {
  constexpr std::int64_t kLeast = 8;
  const std::int64_t step = std::min(factor, std::max<std::int64_t>(1, size / kLeast));
  const std::int64_t count = size / step;
  return {size, step, count, (size - (count - 1) * step) / 2};
}

std::shared_ptr<const Field> field_over(const SplineLattice& lattice, const std::array<SampledAxis, 3>& axes) {
  auto field = std::make_shared<Field>();
  for (std::size_t axis = 0; axis < 3; ++axis) field->axes[axis] = axis_over(lattice, axis, axes[axis]);
  field->coefficients = lattice.coefficients;
  return field;
}

}  // namespace volpipe
