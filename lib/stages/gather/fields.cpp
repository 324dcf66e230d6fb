#include "stages/gather/fields.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "stages/separable/executors.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Squarings of an exponential: velocities of up to 64 voxels start from half a voxel.
constexpr int kSquarings = 7;

std::int64_t points_of(const Index3& size) { return size[0] * size[1] * size[2]; }

std::string in_words(const VolumeInfo& info) {
  const Index3& size = info.geometry.size();
  return std::to_string(info.components) + (info.components == 1 ? " component" : " components") + " of " +
         std::string(to_string(info.dtype)) + ", " + std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " +
         std::to_string(size[2]) + " points";
}

void check_field(const VolumeInfo& info, const VectorField& field) {
  const std::string name = field.image.empty() ? "a vector field" : "the field '" + field.image + "'";
  if (info.components != 3 || !is_floating(info.dtype))
    throw Error(ErrorCode::input, name + " must have 3 components of float32 or float64, but has " + in_words(info));
  if (info.geometry.size() != field.size)
    throw Error(ErrorCode::input, name + " has another grid than when the work was planned: " + in_words(info));
}

Volume upload(DeviceContext& context, const Volume& host) {
  Volume copy(host.info(), context.allocate_host(host.info().bytes()));
  std::memcpy(copy.data(), host.data(), host.info().bytes());
  return context.to_device(std::move(copy));
}

/// w + w(g + step w(g)), at every point g of the field's grid.
class Squaring {
 public:
  Squaring(const VolumeInfo& field, const Matrix3& step) : sum_(AxisMatrix::from_rows(2, {{{0, 1.0}, {1, 1.0}}})) {
    const Index3& size = field.geometry.size();
    work_.target_size = work_.window_end = size;
    work_.source = whole_volume(size);
    work_.components = 3;
    work_.component_stride = points_of(size);
    work_.input_type = work_.output_type = field.dtype;
    FieldWork move;
    move.size = size;
    move.type = field.dtype;
    move.from_target = true;
    move.linear = step;
    work_.fields.push_back(move);
  }

  /// `pair` holds w and room for another field; the result goes to `result`.
  void run(DeviceContext& context, void* pair, void* result) {
    const std::int64_t values = 3 * points_of(work_.target_size);
    work_.fields[0].vectors = pair;
    void* moved = static_cast<std::byte*>(pair) + std::size_t(values) * size_of(work_.input_type);
    run_on(context, cpu::gather, cuda::gather, work_, pair, moved);
    const SliceWork add{.columns = values,
                        .rows = 2,
                        .slices = 1,
                        .x = nullptr,
                        .y = &sum_,
                        .input_type = work_.input_type,
                        .output_type = work_.input_type,
                        .fill = 0};
    run_on(context, cpu::filter_slices, cuda::filter_slices, add, pair, result);
  }

 private:
  AxisMatrix sum_;
  GatherWork work_;
};

void copy_field(DeviceContext& context, const Volume& field, void* target) {
  CopyWork copy;
  copy.source_size = copy.target_size = field.geometry().size();
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::int64_t i = 0; i < copy.source_size[axis]; ++i) copy.index[axis].push_back(std::int32_t(i));
  copy.components = 3;
  copy.element_bytes = int(size_of(field.dtype()));
  run_on(context, cpu::copy_voxels, cuda::copy_voxels, copy, field.data(), target);
}

Matrix3 scaled(Matrix3 matrix, double scale) {
  for (auto& row : matrix.m)
    for (double& entry : row) entry *= scale;
  return matrix;
}

/// 2^kSquarings times the displacement of a velocity: the scaling of scaling and squaring is left to the matrices.
Volume integrate(DeviceContext& context, const Volume& velocity, const FieldStep& step) {
  const double scale = std::ldexp(1.0, -kSquarings);
  Squaring squaring(velocity.info(), scaled(step.to_grid.linear * step.linear, scale));
  Buffer pair = context.allocate(2 * velocity.info().bytes());
  copy_field(context, velocity, pair.data());
  for (int k = 0; k + 1 < kSquarings; ++k) {
    Buffer next = context.allocate(2 * velocity.info().bytes());
    squaring.run(context, pair.data(), next.data());
    pair = std::move(next);
  }
  Volume result(velocity.info(), context.allocate(velocity.info().bytes()));
  squaring.run(context, pair.data(), result.data());
  return result;
}

/// Composed matrices carry rounding: what is within it of an integer is that integer, what cannot move an index by 1e-9
/// over the target is nothing.
double cleaned(double entry, double extent) {
  const double whole = std::round(entry);
  if (whole != 0 && std::abs(entry - whole) <= 1e-12 * std::abs(whole)) return whole;
  return std::abs(entry) * extent < 1e-9 ? 0 : entry;
}

Affine cleaned(const Affine& map, const Index3& target_size) {
  Affine result = map;
  for (int row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column)
      result.linear[row][column] =
          cleaned(map.linear[row][column], std::max<double>(1, double(target_size[column] - 1)));
    result.offset[std::size_t(row)] = cleaned(map.offset[std::size_t(row)], 1);
  }
  return result;
}

/// The affine maps among the steps, in order.
Affine affine_part(std::span<const PointMap::Step> steps) {
  Affine result;
  for (const auto& step : steps)
    if (const auto* affine = std::get_if<Affine>(&step)) result = *affine * result;
  return result;
}

FieldWork::Use use_of(FieldStep::Use use) {
  switch (use) {
    case FieldStep::Use::replace:
      return FieldWork::Use::replace;
    case FieldStep::Use::undo:
      return FieldWork::Use::undo;
    default:
      return FieldWork::Use::add;
  }
}

}  // namespace

DeviceFields::DeviceFields(DeviceContext& context, const PointMap& map, const ImageLookup& images) {
  owned_.reserve(2 * map.steps().size());  // vectors_ points into it
  for (const auto& step : map.steps())
    if (const auto* field = std::get_if<FieldStep>(&step)) vectors_.push_back(on_device(context, *field, images));
}

DeviceFields::Vectors DeviceFields::on_device(DeviceContext& context, const FieldStep& step,
                                              const ImageLookup& images) {
  const VectorField& field = step.field;
  const Volume* volume = field.vectors ? field.vectors.get() : &images(field.image);
  check_field(volume->info(), field);
  if (volume->device() != context.device()) volume = &owned_.emplace_back(upload(context, *volume));
  if (!field.exponential) return {volume};
  return {&owned_.emplace_back(integrate(context, *volume, step)), std::ldexp(1.0, -kSquarings)};
}

void DeviceFields::describe(const PointMap& map, const Index3& target_size, GatherWork& work) const {
  const std::span<const PointMap::Step> steps = map.steps();
  work.start = cleaned(affine_part(steps), target_size);
  work.fields.clear();
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto* step = std::get_if<FieldStep>(&steps[s]);
    if (!step) continue;
    // p of the step is after(p) in the space of the source: it moves by after.linear times as much there.
    const Affine before = affine_part(steps.first(s)), after = affine_part(steps.subspan(s + 1));
    const Vectors& vectors = vectors_[work.fields.size()];
    const bool from_target = work.fields.empty() && step->use != FieldStep::Use::undo;
    FieldWork& field = work.fields.emplace_back();
    field.use = use_of(step->use);
    field.bspline = step->field.basis == VectorField::Basis::bspline3;
    field.size = step->field.size;
    field.type = vectors.volume->dtype();
    field.vectors = vectors.volume->data();
    field.from_target = from_target;
    field.to_grid = from_target ? cleaned(step->to_grid * before, target_size) : step->to_grid * after.inverse();
    field.linear = scaled(after.linear * step->linear, vectors.scale);
    field.offset = after(step->offset);
  }
}

std::array<SourceAxis, 3> whole_volume(const Index3& size) {
  std::array<SourceAxis, 3> axes;
  std::int64_t stride = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    axes[a] = {.size = size[a], .offset = 0, .stride = stride, .begin = 0, .end = size[a]};
    stride *= size[a];
  }
  return axes;
}

std::size_t scratch_bytes_of_fields(const PointMap& map) {
  std::size_t total = 0, most_at_work = 0;
  for (const auto& step : map.steps()) {
    const auto* field = std::get_if<FieldStep>(&step);
    if (!field) continue;
    const Volume* vectors = field->field.vectors.get();
    const std::size_t element = vectors ? size_of(vectors->dtype()) : sizeof(double);
    const std::size_t bytes = 3 * std::size_t(points_of(field->field.size)) * element;
    if (vectors) total += bytes;
    if (field->field.exponential) {
      total += bytes;
      most_at_work = std::max(most_at_work, 4 * bytes);
    }
  }
  return total + most_at_work;
}

}  // namespace volpipe
