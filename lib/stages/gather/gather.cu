#include "stages/gather/gather_staged.cuh"

namespace volpipe::cuda {

namespace gathering {

namespace {

/// The source's axes with the one that steps from voxel to voxel in front, where the results do not depend on it.
std::array<std::size_t, 3> axis_order(const GatherWork& work) {
  std::array<std::size_t, 3> order{0, 1, 2};
  const auto of_y = [](const FieldWork& field) { return !field.from_target; };
  if (work.interpolation == Interpolation::label_linear || std::ranges::any_of(work.fields, of_y)) return order;
  for (std::size_t a = 1; a < 3; ++a)
    if (std::abs(work.source[0].stride) != 1 && std::abs(work.source[a].stride) == 1) {
      std::swap(order[0], order[a]);
      break;
    }
  return order;
}

FieldParams params_of(const FieldWork& field, const std::array<std::size_t, 3>& order) {
  FieldParams params{};
  params.use = field.use;
  params.bspline = field.bspline;
  params.from_target = field.from_target;
  params.type = field.type;
  params.vectors = field.vectors;
  params.to_grid = volpipe::gather::map_of(field.to_grid);
  for (int row = 0; row < 3; ++row) {
    const std::size_t from = order[std::size_t(row)];
    params.size[row] = field.size[std::size_t(row)];
    params.offset.at[row] = field.offset[from];
    for (int column = 0; column < 3; ++column) params.linear[row][column] = field.linear[int(from)][std::size_t(column)];
  }
  return params;
}

bool is_row_spline(const FieldWork& field) {
  for (int row = 0; row < 3; ++row) {
    if (field.size[std::size_t(row)] < 4) return false;
    for (int column = 0; column < 3; ++column)
      if ((column == 0) != (row == 0) && field.to_grid.linear[row][std::size_t(column)] != 0) return false;
  }
  return field.use == FieldWork::Use::add && field.bspline && field.from_target && field.type == DataType::float32;
}

}  // namespace

GatherPlan::GatherPlan(DeviceContext& context, const GatherWork& work) {
  const std::array<std::size_t, 3> order = axis_order(work);
  std::array<std::size_t, 3> at_elements{};
  for (std::size_t a = 0; a < 3; ++a) at_elements[a] = tables_.add(work.source[order[a]].elements);
  std::vector<FieldParams> fields;
  for (const FieldWork& field : work.fields) fields.push_back(params_of(field, order));
  const std::size_t at_fields = tables_.add(fields);
  tables_.upload(context);

  const Map start = volpipe::gather::map_of(work.start);
  for (std::size_t a = 0; a < 3; ++a) {
    const SourceAxis& axis = work.source[order[a]];
    std::copy_n(start.m[order[a]], 4, params_.start.m[a]);
    params_.axes[a] = {axis.size,  axis.offset, axis.stride,
                       axis.begin, axis.end,    axis.elements.empty() ? nullptr : tables_.at<std::int64_t>(at_elements[a])};
    params_.size[a] = std::int32_t(work.target_size[a]);
    params_.between[a] = std::uint32_t(std::max<std::int64_t>(axis.size - 2, 0));
    params_.last[a] = double(axis.size - 1) + volpipe::gather::kSnap;
    params_.window_begin[a] = std::int32_t(work.window_begin[a]);
    params_.window_end[a] = std::int32_t(work.window_end[a]);
  }
  params_.interpolation = work.interpolation;
  params_.boundary = work.boundary;
  params_.fields = tables_.at<FieldParams>(at_fields);
  params_.field_count = int(fields.size());
  params_.is_row_spline = fields.size() == 1 && is_row_spline(work.fields.front());
  if (params_.is_row_spline) params_.row_field = fields.front();
}

bool GatherPlan::is_narrow(std::size_t element_bytes) const {
  std::int64_t last = 0;
  for (const AxisView& axis : params_.axes) {
    if (axis.begin >= axis.end) return true;  // no plain strides at all
    last += axis.offset + axis.stride * (axis.stride < 0 ? axis.begin : axis.end - 1);
  }
  return (last + 4) * std::int64_t(element_bytes) <= std::int64_t(1) << 32;
}

namespace {

/// Four neighbours of which a tap is one lie at most `taps` / 2 from a point of the tile, and 1.5 more along x.
void plan_reach(Box& box, const Params& params, int taps, const std::array<int, 3>& tile) {
  Matrix3 linear;
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) linear[a][std::size_t(b)] = params.start.m[a][b];
  const bool singular = !(std::fabs(linear.determinant()) > 1e-3);
  const Matrix3 to_target = singular ? Matrix3{} : linear.inverse();
  for (int a = 0; a < 3; ++a) {
    double reach = (tile[std::size_t(a)] - 1) / 2.0 + 0.01;
    for (int b = 0; b < 3; ++b) {
      box.to_target[a][b] = float(to_target[a][std::size_t(b)]);
      reach += std::fabs(to_target[a][std::size_t(b)]) * (taps / 2.0 + (b == 0 ? 1.5 : 0));
    }
    box.half[a] = float(tile[std::size_t(a)] - 1) / 2;
    box.reach[a] = float(reach);
  }
}

}  // namespace

std::optional<Box> plan_box(DeviceContext& context, const Params& params, int taps, const std::array<int, 3>& tile,
                            int pitch_step, int pitch_rest, std::size_t voxel_bytes, const void* input) {
  constexpr std::size_t kMostBytes = 112 * 1024;  // two blocks of a multiprocessor
  Box box{};
  for (int a = 0; a < 3; ++a) {
    double extent = 0;
    for (int b = 0; b < 3; ++b) extent += std::fabs(params.start.m[a][b]) * (tile[std::size_t(b)] - 1);
    if (!(extent < 128)) return {};
    box.size[a] = int(extent + 1e-5) + 1 + taps;
    box.step[a] = std::llround(std::ldexp(params.start.m[a][2], 32));
  }
  const auto is_multiple = [](std::int64_t n) { return n % 4 == 0; };
  box.aligned = params.axes[0].stride == 1 && is_multiple(params.axes[1].stride) && is_multiple(params.axes[2].stride) &&
                is_multiple(params.axes[1].offset) && is_multiple(params.axes[2].offset) &&
                reinterpret_cast<std::uintptr_t>(input) % (4 * voxel_bytes) == 0;
  box.size[0] = (box.size[0] + (box.aligned ? 3 : 0) + 3) / 4 * 4;
  box.pitch = box.size[0] + (pitch_step + pitch_rest - box.size[0] % pitch_step) % pitch_step;
  box.plane = (box.pitch * box.size[1] + 31) / 32 * 32;
  box.rows_at_once = kThreads / (box.size[0] / 4);
  box.planes_at_once = box.rows_at_once / box.size[1];
  box.rows_rest = box.rows_at_once % box.size[1];
  plan_reach(box, params, taps, tile);
  int most = 0;
  VOLPIPE_CHECK_CUDA(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device().index()));
  if (shared_bytes(box) > std::min(kMostBytes, std::size_t(most))) return {};
  return box;
}

}  // namespace gathering

void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  const gathering::GatherPlan plan(context, work);
  const std::int64_t target_voxels = work.target_size[0] * work.target_size[1] * work.target_size[2];
  for (std::int64_t c = 0; c < work.components; ++c) {
    const void* from = static_cast<const std::byte*>(input) + c * work.component_stride * std::int64_t(size_of(work.input_type));
    void* to = static_cast<std::byte*>(output) + c * target_voxels * std::int64_t(size_of(work.output_type));
    switch (work.interpolation) {
      case Interpolation::nearest:
      case Interpolation::label_linear:
        gathering::gather_nearest(context, work, plan, from, to);
        break;
      case Interpolation::linear:
        gathering::gather_linear(context, work, plan, from, to);
        break;
      default:
        gathering::gather_taps(context, work, plan, from, to);
    }
  }
}

}  // namespace volpipe::cuda
