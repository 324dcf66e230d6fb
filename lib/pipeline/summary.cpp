#include "pipeline/summary.h"

#include <set>

namespace volpipe {

namespace {

struct Values {
  ProgramInput input;
  Program identity{};
  std::int64_t count;

  SampledValues sampled() const {
    return {{&input, 1}, &identity, count, {}, fits_float32(input.dtype) ? Precision::single : Precision::double_};
  }
};

template <class T>
std::optional<std::vector<std::int64_t>> distinct_of(const T* values, std::int64_t count, std::size_t limit) {
  std::set<T> seen;
  T last = values[0];
  seen.insert(last);
  for (std::int64_t i = 1; i < count; ++i) {
    if (values[i] == last) continue;
    last = values[i];
    seen.insert(last);
    if (seen.size() > limit) return std::nullopt;
  }
  return std::vector<std::int64_t>(seen.begin(), seen.end());
}

}  // namespace

IntensitySummary summarize(DeviceContext& context, const Volume& volume, std::span<const double> percents) {
  const Values all{.input = {volume.data(), volume.dtype()}, .count = volume.info().value_count()};
  return {compute_moments(context, all.sampled()), compute_percentiles(context, all.sampled(), percents),
          distinct_values(volume, IntensitySummary::kMaxDistinct)};
}

std::vector<double> component_percentiles(DeviceContext& context, const Volume& volume, std::int64_t component,
                                          std::span<const double> percents) {
  const Values values{.input = {volume.component(component), volume.dtype()}, .count = volume.geometry().voxel_count()};
  return compute_percentiles(context, values.sampled(), percents);
}

std::optional<std::vector<std::int64_t>> distinct_values(const Volume& volume, std::size_t limit) {
  return visit(volume.dtype(), [&](auto tag) -> std::optional<std::vector<std::int64_t>> {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) return distinct_of(volume.data_as<T>(), volume.info().value_count(), limit);
    return std::nullopt;
  });
}

}  // namespace volpipe
