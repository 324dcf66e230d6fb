#include "stages/gather/compose.h"

#include <algorithm>
#include <cstdlib>

namespace volpipe {

namespace {

bool is_lattice(const GridMap& map) { return map.copies() && !map.computes; }

bool uses_minimum(const GatherMap& map) { return map.fill.minimum && has_fill(map.boundary); }

/// The rows of a lattice axis that are voxels, where they are one unbroken run of steps of 1 or -1.
std::optional<LatticeRun> run_of(const AxisMatrix& matrix) {
  const std::vector<std::int64_t> sources = matrix.sources();
  const LatticeRun run = longest_run(sources);
  const auto voxels = std::count_if(sources.begin(), sources.end(), [](std::int64_t i) { return i >= 0; });
  if (voxels == 0 || voxels != run.length() || std::abs(run.step) != 1) return std::nullopt;
  return run;
}

/// Cropping, flipping, permuting or padding what a gather gives.
std::optional<GatherMap> lattice_after(const GridMap& lattice, const GatherMap& first) {
  if (lattice.uses_fill() && lattice.fill.minimum) return std::nullopt;
  const bool fills = lattice.uses_fill();
  if (fills && !first.whole_window() && first.window_fill != lattice.fill.value) return std::nullopt;
  GatherMap result = first;
  result.output = lattice.output;
  if (fills) result.window_fill = lattice.fill.value;
  Affine indices{Matrix3{}, {}};  // of the voxels, whatever positions a nearest sampling took them for
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto run = run_of(lattice.matrices[axis]);
    if (!run) return std::nullopt;
    const auto source = std::size_t(lattice.source_axis[axis]);
    const std::int64_t offset = run->first - run->step * run->begin;
    indices.linear[int(source)][axis] = double(run->step);
    indices.offset[source] = double(offset);
    // The run's voxels that come from inside the first window: step * j + offset in [begin, end).
    std::int64_t low = first.window_begin[source] - offset, high = first.window_end[source] - 1 - offset;
    if (run->step < 0) {
      const std::int64_t reversed = -high;
      high = -low;
      low = reversed;
    }
    result.window_begin[axis] = std::clamp(low, run->begin, run->end);
    result.window_end[axis] = std::clamp(high + 1, result.window_begin[axis], run->end);
  }
  result.points = first.points.after(PointMap(indices));
  return result;
}

std::optional<SpatialForm> after_grid(const GatherMap& second, const GridMap& first) {
  if (!is_lattice(first) || uses_minimum(second)) return std::nullopt;
  auto before = compose(second.before, first);
  if (!before) return std::nullopt;
  GatherMap result = second;
  result.before = std::move(*before);
  return result;
}

/// A map that interpolates on the axes as a gather with the same sampling.
std::optional<GatherMap> as_gather(const SpatialForm& form, const VolumeInfo& input) {
  if (const auto* gather = std::get_if<GatherMap>(&form)) return *gather;
  const auto& grid = std::get<GridMap>(form);
  if (!grid.sampling) return std::nullopt;
  GatherMap gather;
  gather.output = grid.output;
  gather.before = identity_map(input);
  gather.points = PointMap(grid.target_to_source);
  gather.interpolation = grid.sampling->interpolation;
  gather.boundary = grid.sampling->boundary;
  gather.fill = grid.fill;
  gather.window_end = grid.output.geometry.size();
  return gather;
}

VolumeInfo output_of(const SpatialForm& form) {
  return std::visit([](const auto& map) { return map.output; }, form);
}

std::optional<SpatialForm> sampling_once(const SpatialForm& second_form, const SpatialForm& first_form,
                                         const VolumeInfo& input) {
  const auto first = as_gather(first_form, input), second = as_gather(second_form, output_of(first_form));
  if (!first || !second || !first->whole_window() || !is_lattice(second->before) || second->before.uses_fill())
    return std::nullopt;
  const bool alike = first->interpolation == second->interpolation && first->boundary == second->boundary &&
                     first->fill == second->fill && first->output.dtype == second->output.dtype &&
                     !uses_minimum(*second);
  if (!alike) return std::nullopt;
  GatherMap result = *second;
  result.before = first->before;
  result.points = first->points.after(PointMap(second->before.target_to_source)).after(second->points);
  return result;
}

}  // namespace

GridMap identity_map(const VolumeInfo& info) {
  GridMap map;
  map.output = info;
  for (std::size_t axis = 0; axis < 3; ++axis) map.matrices[axis] = AxisMatrix::identity(info.geometry.size()[axis]);
  return map;
}

std::optional<SpatialForm> compose(const SpatialForm& second, const SpatialForm& first, const VolumeInfo& input,
                                   Fusing fusing) {
  const auto* second_grid = std::get_if<GridMap>(&second);
  const auto* first_grid = std::get_if<GridMap>(&first);
  std::optional<SpatialForm> result;
  if (second_grid && first_grid) {
    if (auto grid = compose(*second_grid, *first_grid)) result = std::move(*grid);
  } else if (first_grid) {
    result = after_grid(std::get<GatherMap>(second), *first_grid);
  } else if (second_grid && is_lattice(*second_grid)) {
    if (auto gather = lattice_after(*second_grid, std::get<GatherMap>(first))) result = std::move(*gather);
  }
  if (!result && fusing == Fusing::all) result = sampling_once(second, first, input);
  return result;
}

}  // namespace volpipe
