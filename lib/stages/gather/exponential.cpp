#include "stages/gather/exponential.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "stages/gather/compose.h"
#include "stages/pointwise/statistics.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kFirstStep = 0.25;  ///< voxels
constexpr int kMostSquarings = 24;

double largest_component(DeviceContext& context, const Volume& vectors) {
  const Program identity;
  const std::array<ProgramInput, 1> inputs{ProgramInput{vectors.data(), vectors.dtype()}};
  const Moments moments = compute_moments(context, {inputs, &identity, vectors.info().value_count(), {}});
  if (moments.non_finite)
    throw Error(ErrorCode::input,
                "the velocity field holds " + std::to_string(moments.non_finite) + " values that are not finite");
  return moments.count ? std::max(std::abs(moments.min), std::abs(moments.max)) : 0;
}

Precision precision_of(const Volume& volume) {
  return volume.dtype() == DataType::float64 ? Precision::double_ : Precision::single;
}

/// Each vector times `matrix`.
Volume multiplied(DeviceContext& context, const Volume& vectors, const Matrix3& matrix) {
  Volume result(vectors.info(), context.allocate(vectors.info().bytes()));
  std::array<ProgramInput, 3> inputs;
  for (int c = 0; c < 3; ++c) inputs[std::size_t(c)] = {vectors.component(c), vectors.dtype()};
  for (int row = 0; row < 3; ++row) {
    Program program;
    program.load(0).add(Op::multiply, matrix[row][0]).store(Operand::r0);
    program.load(1).add(Op::multiply, matrix[row][1]).add(Op::add, Operand::r0).store(Operand::r0);
    program.load(2).add(Op::multiply, matrix[row][2]).add(Op::add, Operand::r0);
    run_program(context, program, inputs, result.component(row), vectors.dtype(), vectors.geometry().voxel_count(),
                precision_of(vectors));
  }
  return result;
}

/// u(p) + u(p + u(p)), in voxels.
Volume composed_with_itself(DeviceContext& context, const Volume& u) {
  FieldStep step;
  step.field = {VectorField::Basis::linear, u.geometry().size(), nullptr, "u"};
  GatherMap map;
  map.output = u.info();
  map.before = identity_map(u.info());
  map.points = PointMap(std::move(step));
  map.boundary = Boundary::nearest;
  map.window_end = u.geometry().size();
  Volume there = apply_gather(context, u, map, 0, 0, [&u](const std::string&) -> const Volume& { return u; });
  const std::array<ProgramInput, 2> inputs{ProgramInput{there.data(), there.dtype()},
                                           ProgramInput{u.data(), u.dtype()}};
  Program sum;
  sum.store(Operand::r0).load(1).add(Op::add, Operand::r0);
  run_program(context, sum, inputs, there.data(), there.dtype(), u.info().value_count(), precision_of(u));
  return there;
}

/// Displacement in voxels of the field's grid, of the flow of to_grid.linear * linear * velocity.
Volume displacement_of(DeviceContext& context, const FieldStep& step, const Volume& velocity) {
  const Matrix3 to_voxels = step.to_grid.linear * step.linear;
  double largest_row = 0;
  for (int row = 0; row < 3; ++row)
    largest_row =
        std::max(largest_row, std::abs(to_voxels[row][0]) + std::abs(to_voxels[row][1]) + std::abs(to_voxels[row][2]));
  const double largest = largest_row * largest_component(context, velocity);
  const int squarings =
      std::clamp(largest > kFirstStep ? int(std::ceil(std::log2(largest / kFirstStep))) : 0, 0, kMostSquarings);
  Matrix3 scaled = to_voxels;
  for (auto& row : scaled.m)
    for (double& entry : row) entry = std::ldexp(entry, -squarings);
  Volume displacement = multiplied(context, velocity, scaled);
  for (int i = 0; i < squarings; ++i) displacement = composed_with_itself(context, displacement);
  return displacement;
}

Volume on_device(DeviceContext& context, const Volume& host) {
  Volume copy(host.info(), context.allocate_host(host.info().bytes()));
  std::memcpy(copy.data(), host.data(), host.info().bytes());
  return context.to_device(std::move(copy));
}

}  // namespace

Exponentials::Exponentials(DeviceContext& context, const PointMap& points, const ImageLookup& images) : given_(images) {
  for (const auto& step : points.steps()) {
    const auto* field = std::get_if<FieldStep>(&step);
    if (!field) {
      points_ = PointMap(std::get<Affine>(step)).after(points_);
      continue;
    }
    FieldStep placed = *field;
    if (placed.field.exponential) {
      const std::string name = "displacement " + std::to_string(displacements_.size());
      Volume displacement = field->field.vectors
                                ? displacement_of(context, *field, on_device(context, *field->field.vectors))
                                : displacement_of(context, *field, images(field->field.image));
      displacements_.emplace(name, std::move(displacement));
      placed.field = {VectorField::Basis::linear, field->field.size, nullptr, name};
      placed.linear = field->to_grid.linear.inverse();
    }
    points_ = PointMap(std::move(placed)).after(points_);
  }
}

ImageLookup Exponentials::images() const {
  return [this](const std::string& name) -> const Volume& {
    const auto found = displacements_.find(name);
    return found != displacements_.end() ? found->second : given_(name);
  };
}

std::size_t exponential_scratch_bytes(const PointMap& points) {
  std::size_t bytes = 0;
  for (const auto& step : points.steps())
    if (const auto* field = std::get_if<FieldStep>(&step); field && field->field.exponential)
      bytes += 2 * std::size_t(field->field.size[0] * field->field.size[1] * field->field.size[2]) * 3 * sizeof(double);
  return bytes;
}

}  // namespace volpipe
