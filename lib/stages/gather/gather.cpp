#include "stages/gather/gather.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "stages/gather/executors.h"
#include "stages/gather/fields.h"
#include "stages/gather/label_vote.h"
#include "stages/separable/bspline.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Reads voxels of any type as they are.
bool reads_any_type(Interpolation interpolation) {
  return moves_voxels(interpolation) || interpolation == Interpolation::linear;
}

bool is_lattice(const VolumeInfo& input, const GridMap& map) { return map.copies() && map.output.dtype == input.dtype; }

/// What runs before the gather, and with which fill value.
struct Pass {
  GridMap map;
  double fill;
};

/// What of the range the coefficients may be wrong by.
double tolerance_of(const GatherMap& map) { return map.output.dtype == DataType::float64 ? 1e-15 : kSplineTolerance; }

/// Coefficients that are needed beyond either end of an axis: as many as the spline of a flat extension takes to become
/// flat itself.
std::int64_t coefficient_pad(const GatherMap& map) {
  if (!is_bspline(map.interpolation) || spline_pad(map.interpolation, map.boundary) == 0) return 0;
  return std::int64_t(inverse_bspline(spline_order(map.interpolation), 10 * tolerance_of(map)).size());
}

/// The B-spline coefficients of what the input has become.
GridMap prefilter(const GatherMap& map) {
  const VolumeInfo& image = map.before.output;
  const std::int64_t pad = coefficient_pad(map);
  GridMap result;
  result.output = image;
  result.output.dtype = map.output.dtype;
  Index3 size = image.geometry.size();
  for (std::size_t axis = 0; axis < 3; ++axis) {
    result.matrices[axis] = prefilter_axis(size[axis], map.interpolation, map.boundary, pad, tolerance_of(map));
    size[axis] += 2 * pad;
  }
  const double shift = -double(pad);
  result.output.geometry = image.geometry.remapped(size, {Matrix3::identity(), {shift, shift, shift}});
  result.fill = map.fill;
  result.computes = true;
  return result;
}

std::vector<Pass> passes_before(const VolumeInfo& input, const GatherMap& map, double fill_value, double before_fill) {
  GridMap before = map.before;
  if (!is_lattice(input, before) && is_floating(map.output.dtype)) before.output.dtype = map.output.dtype;
  if (is_bspline(map.interpolation)) {
    const GridMap filter = prefilter(map);
    if (auto both = compose(filter, before)) return {{std::move(*both), filter.uses_fill() ? fill_value : before_fill}};
    std::vector<Pass> passes;
    passes.push_back({std::move(before), before_fill});
    passes.push_back({filter, fill_value});
    return passes;
  }
  if (!is_lattice(input, before)) return {{std::move(before), before_fill}};
  if (reads_any_type(map.interpolation) || is_floating(input.dtype)) return {};
  before.output.dtype = map.output.dtype;
  before.computes = true;
  return {{std::move(before), before_fill}};
}

SourceAxis view_axis(const AxisMatrix& matrix, std::int64_t stride) {
  const std::vector<std::int64_t> sources = matrix.sources();
  const LatticeRun run = longest_run(sources);
  SourceAxis axis;
  axis.size = matrix.output_size();
  axis.begin = run.begin;
  axis.end = run.end;
  axis.stride = run.step * stride;
  axis.offset = run.first * stride - axis.stride * run.begin;
  if (run.length() == axis.size) return axis;
  for (const std::int64_t i : sources) axis.elements.push_back(i < 0 ? -1 : i * stride);
  return axis;
}

std::array<SourceAxis, 3> view_of(const Index3& size, const GridMap& lattice) {
  const Index3 stride{1, size[0], size[0] * size[1]};
  std::array<SourceAxis, 3> axes;
  for (std::size_t a = 0; a < 3; ++a)
    axes[a] = view_axis(lattice.matrices[a], stride[std::size_t(lattice.source_axis[a])]);
  return axes;
}

void check_fits(const VolumeInfo& input, const GatherMap& map) {
  const Index3& size = map.output.geometry.size();
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t expected = input.geometry.size()[std::size_t(map.before.source_axis[a])];
    if (map.before.matrices[a].input_size() != expected ||
        map.before.matrices[a].output_size() != map.before.output.geometry.size()[a])
      throw Error(ErrorCode::internal, "a gather was applied to a volume of another size");
    if (map.window_begin[a] < 0 || map.window_end[a] > size[a])
      throw Error(ErrorCode::internal, "the window of a gather reaches beyond its target");
    if (std::max({expected, map.before.output.geometry.size()[a], size[a]}) > std::numeric_limits<std::int32_t>::max())
      throw Error(ErrorCode::unsupported, "an axis has more than 2147483647 voxels: split the volume along it");
  }
  if (map.output.components != input.components)
    throw Error(ErrorCode::internal, "a gather keeps the number of components");
}

void check_types(DataType source, const GatherMap& map) {
  const bool fits = moves_voxels(map.interpolation) ? map.output.dtype == source : is_floating(map.output.dtype);
  if (!fits)
    throw Error(ErrorCode::internal, "a gather cannot make " + std::string(to_string(map.output.dtype)) + " of " +
                                         std::string(to_string(source)));
}

}  // namespace

Volume apply_gather(DeviceContext& context, const Volume& input, const GatherMap& map, double fill_value,
                    double before_fill, const ImageLookup& images) {
  check_fits(input.info(), map);
  if (votes_by_label(map)) return vote_by_label(context, input, map, fill_value, before_fill, images);
  const std::vector<Pass> passes = passes_before(input.info(), map, fill_value, before_fill);
  std::optional<Volume> made;
  for (const Pass& pass : passes) made = apply_map(context, made ? *made : input, pass.map, pass.fill);
  const Volume& source = made ? *made : input;
  check_types(source.dtype(), map);

  GatherWork work;
  work.target_size = map.output.geometry.size();
  work.source = made ? whole_volume(source.geometry().size()) : view_of(input.geometry().size(), map.before);
  const auto pad = double(coefficient_pad(map));
  const PointMap points =
      pad == 0 ? map.points : PointMap(Affine{Matrix3::identity(), {pad, pad, pad}}).after(map.points);
  const DeviceFields fields(context, points, images);
  fields.describe(points, work.target_size, work);
  work.interpolation = map.interpolation;
  work.boundary = map.boundary;
  work.fill = fill_value;
  work.view_fill = before_fill;
  work.window_begin = map.window_begin;
  work.window_end = map.window_end;
  work.window_fill = map.window_fill;
  work.components = source.info().components;
  work.component_stride = source.geometry().voxel_count();
  work.input_type = source.dtype();
  work.output_type = map.output.dtype;

  Volume output(map.output, context.allocate(map.output.bytes()));
  run_on(context, cpu::gather, cuda::gather, work, source.data(), output.data());
  return output;
}

std::size_t scratch_bytes(const VolumeInfo& input, const GatherMap& map) {
  if (votes_by_label(map)) return vote_scratch_bytes(input, map);
  std::size_t most = 0, held = 0;
  const VolumeInfo* source = &input;
  const std::vector<Pass> passes = passes_before(input, map, 0, 0);
  for (const Pass& pass : passes) {
    const std::size_t bytes = pass.map.output.bytes();
    most = std::max(most, held + bytes + scratch_bytes(*source, pass.map));
    source = &pass.map.output;
    held = bytes;
  }
  return std::max(most, held + scratch_bytes_of_fields(map.points));
}

}  // namespace volpipe
