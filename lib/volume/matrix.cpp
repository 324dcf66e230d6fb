#include "volume/matrix.h"

#include <algorithm>
#include <cmath>

#include "volume/error.h"

namespace volpipe {

Matrix3 Matrix3::identity() { return {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}}; }

double Matrix3::determinant() const { return dot(column(0), cross(column(1), column(2))); }

Matrix3 Matrix3::inverse() const {
  const Vec3 a = column(0), b = column(1), c = column(2);
  const double det = determinant();
  if (!(std::abs(det) > 1e-12 * norm(a) * norm(b) * norm(c))) {  // also catches NaN
    throw Error(ErrorCode::input, "matrix is singular and has no inverse");
  }
  const Vec3 rows[3] = {cross(b, c), cross(c, a), cross(a, b)};
  Matrix3 result;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) result[i][j] = rows[i][j] / det;
  return result;
}

Matrix3 operator*(const Matrix3& a, const Matrix3& b) {
  Matrix3 result;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) result[i][j] = dot(a[i], b.column(j));
  return result;
}

Vec3 operator*(const Matrix3& a, const Vec3& v) { return {dot(a[0], v), dot(a[1], v), dot(a[2], v)}; }

Vec3 Affine::operator()(const Vec3& v) const { return linear * v + offset; }

Affine Affine::inverse() const {
  const Matrix3 inverted = linear.inverse();
  return {inverted, -1.0 * (inverted * offset)};
}

Affine operator*(const Affine& a, const Affine& b) { return {a.linear * b.linear, a(b.offset)}; }

Vec3 operator+(const Vec3& a, const Vec3& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vec3 operator-(const Vec3& a, const Vec3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec3 operator*(double s, const Vec3& v) { return {s * v[0], s * v[1], s * v[2]}; }
double dot(const Vec3& a, const Vec3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
double norm(const Vec3& v) { return std::sqrt(dot(v, v)); }
Vec3 cross(const Vec3& a, const Vec3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

Box3 voxel_centres(const Index3& size) { return {{}, {double(size[0] - 1), double(size[1] - 1), double(size[2] - 1)}}; }

Box3 voxel_edges(const Index3& size) {
  return {{-0.5, -0.5, -0.5}, {double(size[0]) - 0.5, double(size[1]) - 0.5, double(size[2]) - 0.5}};
}

Box3 box_around(const Affine& map, const Box3& box) {
  Box3 around{map(box.low), map(box.low)};
  for (int corner = 1; corner < 8; ++corner) {
    Vec3 at;
    for (std::size_t axis = 0; axis < 3; ++axis) at[axis] = (corner >> axis & 1) ? box.high[axis] : box.low[axis];
    const Vec3 mapped = map(at);
    for (std::size_t axis = 0; axis < 3; ++axis) {
      around.low[axis] = std::min(around.low[axis], mapped[axis]);
      around.high[axis] = std::max(around.high[axis], mapped[axis]);
    }
  }
  return around;
}

}  // namespace volpipe
