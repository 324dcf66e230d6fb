#include "volume/geometry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::array<std::array<char, 2>, 3> kLetters = {{{'R', 'L'}, {'A', 'P'}, {'S', 'I'}}};
constexpr std::array<std::array<int, 3>, 6> kPermutations = {
    {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};

constexpr double kLargestLength = 1e90;  // mm; beyond it products of three lengths leave the range of numbers

bool is_finite(const Affine& map) {
  for (int i = 0; i < 3; ++i) {
    if (!std::isfinite(map.offset[i])) return false;
    for (int j = 0; j < 3; ++j)
      if (!std::isfinite(map.linear[i][j])) return false;
  }
  return true;
}

void check_lengths(const Affine& map) {
  const auto check = [](double length, double least, const char* what) {
    if (length >= least && length <= kLargestLength) return;
    throw Error(ErrorCode::input, std::string("the voxel-to-world matrix has ") + what +
                                      " beyond any measure, expected voxels of 1e-90 to 1e90 mm within 1e90 mm");
  };
  for (int axis = 0; axis < 3; ++axis) {
    check(norm(map.linear.column(axis)), 1 / kLargestLength, "a voxel length");
    check(std::abs(map.offset[axis]), 0, "an origin");
  }
}

}  // namespace

Geometry::Geometry(const Index3& size, const Affine& index_to_world) : size_(size), index_to_world_(index_to_world) {
  for (auto n : size)
    if (n < 1)
      throw Error(ErrorCode::input, "a volume needs at least one voxel on every axis, got " + std::to_string(n));
  if (!is_finite(index_to_world))
    throw Error(ErrorCode::input, "the voxel-to-world matrix has a value that is not finite");
  index_to_world.linear.inverse();
  check_lengths(index_to_world);
}

Geometry Geometry::from_spacing(const Index3& size, const Vec3& spacing, const Vec3& origin, const Matrix3& direction) {
  Affine map{direction, origin};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) map.linear[i][j] *= spacing[j];
  return Geometry(size, map);
}

Vec3 Geometry::spacing() const {
  return {norm(index_to_world_.linear.column(0)), norm(index_to_world_.linear.column(1)),
          norm(index_to_world_.linear.column(2))};
}

Matrix3 Geometry::direction() const {
  Matrix3 unit = index_to_world_.linear;
  const Vec3 length = spacing();
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) unit[i][j] /= length[j];
  return unit;
}

double Geometry::shear() const {
  const Matrix3 unit = direction();
  return std::max({std::abs(dot(unit.column(0), unit.column(1))), std::abs(dot(unit.column(0), unit.column(2))),
                   std::abs(dot(unit.column(1), unit.column(2)))});
}

std::string Geometry::orientation() const {
  const AxisOrder order = closest_world_axes(*this);
  std::string code(3, '?');
  for (int axis = 0; axis < 3; ++axis) code[axis] = kLetters[order.source_axis[axis]][order.flipped[axis]];
  return code;
}

Geometry Geometry::remapped(const Index3& size, const Affine& target_to_source) const {
  return Geometry(size, index_to_world_ * target_to_source);
}

AxisOrder closest_world_axes(const Geometry& geometry) {
  const Matrix3 unit = geometry.direction();
  std::array<int, 3> best = kPermutations[0];
  double best_score = -1;
  for (const auto& candidate : kPermutations) {  // candidate[axis] = world axis
    double score = 0;
    for (int axis = 0; axis < 3; ++axis) score += std::abs(unit[candidate[axis]][axis]);
    if (score > best_score + 1e-5) {  // ties keep the earlier, so the rounding of a header cannot choose
      best_score = score;
      best = candidate;
    }
  }
  AxisOrder order{best, {}};
  for (int axis = 0; axis < 3; ++axis) order.flipped[axis] = unit[best[axis]][axis] < 0;
  return order;
}

AxisOrder axis_order_for(const Geometry& geometry, const std::string& code) {
  AxisOrder wanted;
  std::array<bool, 3> seen{};
  bool valid = code.size() == 3;
  for (int axis = 0; valid && axis < 3; ++axis) {
    valid = false;
    for (int world = 0; world < 3; ++world)
      for (int sign = 0; sign < 2; ++sign)
        if (code[axis] == kLetters[world][sign] && !seen[world]) {
          wanted.source_axis[axis] = world;
          wanted.flipped[axis] = sign == 1;
          seen[world] = valid = true;
        }
  }
  if (!valid)
    throw Error(ErrorCode::usage,
                "'" + code + "' is not an orientation: give one letter each of R/L, A/P and S/I, such as RAS");

  const AxisOrder current = closest_world_axes(geometry);
  AxisOrder order;
  for (int axis = 0; axis < 3; ++axis) {
    const auto found = std::find(current.source_axis.begin(), current.source_axis.end(), wanted.source_axis[axis]);
    const int source = int(found - current.source_axis.begin());
    order.source_axis[axis] = source;
    order.flipped[axis] = current.flipped[source] != wanted.flipped[axis];
  }
  return order;
}

double max_corner_distance_mm(const Geometry& a, const Geometry& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (int corner = 0; corner < 8; ++corner) {
    Vec3 index;
    for (int axis = 0; axis < 3; ++axis) index[axis] = (corner >> axis & 1) ? double(a.size()[axis] - 1) : 0.0;
    largest = std::max(largest, norm(a.to_world(index) - b.to_world(index)));
  }
  return largest;
}

bool same_grid(const Geometry& a, const Geometry& b, double tolerance) {
  const Vec3 sa = a.spacing(), sb = b.spacing();
  const double smallest = std::min({sa[0], sa[1], sa[2], sb[0], sb[1], sb[2]});
  return max_corner_distance_mm(a, b) <= tolerance * smallest;
}

}  // namespace volpipe
