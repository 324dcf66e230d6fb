#include "stages/separable/separable.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "stages/separable/executors.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// What each axis goes through: of the target, or of the source.
std::array<const AxisMatrix*, 3> matrices_of(const GridMap& map, bool target_order) {
  std::array<const AxisMatrix*, 3> matrices;
  for (std::size_t axis = 0; axis < 3; ++axis)
    matrices[target_order ? axis : std::size_t(map.source_axis[axis])] = &map.matrices[axis];
  return matrices;
}

std::int64_t product(const Index3& size) { return size[0] * size[1] * size[2]; }

bool permutes(const GridMap& map) { return map.source_axis != std::array<int, 3>{0, 1, 2}; }

GridPasses passes_used(const VolumeInfo& input, const GridMap& map) {
  return map.passes ? *map.passes : passes_of(input, map);
}

/// Whether x and y come before z: the order with the smaller volume in between.
bool planes_first(const Index3& size, const Index3& output_size) {
  const double planes = double(output_size[0]) * double(output_size[1]) / (double(size[0]) * double(size[1]));
  return planes <= double(output_size[2]) / double(size[2]);
}

bool linear_at_most(const std::array<const AxisMatrix*, 3>& matrices) {
  const bool pairs =
      std::all_of(matrices.begin(), matrices.end(), [](const AxisMatrix* matrix) { return matrix->taps() <= 2; });
  return pairs && !matrices[0]->periodic() && !matrices[1]->periodic();
}

std::uint64_t bits_of(double value, DataType type) {
  return visit(type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    T voxel;
    if constexpr (std::is_integral_v<T>) {
      const double rounded = std::isnan(value) ? 0.0 : std::round(value);
      voxel = T(std::clamp(rounded, double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max())));
    } else {
      voxel = T(value);
    }
    std::uint64_t bits = 0;
    std::memcpy(&bits, &voxel, sizeof voxel);
    return bits;
  });
}

std::vector<std::int32_t> index_table(const AxisMatrix& matrix) {
  const std::vector<std::int64_t> sources = matrix.sources();
  return {sources.begin(), sources.end()};
}

CopyWork copy_work(const VolumeInfo& input, const GridMap& map, double fill_value) {
  CopyWork work;
  work.source_size = input.geometry.size();
  work.source_axis = map.source_axis;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    work.target_size[axis] = map.matrices[axis].output_size();
    work.index[axis] = index_table(map.matrices[axis]);
  }
  work.components = input.components;
  work.element_bytes = int(size_of(input.dtype));
  work.fill_bits = bits_of(fill_value, input.dtype);
  return work;
}

/// Moves the axes of a volume of `size` alone.
Buffer permute_axes(DeviceContext& context, const void* input, const Index3& size,
                    const std::array<int, 3>& source_axis, std::int64_t components, DataType dtype) {
  CopyWork work;
  work.source_size = size;
  work.source_axis = source_axis;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    work.target_size[axis] = size[std::size_t(source_axis[axis])];
    work.index[axis] = index_table(AxisMatrix::identity(work.target_size[axis]));
  }
  work.components = components;
  work.element_bytes = int(size_of(dtype));
  Buffer output = context.allocate(std::size_t(product(size) * components) * size_of(dtype));
  run_on(context, cpu::copy_voxels, cuda::copy_voxels, work, input, output.data());
  return output;
}

/// A computing map without a change of axes.
struct FilterWork {
  Index3 size;
  std::array<const AxisMatrix*, 3> matrices;
  std::int64_t components;
  DataType input_type, output_type;
  double fill;
  GridPasses passes;

  /// Null: the axis is left alone.
  const AxisMatrix* filter(std::size_t axis) const { return passes.filters[axis] ? matrices[axis] : nullptr; }
  Index3 output_size() const {
    return {matrices[0]->output_size(), matrices[1]->output_size(), matrices[2]->output_size()};
  }
};

void run_planes(DeviceContext& context, const FilterWork& work, std::int64_t slices, DataType input_type,
                const void* input, void* output) {
  const SliceWork planes{.columns = work.size[0],
                         .rows = work.size[1],
                         .slices = slices,
                         .x = work.filter(0),
                         .y = work.filter(1),
                         .input_type = input_type,
                         .output_type = work.output_type,
                         .fill = work.fill};
  run_on(context, cpu::filter_slices, cuda::filter_slices, planes, input, output);
}

void run_z(DeviceContext& context, const FilterWork& work, std::int64_t plane, DataType input_type, const void* input,
           void* output) {
  const SliceWork along_z{.columns = plane,
                          .rows = work.size[2],
                          .slices = work.components,
                          .x = nullptr,
                          .y = work.matrices[2],
                          .input_type = input_type,
                          .output_type = work.output_type,
                          .fill = work.fill};
  run_on(context, cpu::filter_slices, cuda::filter_slices, along_z, input, output);
}

bool planes_needed(const GridPasses& passes) { return passes.filters[0] || passes.filters[1] || !passes.filters[2]; }

bool runs_in_pairs(const FilterWork& work, bool on_cuda) {
  return on_cuda && work.output_type == DataType::float32 && work.passes.pairs;
}

bool runs_in_one_pass(const FilterWork& work, bool on_cuda) {
  return runs_in_pairs(work, on_cuda) || !planes_needed(work.passes) || !work.passes.filters[2];
}

std::size_t between_bytes(const FilterWork& work) {
  const Index3 out = work.output_size();
  const std::int64_t voxels =
      work.passes.planes_first ? out[0] * out[1] * work.size[2] : work.size[0] * work.size[1] * out[2];
  return std::size_t(voxels * work.components) * size_of(work.output_type);
}

void run_filter(DeviceContext& context, const FilterWork& work, const void* input, void* output) {
  const bool on_cuda = context.device().is_cuda();
  const Index3 out = work.output_size();
  if (runs_in_one_pass(work, on_cuda)) {
    if (runs_in_pairs(work, on_cuda))
      return cuda::filter_linear(context, {work.size, work.matrices, work.components, work.input_type, work.fill},
                                 input, output);
    if (planes_needed(work.passes))
      return run_planes(context, work, work.size[2] * work.components, work.input_type, input, output);
    return run_z(context, work, work.size[0] * work.size[1], work.input_type, input, output);
  }
  Buffer between = context.allocate(between_bytes(work));
  if (work.passes.planes_first) {
    run_planes(context, work, work.size[2] * work.components, work.input_type, input, between.data());
    run_z(context, work, out[0] * out[1], work.output_type, between.data(), output);
  } else {
    run_z(context, work, work.size[0] * work.size[1], work.input_type, input, between.data());
    run_planes(context, work, out[2] * work.components, work.output_type, between.data(), output);
  }
}

Index3 input_sizes(const std::array<const AxisMatrix*, 3>& matrices) {
  return {matrices[0]->input_size(), matrices[1]->input_size(), matrices[2]->input_size()};
}

FilterWork filter_work(const VolumeInfo& input, const GridMap& map, const GridPasses& passes, double fill_value) {
  const auto matrices = matrices_of(map, passes.permutes_first);
  return {input_sizes(matrices), matrices, input.components, input.dtype, map.output.dtype, fill_value, passes};
}

void check_fits(const VolumeInfo& input, const GridMap& map) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t expected = input.geometry.size()[std::size_t(map.source_axis[axis])];
    if (map.matrices[axis].input_size() != expected ||
        map.matrices[axis].output_size() != map.output.geometry.size()[axis])
      throw Error(ErrorCode::internal, "a grid map was applied to a volume of another size");
    if (std::max(expected, map.matrices[axis].output_size()) > std::numeric_limits<std::int32_t>::max())
      throw Error(ErrorCode::unsupported, "an axis has more than 2147483647 voxels: split the volume along it");
  }
  if (!passes_used(input, map).copies && !is_floating(map.output.dtype))
    throw Error(ErrorCode::internal,
                "a computing map gives float32 or float64, not " + std::string(to_string(map.output.dtype)));
}

/// Whether a voxel type holds the fill value as it is.
bool keeps_fill(const GridMap& map) {
  if (!map.uses_fill() || map.fill.minimum) return true;
  const double fill = map.fill.value;
  return visit(map.output.dtype, [&]<class Tag>(Tag) {
    typename Tag::type voxel;
    const std::uint64_t bits = bits_of(fill, map.output.dtype);
    std::memcpy(&voxel, &bits, sizeof voxel);
    return double(voxel) == fill;
  });
}

/// Whether the passes do not commute: one turns the constant fill value outside into another, as derivatives do, and
/// the next finds the fill value there again.
bool needs_its_order(const GridMap& map) {
  if (!map.uses_fill() || (!map.fill.minimum && map.fill.value == 0)) return false;
  return std::any_of(map.matrices.begin(), map.matrices.end(), [](const AxisMatrix& matrix) {
    for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
      double total = matrix.fill_weights()[std::size_t(j)];
      for (int t = 0; t < matrix.taps(); ++t) total += matrix.weights()[std::size_t(j * matrix.taps() + t)];
      if (std::abs(total - 1) > 1e-9) return true;
    }
    return false;
  });
}

/// A crop, flip or change of axes: voxels in steps of one, none folded or filled in.
bool is_plain_lattice(const GridMap& map) {
  return !map.computes && !map.uses_fill() &&
         std::all_of(map.matrices.begin(), map.matrices.end(), [](const AxisMatrix& matrix) {
           if (!matrix.copies()) return false;
           const LatticeRun run = longest_run(matrix.sources());
           return run.length() == matrix.output_size() && std::abs(run.step) == 1;
         });
}

}  // namespace

std::optional<GridMap> compose(const GridMap& second, const GridMap& first) {
  if (!second.copies() && !first.copies()) return std::nullopt;
  if (!first.computes && second.computes && !keeps_fill(first)) return std::nullopt;
  if (first.computes && second.computes && first.output.dtype != second.output.dtype) return std::nullopt;
  if (needs_its_order(first) || needs_its_order(second)) return std::nullopt;
  const bool both_fill = second.uses_fill() && first.uses_fill();
  if (both_fill && second.fill != first.fill) return std::nullopt;
  if (second.uses_fill() && second.fill.minimum) return std::nullopt;
  GridMap result{
      second.output, {}, {}, second.uses_fill() ? second.fill : first.fill, first.computes || second.computes};
  result.target_to_source = first.target_to_source * second.target_to_source;
  result.moves_world = first.moves_world || second.moves_world;
  if (is_plain_lattice(second)) result.sampling = first.sampling;
  else if (is_plain_lattice(first)) result.sampling = second.sampling;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto through = std::size_t(second.source_axis[axis]);
    result.source_axis[axis] = first.source_axis[through];
    auto matrix = AxisMatrix::compose(second.matrices[axis], first.matrices[through]);
    if (!matrix) return std::nullopt;
    result.matrices[axis] = std::move(*matrix);
  }
  return result;
}

GridPasses passes_of(const VolumeInfo& input, const GridMap& map) {
  GridPasses passes;
  passes.copies = map.copies() && map.output.dtype == input.dtype;
  if (passes.copies) return passes;
  // The filter of a permuting map keeps the source's axis order; the copy goes where it moves fewer bytes.
  passes.permutes_first = permutes(map) && input.bytes() <= map.output.bytes();
  const auto matrices = matrices_of(map, passes.permutes_first);
  const Index3 output_size{matrices[0]->output_size(), matrices[1]->output_size(), matrices[2]->output_size()};
  passes.planes_first = planes_first(input_sizes(matrices), output_size);
  passes.pairs = linear_at_most(matrices);
  for (std::size_t axis = 0; axis < 3; ++axis) passes.filters[axis] = !matrices[axis]->is_identity();
  return passes;
}

Volume apply_map(DeviceContext& context, const Volume& input, const GridMap& map, double fill_value) {
  check_fits(input.info(), map);
  const GridPasses passes = passes_used(input.info(), map);
  if (passes.copies) {
    Volume output(map.output, context.allocate(map.output.bytes()));
    run_on(context, cpu::copy_voxels, cuda::copy_voxels, copy_work(input.info(), map, fill_value), input.data(),
           output.data());
    return output;
  }
  const FilterWork work = filter_work(input.info(), map, passes, fill_value);
  const Buffer permuted = passes.permutes_first ? permute_axes(context, input.data(), input.geometry().size(),
                                                               map.source_axis, work.components, work.input_type)
                                                : Buffer();
  Buffer filtered = context.allocate(map.output.bytes());
  run_filter(context, work, passes.permutes_first ? permuted.data() : input.data(), filtered.data());
  if (passes.permutes_first || !permutes(map)) return Volume(map.output, std::move(filtered));
  return Volume(map.output, permute_axes(context, filtered.data(), work.output_size(), map.source_axis, work.components,
                                         work.output_type));
}

std::size_t scratch_bytes(const VolumeInfo& input, const GridMap& map) {
  const GridPasses passes = passes_used(input, map);
  if (passes.copies) return 0;
  const FilterWork work = filter_work(input, map, passes, 0);
  const std::size_t between = runs_in_one_pass(work, false) ? 0 : between_bytes(work);
  if (!permutes(map)) return between;
  return between + (passes.permutes_first ? input.bytes() : map.output.bytes());
}

}  // namespace volpipe
