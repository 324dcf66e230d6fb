#include "stages/intensity/random_fields.h"

#include <algorithm>
#include <cmath>

#include "stages/geometry/control_grid.h"
#include "stages/separable/bspline.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Voxel indices of an image -> those of the frame; exactly the same on the frame's own grid.
Affine to_frame(const VolumeInfo& input, const StageContext& context) {
  if (same_grid(input.geometry, context.frame.geometry)) return {};
  return context.frame.geometry.world_to_index() * input.geometry.index_to_world();
}

/// P_0(x) to P_degree(x).
std::vector<double> legendre(int degree, double x) {
  std::vector<double> p{1, x};
  for (int n = 1; n < degree; ++n)
    p.push_back(((2 * n + 1) * x * p[std::size_t(n)] - n * p[std::size_t(n - 1)]) / (n + 1));
  return p;
}

/// Of voxel indices of the frame.
class LegendreSum {
 public:
  LegendreSum(const StageContext& context, int degree, double magnitude)
      : degree_(degree), extent_(extent_of_item(context)) {
    DrawStream draws = context.draws();
    for (int c = 0; c <= degree; ++c)
      for (int b = 0; b <= degree - c; ++b)
        for (int a = 0; a <= degree - b - c; ++a)
          terms_.push_back({{a, b, c}, a + b + c == 0 ? 0 : magnitude * (2 * draws.uniform() - 1)});
    std::array<std::vector<double>, 3> means;
    for (std::size_t axis = 0; axis < 3; ++axis) means[axis] = mean_along(axis, context.frame.geometry.size()[axis]);
    terms_[0].factor = -sum_over(means);
  }

  double operator()(const Vec3& index) const {
    std::array<std::vector<double>, 3> p;
    for (std::size_t axis = 0; axis < 3; ++axis) p[axis] = legendre(degree_, coordinate(axis, index[axis]));
    return sum_over(p);
  }

 private:
  struct Term {
    std::array<int, 3> degrees;
    double factor;
  };

  double coordinate(std::size_t axis, double index) const {
    return 2 * (index - extent_.low[axis]) / (extent_.high[axis] - extent_.low[axis]) - 1;
  }

  std::vector<double> mean_along(std::size_t axis, std::int64_t size) const {
    std::vector<double> mean(std::size_t(degree_ + 1));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::vector<double> p = legendre(degree_, coordinate(axis, double(i)));
      for (std::size_t n = 0; n < mean.size(); ++n) mean[n] += p[n] / double(size);
    }
    return mean;
  }

  double sum_over(const std::array<std::vector<double>, 3>& p) const {
    double sum = 0;
    for (const Term& term : terms_) {
      double product = term.factor;
      for (std::size_t axis = 0; axis < 3; ++axis) product *= p[axis][std::size_t(term.degrees[axis])];
      sum += product;
    }
    return sum;
  }

  int degree_;
  Box3 extent_;
  std::vector<Term> terms_;  ///< the constant first
};

/// The nodes of an axis, in [-1, 1] from its first edge to its last: Chebyshev's.
std::vector<double> nodes_of(int degree) {
  std::vector<double> nodes;
  for (int k = 0; k <= degree; ++k) nodes.push_back(std::cos(std::acos(-1.0) * (k + 0.5) / (degree + 1)));
  return nodes;
}

/// Lagrange's polynomials on the nodes, at the voxels of an axis.
Field::Axis lagrange_axis(const std::vector<double>& nodes, std::int64_t size) {
  const auto count = std::int64_t(nodes.size());
  Field::Axis axis{count, int(count), std::vector<std::int32_t>(std::size_t(size), 0), {}};
  for (std::int64_t i = 0; i < size; ++i)
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      double weight = 1;
      for (std::size_t m = 0; m < nodes.size(); ++m)
        if (m != k) weight *= ((2 * double(i) + 1) / double(size) - 1 - nodes[m]) / (nodes[k] - nodes[m]);
      axis.weights.push_back(weight);
    }
  return axis;
}

/// The frame's axes that an image's axes run along. Over the whole image they part by at most half a voxel.
std::array<std::size_t, 3> axes_along(const Affine& map, const Index3& size) {
  std::array<std::size_t, 3> along{};
  double astray = 0;
  for (std::size_t own = 0; own < 3; ++own) {
    const Vec3 step = map.linear.column(int(own));
    for (std::size_t axis = 1; axis < 3; ++axis)
      if (std::abs(step[axis]) > std::abs(step[along[own]])) along[own] = axis;
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (axis != along[own]) astray = std::max(astray, std::abs(step[axis]) * double(size[own] - 1));
  }
  const bool distinct = along[0] != along[1] && along[1] != along[2] && along[0] != along[2];
  if (!distinct || astray > 0.5)
    throw Error(ErrorCode::input,
                "its axes do not run along those of the first image that the stage acts on, so both cannot share a "
                "smooth field; resample_to its grid first, or name the images that share one with \"on\"");
  return along;
}

/// Cubic B-splines at the voxels of an axis: voxel i lies at control point `first + i * step` of `count`.
Field::Axis spline_axis(double first, double step, std::int64_t count, std::int64_t size) {
  Field::Axis axis{count, 4, {}, {}};
  for (std::int64_t i = 0; i < size; ++i) {
    const double place = std::clamp(first + double(i) * step, 1.0, double(count - 2));
    const BsplineWeights b = bspline_weights(3, place);
    const bool beyond = b.start + 4 > count;  // on the last point, where the last weight is 0
    axis.first.push_back(std::int32_t(beyond ? count - 4 : b.start));
    if (beyond) axis.weights.push_back(0);
    axis.weights.insert(axis.weights.end(), b.weights.begin(), b.weights.begin() + (beyond ? 3 : 4));
  }
  return axis;
}

}  // namespace

std::shared_ptr<const Field> random_polynomial_field(const VolumeInfo& input, const StageContext& context, int degree,
                                                     double magnitude) {
  const LegendreSum polynomial(context, degree, magnitude);
  const std::vector<double> nodes = nodes_of(degree);
  const Index3& size = input.geometry.size();
  const Affine map = to_frame(input, context);
  const auto index = [&](std::size_t axis, double node) { return (node + 1) / 2 * double(size[axis]) - 0.5; };
  auto field = std::make_shared<Field>();
  for (std::size_t axis = 0; axis < 3; ++axis) field->axes[axis] = lagrange_axis(nodes, size[axis]);
  for (const double z : nodes)
    for (const double y : nodes)
      for (const double x : nodes)
        field->coefficients.push_back(polynomial(map({index(0, x), index(1, y), index(2, z)})));
  return field;
}

std::shared_ptr<const Field> random_spline_field(const VolumeInfo& input, const StageContext& context,
                                                 const Vec3& spacing, const std::array<double, 2>& range) {
  const ControlGrid grid = grid_of_size(context, spacing);
  const Index3 points{grid.cells[0] + 3, grid.cells[1] + 3, grid.cells[2] + 3};
  check_control_points(double(points[0]) * double(points[1]) * double(points[2]));
  std::vector<double> values(std::size_t(points[0] * points[1] * points[2]));
  DrawStream draws = context.draws();
  for (double& value : values) value = range[0] + (range[1] - range[0]) * draws.uniform();

  // The control point before the low edge is number 0.
  const Affine frame_map = to_frame(input, context);
  const std::array<std::size_t, 3> along = axes_along(frame_map, input.geometry.size());
  const Affine map = Affine{Matrix3::identity(), {1, 1, 1}} * grid.frame_to_cells * frame_map;
  const Vec3 middle = map({double(input.geometry.size()[0] - 1) / 2, double(input.geometry.size()[1] - 1) / 2,
                           double(input.geometry.size()[2] - 1) / 2});
  auto field = std::make_shared<Field>();
  std::array<std::int64_t, 3> strides{};
  for (std::size_t own = 0; own < 3; ++own) {
    const std::size_t axis = along[own];
    const double step = map.linear[int(axis)][own];
    const std::int64_t size = input.geometry.size()[own];
    field->axes[own] = spline_axis(middle[axis] - step * double(size - 1) / 2, step, points[axis], size);
    strides[own] = axis == 0 ? 1 : axis == 1 ? points[0] : points[0] * points[1];
  }
  for (std::int64_t c = 0; c < field->axes[2].count; ++c)
    for (std::int64_t b = 0; b < field->axes[1].count; ++b)
      for (std::int64_t a = 0; a < field->axes[0].count; ++a)
        field->coefficients.push_back(values[std::size_t(a * strides[0] + b * strides[1] + c * strides[2])]);
  return field;
}

}  // namespace volpipe
