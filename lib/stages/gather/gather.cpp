#include "stages/gather/gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "stages/gather/compose.h"
#include "stages/gather/executors.h"
#include "stages/gather/exponential.h"
#include "stages/gather/label_vote.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Entries this close to whole numbers, in voxels over the whole target, are whole: rounding of products, nothing else.
constexpr double kRounding = 1e-9;

bool is_view(const VolumeInfo& input, const GridMap& map) {
  return map.copies() && !map.computes && map.output.dtype == input.dtype;
}

bool is_floating_only(Interpolation interpolation) {
  return interpolation == Interpolation::cubic || interpolation == Interpolation::lanczos3;
}

/// What is sampled, once what comes before has run: the last of these maps, each after the one before; none: the input
/// as it is, or as a view.
struct Preparation {
  std::vector<GridMap> maps;
  std::int64_t pad = 0;  ///< voxels that the coefficients reach beyond the image at either end
};

/// Spline coefficients of what `map` gives, extended by as much as the gather looks at.
GridMap prefilter_of(const GatherMap& gather, const VolumeInfo& image, std::int64_t pad, double fill) {
  const DataType arithmetic = gather.output.dtype;
  GridMap map;
  map.output = image;
  map.output.dtype = arithmetic;
  Index3 size;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double tolerance = arithmetic == DataType::float64 ? 1e-15 : kSplineTolerance;
    map.matrices[axis] =
        prefilter_axis(image.geometry.size()[axis], gather.interpolation, gather.boundary, pad, tolerance);
    size[axis] = map.matrices[axis].output_size();
  }
  map.target_to_source = {Matrix3::identity(), {-double(pad), -double(pad), -double(pad)}};
  map.output.geometry = image.geometry.remapped(size, map.target_to_source);
  map.fill = {fill, false};
  map.computes = true;
  return map;
}

Preparation prepare(const VolumeInfo& input, const GatherMap& gather, double fill, double before_fill) {
  Preparation result;
  GridMap before = gather.before;
  before.fill = {before_fill, false};
  if (is_bspline(gather.interpolation)) {
    result.pad = spline_pad(gather.interpolation, gather.boundary);
    GridMap prefilter = prefilter_of(gather, before.output, result.pad, fill);
    if (auto composed = compose(prefilter, before)) result.maps = {std::move(*composed)};
    else result.maps = {std::move(before), std::move(prefilter)};
    return result;
  }
  const bool converts = is_floating_only(gather.interpolation) && !is_floating(before.output.dtype);
  if (converts) {
    before.output.dtype = gather.output.dtype;
    before.computes = true;
  }
  if (!is_view(input, before)) result.maps = {std::move(before)};
  return result;
}

/// Axis `axis` of a lattice map of a volume as a view of its memory.
SourceAxis view_axis(const GridMap& map, std::size_t axis, const Index3& memory_size) {
  const auto source = std::size_t(map.source_axis[axis]);
  const std::int64_t strides[] = {1, memory_size[0], memory_size[0] * memory_size[1]};
  const AxisMatrix& matrix = map.matrices[axis];
  const std::int64_t size = matrix.output_size();
  std::vector<std::int64_t> index(static_cast<std::size_t>(size));
  for (std::int64_t v = 0; v < size; ++v) {
    const AxisMatrix::Row row = matrix.row(v);
    index[std::size_t(v)] = row.empty() ? -1 : row.front().index;
  }
  // The longest run of steps of one voxel, up or down.
  SourceAxis best{size, 0, 1, 0, 0, {}};
  for (const std::int64_t step : {1, -1})
    for (std::int64_t begin = 0; begin < size;) {
      std::int64_t end = begin + 1;
      while (index[std::size_t(begin)] >= 0 && end < size && index[std::size_t(end)] >= 0 &&
             index[std::size_t(end)] == index[std::size_t(end - 1)] + step)
        ++end;
      if (index[std::size_t(begin)] >= 0 && end - begin > best.end - best.begin) {
        best.begin = begin;
        best.end = end;
        best.stride = step * strides[source];
        best.offset = index[std::size_t(begin)] * strides[source] - best.stride * begin;
      }
      begin = end;
    }
  if (best.begin == 0 && best.end == size) return best;
  for (const std::int64_t i : index) best.elements.push_back(i < 0 ? -1 : i * strides[source]);
  return best;
}

double whole_where_close(double value, double reach) {
  return std::abs(value - std::round(value)) * std::max(reach, 1.0) < kRounding ? std::round(value) : value;
}

/// A map of target indices without the rounding of the products it came from.
Affine without_rounding(Affine map, const Index3& target_size) {
  for (int row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column)
      map.linear[row][column] = whole_where_close(map.linear[row][column], double(target_size[column] - 1));
    map.offset[std::size_t(row)] = whole_where_close(map.offset[std::size_t(row)], 1);
  }
  return map;
}

/// Everything in the space of source indices: what follows a field is folded into it.
void place_points(const PointMap& points, const Index3& target_size, GatherWork& work) {
  Affine before, tail;  // of all affine maps: before the first field; after the step at hand
  bool first = true;
  for (const auto& step : points.steps())
    if (const auto* affine = std::get_if<Affine>(&step)) {
      if (first) before = *affine * before;
      else tail = *affine * tail;
    } else {
      first = false;
    }
  work.start = without_rounding(tail * before, target_size);
  first = true;
  for (const auto& step : points.steps()) {
    const auto* field = std::get_if<FieldStep>(&step);
    if (!field) {
      if (!first) tail = tail * std::get<Affine>(step).inverse();
      continue;
    }
    FieldWork placed;
    placed.use = static_cast<FieldWork::Use>(field->use);
    placed.bspline = field->field.basis == VectorField::Basis::bspline3;
    placed.size = field->field.size;
    placed.linear = tail.linear * field->linear;
    placed.offset = tail(field->offset);
    placed.from_target = first && field->use != FieldStep::Use::undo;
    placed.to_grid =
        placed.from_target ? without_rounding(field->to_grid * before, target_size) : field->to_grid * tail.inverse();
    work.fields.push_back(placed);
    first = false;
  }
}

/// The vectors of the fields where the work runs, alive as long as this.
class FieldVectors {
 public:
  FieldVectors(DeviceContext& context, const PointMap& points, const ImageLookup& images) {
    for (const auto& step : points.steps())
      if (const auto* field = std::get_if<FieldStep>(&step)) add(context, field->field, images);
  }

  void place(GatherWork& work) const {
    for (std::size_t i = 0; i < work.fields.size(); ++i) {
      work.fields[i].vectors = fields_[i]->data();
      work.fields[i].type = fields_[i]->dtype();
    }
  }

 private:
  void add(DeviceContext& context, const VectorField& field, const ImageLookup& images) {
    if (!field.vectors) fields_.push_back(&images(field.image));
    else if (context.device().is_cpu()) fields_.push_back(field.vectors.get());
    else fields_.push_back(&uploaded(context, field.vectors));
    const VolumeInfo& info = fields_.back()->info();
    if (info.components != 3 || !is_floating(info.dtype) || info.geometry.size() != field.size)
      throw Error(ErrorCode::internal, "a field has 3 components of float32 or float64 on its grid");
  }

  const Volume& uploaded(DeviceContext& context, const std::shared_ptr<const Volume>& vectors) {
    const auto found = uploads_.find(vectors.get());
    if (found != uploads_.end()) return found->second;
    Volume staged(vectors->info(), context.allocate_host(vectors->info().bytes()));
    std::memcpy(staged.data(), vectors->data(), vectors->info().bytes());
    return uploads_.emplace(vectors.get(), context.to_device(std::move(staged))).first->second;
  }

  std::vector<const Volume*> fields_;
  std::map<const Volume*, Volume> uploads_;
};

GatherWork gather_work(const VolumeInfo& source, const GridMap* view, const GatherMap& map, std::int64_t pad) {
  GatherWork work;
  work.target_size = map.output.geometry.size();
  const Index3& n = source.geometry.size();
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t strides[] = {1, n[0], n[0] * n[1]};
    work.source[axis] = view ? view_axis(*view, axis, n) : SourceAxis{n[axis], 0, strides[axis], 0, n[axis], {}};
  }
  const Affine shift{Matrix3::identity(), {double(pad), double(pad), double(pad)}};
  place_points(PointMap(shift).after(map.points), work.target_size, work);
  work.interpolation = map.interpolation;
  work.boundary = map.boundary;
  work.window_begin = map.window_begin;
  work.window_end = map.window_end;
  work.window_fill = map.window_fill;
  work.components = source.components;
  work.component_stride = source.geometry.voxel_count();
  work.input_type = source.dtype;
  work.output_type = map.output.dtype;
  return work;
}

}  // namespace

Volume apply_gather(DeviceContext& context, const Volume& input, const GatherMap& given, double fill_value,
                    double before_fill, const ImageLookup& images) {
  if (given.interpolation == Interpolation::label_linear && given.before.computes)
    return vote_by_label(context, input, given, fill_value, before_fill, images);
  Exponentials exponentials(context, given.points, images);
  GatherMap map = given;
  map.points = exponentials.points();
  const Preparation preparation = prepare(input.info(), map, fill_value, before_fill);
  std::optional<Volume> prepared;
  for (const GridMap& step : preparation.maps)
    prepared = apply_map(context, prepared ? *prepared : input, step, step.fill.value);
  const Volume& source = prepared ? *prepared : input;
  GatherWork work = gather_work(source.info(), prepared ? nullptr : &map.before, map, preparation.pad);
  work.fill = fill_value;
  work.view_fill = before_fill;
  const FieldVectors vectors(context, map.points, exponentials.images());
  vectors.place(work);
  Volume output(map.output, context.allocate(map.output.bytes()));
  run_on(context, cpu::gather, cuda::gather, work, source.data(), output.data());
  return output;
}

std::size_t scratch_bytes(const VolumeInfo& input, const GatherMap& map) {
  std::size_t bytes = exponential_scratch_bytes(map.points);
  for (const auto& step : map.points.steps())
    if (const auto* field = std::get_if<FieldStep>(&step); field && field->field.vectors)
      bytes += field->field.vectors->info().bytes();
  if (map.interpolation == Interpolation::label_linear && map.before.computes)
    return bytes + vote_scratch_bytes(input, map);
  VolumeInfo now = input;
  std::size_t held = 0, most = 0;
  for (const GridMap& step : prepare(input, map, 0, 0).maps) {
    most = std::max(most, held + scratch_bytes(now, step) + step.output.bytes());
    held = step.output.bytes();
    now = step.output;
  }
  return bytes + most;
}

}  // namespace volpipe
