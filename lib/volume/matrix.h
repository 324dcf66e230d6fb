// The little linear algebra that geometry needs, in double precision.
#pragma once

#include <array>
#include <cstdint>

namespace volpipe {

using Index3 = std::array<std::int64_t, 3>;  ///< voxel index or size, x fastest
using Vec3 = std::array<double, 3>;

/// Row-major 3x3.
struct Matrix3 {
  std::array<std::array<double, 3>, 3> m{};

  static Matrix3 identity();
  std::array<double, 3>& operator[](int row) { return m[row]; }
  const std::array<double, 3>& operator[](int row) const { return m[row]; }
  Vec3 column(int j) const { return {m[0][j], m[1][j], m[2][j]}; }
  double determinant() const;
  Matrix3 inverse() const;  ///< throws Error(input) when singular
  friend Matrix3 operator*(const Matrix3& a, const Matrix3& b);
  friend Vec3 operator*(const Matrix3& a, const Vec3& v);
  bool operator==(const Matrix3&) const = default;
};

/// Affine map of 3-space: x -> linear * x + offset (the upper 3x4 of a homogeneous 4x4).
struct Affine {
  Matrix3 linear = Matrix3::identity();
  Vec3 offset{};

  Vec3 operator()(const Vec3& v) const;
  Affine inverse() const;  ///< throws Error(input) when singular
  /// (a * b)(x) = a(b(x))
  friend Affine operator*(const Affine& a, const Affine& b);
  bool operator==(const Affine&) const = default;
};

/// An axis-aligned box.
struct Box3 {
  Vec3 low{}, high{};
};

/// A grid of `size` in its own voxel indices: from the first voxel's centre to the last's, and from edge to edge.
Box3 voxel_centres(const Index3& size);
Box3 voxel_edges(const Index3& size);

/// The smallest box around what `map` makes of `box`.
Box3 box_around(const Affine& map, const Box3& box);

Vec3 operator+(const Vec3& a, const Vec3& b);
Vec3 operator-(const Vec3& a, const Vec3& b);
Vec3 operator*(double s, const Vec3& v);
double dot(const Vec3& a, const Vec3& b);
double norm(const Vec3& v);
Vec3 cross(const Vec3& a, const Vec3& b);

}  // namespace volpipe
