#include "stages/geometry/grid_maps.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kMostVoxels = 1099511627776.0;  // 2^40
constexpr double kLongestAxis = 16777216;        // 2^24: the tables of an axis take about 100 bytes a voxel
constexpr std::array<int, 3> kSameAxes{0, 1, 2};

bool holds_fill(DataType type, double fill) {
  if (type == DataType::float32) return std::abs(fill) <= double(std::numeric_limits<float>::max());
  if (is_floating(type)) return true;
  const IntegerRange range = integer_range(type);
  return fill == std::floor(fill) && fill >= range.lowest && fill <= range.highest;
}

std::string in_words(double voxels) {
  char words[32];
  std::snprintf(words, sizeof words, voxels < 1e12 ? "%.0f" : "%.3g", voxels);
  return words;
}

AxisMatrix sampled(std::int64_t size, const AxisSamples& samples, Interpolation interpolation, Boundary boundary,
                   bool antialias, double tolerance) {
  AxisMatrix sampling = sample_axis(size, samples.coordinates, interpolation, boundary, tolerance);
  const double factor = std::abs(samples.scale);
  if (!antialias || factor <= 1) return sampling;
  auto smoothed = AxisMatrix::compose(sampling, antialias_axis(size, factor));
  if (!smoothed)
    throw Error(ErrorCode::unsupported,
                "anti-aliasing cannot be combined with this boundary: set \"antialias\": false");
  return std::move(*smoothed);
}

}  // namespace

AxisRule whole_axis(std::int64_t size, bool reversed) {
  if (!reversed) return {AxisMatrix::identity(size)};
  std::vector<std::int64_t> source;
  for (std::int64_t j = 0; j < size; ++j) source.push_back(size - 1 - j);
  return {AxisMatrix::lattice(size, source), -1, double(size - 1)};
}

GridMap grid_map(const VolumeInfo& input, const std::array<int, 3>& source_axis, std::array<AxisRule, 3> rules,
                 Fill fill) {
  Affine target_to_source{Matrix3{}, {}};
  Index3 size;
  GridMap map{input, source_axis, {}, fill};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto source = std::size_t(source_axis[axis]);
    target_to_source.linear[int(source)][axis] = rules[axis].scale;
    target_to_source.offset[source] = rules[axis].offset;
    size[axis] = rules[axis].matrix.output_size();
    map.matrices[axis] = std::move(rules[axis].matrix);
  }
  map.output.geometry = input.geometry.remapped(size, target_to_source);
  map.target_to_source = target_to_source;
  return map;
}

void move_in_world(GridMap& map, const VolumeInfo& input) {
  map.moves_world = true;
  const Geometry& from = input.geometry;
  if (map.source_axis == kSameAxes) {
    map.output.geometry = from;
    return;
  }
  const Vec3 spacing = from.spacing();
  Affine to = from.index_to_world();
  Index3 size;
  Vec3 middle, source_middle;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto source = std::size_t(map.source_axis[axis]);
    size[axis] = from.size()[source];
    middle[axis] = double(size[axis] - 1) / 2;
    source_middle[axis] = double(from.size()[axis] - 1) / 2;
    for (int row = 0; row < 3; ++row) to.linear[row][axis] *= spacing[source] / spacing[axis];
  }
  to.offset = from.to_world(source_middle) - to.linear * middle;
  map.output.geometry = Geometry(size, to);
}

GridMap window_map(const VolumeInfo& input, const Index3& start, const Index3& size, const PaddingParams& padding) {
  check_grid_size(input, {double(size[0]), double(size[1]), double(size[2])});
  std::array<AxisRule, 3> rules;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t source_size = input.geometry.size()[axis];
    std::vector<std::int64_t> source;
    for (std::int64_t j = 0; j < size[axis]; ++j)
      source.push_back(fold_index(start[axis] + j, source_size, padding.boundary));
    rules[axis] = {AxisMatrix::lattice(source_size, source), 1, double(start[axis])};
  }
  GridMap map = grid_map(input, kSameAxes, std::move(rules), padding.fill);
  if (map.uses_fill()) check_fill(map.output, Boundary::constant, padding.fill);
  return map;
}

void check_grid_size(const VolumeInfo& input, const Vec3& size) {
  const Index3& n = input.geometry.size();
  bool fits = size[0] * size[1] * size[2] <= kMostVoxels, empty = false;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && size[axis] <= std::max(kLongestAxis, double(n[axis]));
    empty = empty || size[axis] < 1;
  }
  if (!empty && fits) return;
  const std::string would =
      "the result would have " + in_words(size[0]) + " x " + in_words(size[1]) + " x " + in_words(size[2]) + " voxels";
  if (empty) throw Error(ErrorCode::usage, would + ", and every axis needs at least one: change the sizes");
  const double gib =
      size[0] * size[1] * size[2] * double(input.components) * double(size_of(input.dtype)) / 1073741824.0;
  char words[160];
  std::snprintf(words, sizeof words, " (%.3g GiB), at most %.0f an axis and %.0f in all are possible: %s", gib,
                kLongestAxis, kMostVoxels, "change the sizes or the spacing");
  throw Error(ErrorCode::usage, would + words);
}

double round_half_up(double voxels) { return std::max(1.0, std::floor(voxels + 0.5 + 1e-3)); }

GridMap fit_map(const VolumeInfo& input, const Index3& size, const FitParams& params) {
  Index3 start{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t n = input.geometry.size()[axis];
    if (params.align == Alignment::center) start[axis] = n / 2 - size[axis] / 2;
    if (params.align == Alignment::end) start[axis] = n - size[axis];
  }
  return window_map(input, start, size, params);
}

std::string size_in_words(const Index3& size) {
  return "size " + std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
}

AxisSamples regular_samples(std::int64_t size, double scale, double offset) {
  AxisSamples samples{{}, scale, offset};
  samples.coordinates.reserve(std::size_t(size));
  for (std::int64_t j = 0; j < size; ++j) {
    const double c = offset + scale * double(j);
    samples.coordinates.push_back(std::abs(c - std::round(c)) < 1e-9 ? std::round(c) : c);
  }
  return samples;
}

Interpolation interpolation_for(const VolumeInfo& input, const SamplingParams& params) {
  const bool by_label = params.interpolation == Interpolation::label_linear;
  if (input.kind == ImageKind::label)  // anything else would mix label values
    return by_label ? Interpolation::label_linear : Interpolation::nearest;
  if (by_label)
    throw Error(ErrorCode::usage,
                "'interpolation' label_linear is for labels, and this is an image: choose another, or "
                "say in the spec that its kind is label");
  return params.interpolation.value_or(Interpolation::linear);
}

bool antialiases(const VolumeInfo& input, const SamplingParams& params) {
  const Interpolation interpolation = interpolation_for(input, params);
  if (interpolation == Interpolation::label_linear) return params.antialias.value_or(false);
  return input.kind != ImageKind::label && params.antialias.value_or(interpolation != Interpolation::nearest);
}

void check_fill(const VolumeInfo& output, Boundary boundary, const Fill& fill) {
  if (!has_fill(boundary) || fill.minimum || holds_fill(output.dtype, fill.value)) return;
  char words[160];
  std::snprintf(words, sizeof words,
                "'fill' %.10g is no value of %s voxels: choose one that is, or cast the image first", fill.value,
                std::string(to_string(output.dtype)).c_str());
  throw Error(ErrorCode::usage, words);
}

GridMap sampling_map(const VolumeInfo& input, const std::array<int, 3>& source_axis,
                     const std::array<AxisSamples, 3>& axes, const SamplingParams& params, double tolerance) {
  const Interpolation interpolation =
      input.kind == ImageKind::label ? Interpolation::nearest : interpolation_for(input, params);
  const bool antialias = input.kind != ImageKind::label && antialiases(input, params);
  std::array<AxisRule, 3> rules;
  bool smooths = false, reduces = false;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t size = input.geometry.size()[std::size_t(source_axis[axis])];
    rules[axis] = {sampled(size, axes[axis], interpolation, params.boundary, antialias, tolerance), axes[axis].scale,
                   axes[axis].offset};
    smooths = smooths || !rules[axis].matrix.copies();
    reduces = reduces || std::abs(axes[axis].scale) > 1;
  }
  GridMap map = grid_map(input, source_axis, std::move(rules), params.fill);
  map.computes = interpolation != Interpolation::nearest || smooths;
  if (!(antialias && reduces)) map.sampling = GridSampling{interpolation, params.boundary};
  if (map.computes) map.output.dtype = DataType::float32;
  if (map.uses_fill()) check_fill(map.output, Boundary::constant, params.fill);
  return map;
}

}  // namespace volpipe
