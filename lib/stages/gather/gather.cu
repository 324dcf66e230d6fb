#include "stages/gather/gather_device.cuh"

namespace volpipe::cuda {

namespace gathering {

namespace {

FieldParams params_of(const FieldWork& field) {
  FieldParams params{};
  params.use = field.use;
  params.bspline = field.bspline;
  params.from_target = field.from_target;
  params.type = field.type;
  params.vectors = field.vectors;
  params.to_grid = volpipe::gather::map_of(field.to_grid);
  for (int row = 0; row < 3; ++row) {
    params.size[row] = field.size[std::size_t(row)];
    params.offset.at[row] = field.offset[std::size_t(row)];
    for (int column = 0; column < 3; ++column) params.linear[row][column] = field.linear[row][std::size_t(column)];
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
  std::array<std::size_t, 3> at_elements{};
  for (std::size_t a = 0; a < 3; ++a) at_elements[a] = tables_.add(work.source[a].elements);
  std::vector<FieldParams> fields;
  for (const FieldWork& field : work.fields) fields.push_back(params_of(field));
  const std::size_t at_fields = tables_.add(fields);
  tables_.upload(context);

  params_.start = volpipe::gather::map_of(work.start);
  params_.target_voxels = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    const SourceAxis& axis = work.source[a];
    params_.axes[a] = {axis.size,  axis.offset, axis.stride,
                       axis.begin, axis.end,    axis.elements.empty() ? nullptr : tables_.at<std::int64_t>(at_elements[a])};
    params_.size[a] = std::int32_t(work.target_size[a]);
    params_.window_begin[a] = std::int32_t(work.window_begin[a]);
    params_.window_end[a] = std::int32_t(work.window_end[a]);
    params_.target_voxels *= work.target_size[a];
  }
  params_.component_stride = work.component_stride;
  params_.components = work.components;
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
  return (last + 1) * std::int64_t(element_bytes) <= std::int64_t(1) << 32;
}

}  // namespace gathering

void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  const gathering::GatherPlan plan(context, work);
  switch (work.interpolation) {
    case Interpolation::nearest:
    case Interpolation::label_linear:
      return gathering::gather_nearest(context, work, plan, input, output);
    case Interpolation::linear:
      return gathering::gather_linear(context, work, plan, input, output);
    default:
      return gathering::gather_taps(context, work, plan, input, output);
  }
}

}  // namespace volpipe::cuda
