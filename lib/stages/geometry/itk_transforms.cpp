#include "stages/geometry/itk_transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <span>

#include "volume/error.h"

namespace volpipe {

namespace {

bool finite(const Affine& affine) {
  const auto all_finite = [](const Vec3& v) {
    return std::all_of(v.begin(), v.end(), [](double x) { return std::isfinite(x); });
  };
  return all_finite(affine.offset) && std::all_of(affine.linear.m.begin(), affine.linear.m.end(), all_finite);
}

}  // namespace

namespace detail {

void fail(const std::string& message) { throw Error(ErrorCode::input, message); }

std::string shown(std::string_view text) {
  std::string result = "'";
  for (char c : text.substr(0, 60)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > 60 ? "...'" : "'");
}

std::string number_text(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value + 0.0).ptr;  // -0 becomes 0
  return {digits, end};
}

const Affine& checked_map(const Affine& affine, const std::string& what) {
  const Matrix3& m = affine.linear;
  const double determinant = m.determinant();
  if (!finite(affine) || !std::isfinite(determinant)) fail(what + " has entries too large to compute with");
  if (!(std::abs(determinant) > 1e-12 * norm(m.column(0)) * norm(m.column(1)) * norm(m.column(2))))
    fail(what + " is singular: it flattens space, and no image can be resampled through it");
  return affine;
}

}  // namespace detail

namespace {

using detail::checked_map;
using detail::fail;
using detail::number_text;
using detail::shown;

constexpr std::size_t kMostTransforms = 1000;
constexpr double kLargestFieldSize = 1e6;

const Affine kMirrorXY{{{{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}}}, {}};

using Numbers = std::span<const double>;

Vec3 vec3(Numbers p, std::size_t at) { return {p[at], p[at + 1], p[at + 2]}; }
Matrix3 matrix3(Numbers p, std::size_t at) { return {{{vec3(p, at), vec3(p, at + 3), vec3(p, at + 6)}}}; }
Matrix3 diagonal(const Vec3& v) { return {{{{v[0], 0, 0}, {0, v[1], 0}, {0, 0, v[2]}}}}; }

/// w >= 0 and v are cosine and sine of half the angle, v along the axis.
Matrix3 rotation_of(double w, const Vec3& v) {
  const auto [x, y, z] = v;
  return {{{{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
            {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
            {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}}}};
}

Matrix3 versor(Numbers p) {
  Vec3 v = vec3(p, 0);
  const double length = norm(v);
  if (length > 1 + 1e-6) fail("the versor's length is " + number_text(length) + ", expected at most 1");
  constexpr double kMargin = 1e-10;  // ITK keeps half turns this far away
  if (length >= 1 - kMargin) v = 1 / (length * (1 + kMargin)) * v;
  return rotation_of(std::sqrt(1 - dot(v, v)), v);
}

Matrix3 quaternion(Numbers p) {
  const Vec3 v = vec3(p, 0);
  const double length = std::sqrt(dot(v, v) + p[3] * p[3]);
  if (!(std::abs(length - 1) <= 1e-6)) fail("the quaternion's length is " + number_text(length) + ", expected 1");
  return rotation_of(p[3] / length, 1 / length * v);
}

Matrix3 euler(Numbers p, bool zyx) {
  const auto turn = [](int axis, double angle) {
    const int i = (axis + 1) % 3, j = (axis + 2) % 3;
    Matrix3 result = Matrix3::identity();
    result[i][i] = result[j][j] = std::cos(angle);
    result[j][i] = std::sin(angle);
    result[i][j] = -std::sin(angle);
    return result;
  };
  const Matrix3 x = turn(0, p[0]), y = turn(1, p[1]), z = turn(2, p[2]);
  return zyx ? z * y * x : z * x * y;
}

/// ITK adds scales and skews to the rotation, it does not multiply.
Matrix3 plus(Matrix3 a, const Matrix3& b) {
  for (int i = 0; i < 3; ++i) a[i] = a[i] + b[i];
  return a;
}
Matrix3 scale_versor(Numbers p) { return plus(versor(p), diagonal(vec3(p, 6) - Vec3{1, 1, 1})); }
Matrix3 scale_skew_versor(Numbers p) {
  return plus(scale_versor(p), {{{{0, p[9], p[10]}, {p[11], 0, p[12]}, {p[13], p[14], 0}}}});
}
Matrix3 compose_scale_skew_versor(Numbers p) {
  return versor(p) * diagonal(vec3(p, 6)) * Matrix3{{{{1, p[9], p[10]}, {0, 1, p[11]}, {0, 0, 1}}}};
}

/// x -> linear * (x - center) + center + translation, the center being the fixed parameters.
struct LinearTransform {
  std::string_view name;
  std::size_t parameters;
  bool centered;
  int translation_at;  ///< parameter where the translation starts; -1: it has none
  Matrix3 (*linear)(Numbers parameters, Numbers fixed);
};

constexpr LinearTransform kLinearTransforms[] = {
    {"AffineTransform", 12, true, 9, [](Numbers p, Numbers) { return matrix3(p, 0); }},
    {"MatrixOffsetTransformBase", 12, true, 9, [](Numbers p, Numbers) { return matrix3(p, 0); }},
    {"Euler3DTransform", 6, true, 3, [](Numbers p, Numbers f) { return euler(p, f.size() > 3 && f[3] != 0); }},
    {"VersorTransform", 3, true, -1, [](Numbers p, Numbers) { return versor(p); }},
    {"VersorRigid3DTransform", 6, true, 3, [](Numbers p, Numbers) { return versor(p); }},
    {"QuaternionRigidTransform", 7, true, 4, [](Numbers p, Numbers) { return quaternion(p); }},
    {"Similarity3DTransform", 7, true, 3,
     [](Numbers p, Numbers) {
       return versor(p) * diagonal({p[6], p[6], p[6]});
     }},
    {"ScaleVersor3DTransform", 9, true, 3, [](Numbers p, Numbers) { return scale_versor(p); }},
    {"ScaleSkewVersor3DTransform", 15, true, 3, [](Numbers p, Numbers) { return scale_skew_versor(p); }},
    {"ComposeScaleSkewVersor3DTransform", 12, true, 3, [](Numbers p, Numbers) { return compose_scale_skew_versor(p); }},
    {"ScaleTransform", 3, true, -1, [](Numbers p, Numbers) { return diagonal(vec3(p, 0)); }},
    {"TranslationTransform", 3, false, 0, [](Numbers, Numbers) { return Matrix3::identity(); }},
    {"IdentityTransform", 0, false, -1, [](Numbers, Numbers) { return Matrix3::identity(); }},
};
constexpr std::string_view kComposite = "CompositeTransform";
constexpr std::string_view kBSpline = "BSplineTransform";
constexpr std::string_view kDisplacementField = "DisplacementFieldTransform";

std::string known_transforms() {
  std::string names;
  for (const LinearTransform& transform : kLinearTransforms) names += std::string(transform.name) + ", ";
  for (std::string_view name : {kBSpline, kDisplacementField}) names += std::string(name) + ", ";
  return names + std::string(kComposite);
}

/// The class of a name such as AffineTransform_double_3_3.
std::string_view class_of(const ItkTransform& itk) {
  const std::string_view name = itk.name;
  const std::size_t end = std::min(name.find('_'), name.size());
  const std::string_view space = name.substr(end);
  if (space != "_double_3_3" && space != "_float_3_3")
    fail("transform " + shown(name) +
         " cannot be read: expected a name that ends in _double_3_3 or _float_3_3, of a "
         "3-D transform (a B-spline's being of order 3), the known ones being " +
         known_transforms());
  return name.substr(0, end);
}

[[noreturn]] void fail_count(const ItkTransform& itk, const char* what, std::size_t got, const std::string& wanted) {
  fail(itk.name + " has " + std::to_string(got) + " " + what + ", expected " + wanted);
}

Affine linear_map(const LinearTransform& transform, const ItkTransform& itk) {
  if (itk.parameters.size() != transform.parameters)
    fail_count(itk, "parameters", itk.parameters.size(), std::to_string(transform.parameters));
  const bool may_say_order = transform.name == "Euler3DTransform";
  if (transform.centered && itk.fixed.size() != 3 && !(may_say_order && itk.fixed.size() == 4))
    fail_count(itk, "fixed parameters", itk.fixed.size(),
               may_say_order ? "3 (the center) or 4 (and the order of rotations)" : "3 (the center)");
  Affine lps{transform.linear(itk.parameters, itk.fixed), {}};
  if (transform.translation_at >= 0) lps.offset = vec3(itk.parameters, std::size_t(transform.translation_at));
  if (transform.centered) {
    const Vec3 center = vec3(itk.fixed, 0);
    lps.offset = lps.offset + center - lps.linear * center;
  }
  return checked_map(between_lps_and_ras(lps), itk.name);
}

/// Vectors at grid points, in the same words for both kinds: `fixed` is size, origin, spacing, direction by rows.
PointMap field_map(const ItkTransform& itk, VectorField::Basis basis) {
  const bool spline = basis == VectorField::Basis::bspline3;
  if (itk.fixed.size() != 18)
    fail_count(itk, "fixed parameters", itk.fixed.size(), "18: size, origin, spacing and direction of its grid");

  Index3 size;
  double points = 1;
  const double smallest = spline ? 4 : 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const double n = itk.fixed[axis];
    if (!(n >= smallest && n <= kLargestFieldSize) || n != std::floor(n))
      fail(itk.name + ": " + number_text(n) + " is no size of a grid, expected a whole number of at least " +
           number_text(smallest));
    size[axis] = std::int64_t(n);
    points *= n;
  }
  if (3 * points != double(itk.parameters.size()))
    fail_count(itk, "parameters", itk.parameters.size(),
               number_text(3 * points) + " for its grid of " + number_text(double(size[0])) + " x " +
                   number_text(double(size[1])) + " x " + number_text(double(size[2])) + " points");
  const Vec3 spacing = vec3(itk.fixed, 6);
  for (double step : spacing)
    if (!(step > 0)) fail(itk.name + ": the spacing of its grid is " + number_text(step) + ", expected more than 0");

  const Affine index_to_lps{matrix3(itk.fixed, 9) * diagonal(spacing), vec3(itk.fixed, 3)};
  const Affine index_to_ras = checked_map(kMirrorXY * index_to_lps, "the grid of " + itk.name);
  VolumeInfo info{Geometry(size, index_to_ras), DataType::float64, 3};
  info.component_axis = ComponentAxis::channels;
  const auto vectors = std::make_shared<Volume>(info, Buffer::host(info.bytes()));
  const auto n = std::size_t(info.geometry.voxel_count());
  // ITK stores the coefficients of a B-spline by component, those of a field by point.
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < n; ++i) {
      const double value = itk.parameters[spline ? c * n + i : 3 * i + c];
      vectors->data_as<double>()[c * n + i] = c < 2 ? -value : value;
    }

  FieldStep step;
  step.field = {.basis = basis, .size = size, .vectors = vectors};
  step.to_grid = checked_map(info.geometry.world_to_index(), "the grid of " + itk.name);
  return step;
}

PointMap map_of(const ItkTransform& itk) {
  const std::string_view name = class_of(itk);
  for (const LinearTransform& transform : kLinearTransforms)
    if (name == transform.name) return linear_map(transform, itk);
  if (name == kBSpline) return field_map(itk, VectorField::Basis::bspline3);
  if (name == kDisplacementField) return field_map(itk, VectorField::Basis::linear);
  if (name == kComposite)
    fail("a CompositeTransform stands inside another, which ITK does not write: give its members");
  fail("unknown transform " + shown(itk.name) + ": known are " + known_transforms());
}

}  // namespace

Affine between_lps_and_ras(const Affine& affine) { return kMirrorXY * affine * kMirrorXY; }

PointMap point_map(const std::vector<ItkTransform>& transforms) {
  if (transforms.empty()) fail("the file holds no transform");
  const bool composite = class_of(transforms.front()) == kComposite;
  if (!composite && transforms.size() > 1)
    fail("the file holds " + std::to_string(transforms.size()) +
         " transforms and does not say how they go together: put them after a CompositeTransform (the last acts "
         "first), or into a file each");
  if (composite && transforms.size() == 1) fail("the CompositeTransform has no members");
  if (transforms.size() > kMostTransforms)
    fail("the file holds more than " + std::to_string(kMostTransforms) + " transforms");
  PointMap result;
  for (std::size_t i = transforms.size(); i-- > (composite ? 1 : 0);) result = map_of(transforms[i]).after(result);
  for (const PointMap::Step& step : result.steps())
    if (const auto* affine = std::get_if<Affine>(&step)) checked_map(*affine, "the composition of the transforms");
  return result;
}

}  // namespace volpipe
