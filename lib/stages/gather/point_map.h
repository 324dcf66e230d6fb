// Where the points of one space lie in another: affine maps and vector fields, one after another, in double precision.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "volume/volume.h"

namespace volpipe {

/// A vector at every point of a grid. Outside the grid (for linear beyond half a voxel, for bspline3 outside [1, size -
/// 2], as ITK) the vector is 0.
struct VectorField {
  enum class Basis : std::uint8_t {
    linear,    ///< vectors at the grid points, trilinear between them
    bspline3,  ///< coefficients of a tensor-product cubic B-spline, no prefilter: at most as large as the largest
  };
  Basis basis = Basis::linear;
  Index3 size{};
  /// Host volume of `size`, components x, y, z, float32 or float64; null: the item's image `image`, wherever it is.
  std::shared_ptr<const Volume> vectors{};
  std::string image{};
  /// The vectors are a velocity; the displacement is its exponential, by scaling and squaring (Arsigny et al. 2006), of
  /// `linear` times the vectors in the space of the step.
  bool exponential = false;
};

/// One step of a map: p becomes p + v, v being `linear` * (the field's vector at index to_grid(p)).
struct FieldStep {
  enum class Use : std::uint8_t {
    add,      ///< p + v
    replace,  ///< v + offset: the field holds the points themselves
    undo      ///< the q with q + v(q) = p, by kUndoIterations of q <- p - v(q) from q = p
  };
  static constexpr int kUndoIterations = 32;
  Use use = Use::add;
  VectorField field;
  Affine to_grid;                        ///< point -> index of the field's grid
  Matrix3 linear = Matrix3::identity();  ///< from the field's vectors to the space of p
  Vec3 offset{};                         ///< for `replace`
};

/// A point goes through the steps in order.
class PointMap {
 public:
  PointMap() = default;
  PointMap(const Affine& affine) : steps_{affine} {}
  PointMap(FieldStep step) : steps_{std::move(step)} {}

  using Step = std::variant<Affine, FieldStep>;
  const std::vector<Step>& steps() const { return steps_; }  ///< never two affine maps in a row
  bool is_affine() const;
  Affine affine() const;  ///< when is_affine()
  bool is_identity() const;

  /// Throws Error(usage) for a step that has no inverse (`replace`), Error(input) for a singular affine map.
  PointMap inverse() const;
  /// The point after `first`, then `*this`.
  PointMap after(const PointMap& first) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace volpipe
