#include "volume/phantom.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace volpipe {

namespace {

struct Ellipsoid {
  Vec3 center, half_axes;

  /// Squared distance from the centre in half axes: at most 1 inside.
  double square(const Vec3& p) const {
    double sum = 0;
    for (int i = 0; i < 3; ++i) {
      const double t = (p[i] - center[i]) / half_axes[i];
      sum += t * t;
    }
    return sum;
  }
  bool contains(const Vec3& p) const { return square(p) <= 1; }
};

/// An elliptic cylinder along z.
bool in_column(const Vec3& p, double x, double y, double half_x, double half_y) {
  const double tx = (p[0] - x) / half_x, ty = (p[1] - y) / half_y;
  return tx * tx + ty * ty <= 1;
}

double modulo(double value, double period) { return value - period * std::floor(value / period); }

/// Triangle wave of period 1 between -1 and 1.
double triangle(double t) { return 4 * std::abs(t - std::floor(t + 0.5)) - 1; }

/// About normal, mean 0 and standard deviation 1: the sum of four uniform numbers from a hash (SplitMix64) of the
/// index.
double noise(std::uint64_t seed, std::int64_t index) {
  std::uint64_t z = seed + (std::uint64_t(index) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const std::uint64_t sum = (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
  return (double(sum) - 131070.0) / 37837.0;
}

/// What a point of the body is made of.
struct Tissue {
  double value = 0;
  std::uint8_t label = 0;
};

struct PhantomGrid {
  Index3 size;
  Vec3 spacing;
  Matrix3 direction;
  Vec3 center;  ///< world position of the middle of the grid

  /// Millimetres from the middle of the grid, along world axes; indices may be between voxels.
  Vec3 position(double i, double j, double k) const {
    const Vec3 index{i, j, k};
    Vec3 p{};
    for (int row = 0; row < 3; ++row)
      for (int axis = 0; axis < 3; ++axis)
        p[row] += direction[row][axis] * ((index[axis] - double(size[axis] - 1) / 2) * spacing[axis]);
    return p;
  }
  Geometry geometry() const {
    const Vec3 first = position(0, 0, 0);
    return Geometry::from_spacing(size, spacing, {center[0] + first[0], center[1] + first[1], center[2] + first[2]},
                                  direction);
  }
};

Volume make_volume(const Geometry& geometry, DataType dtype, ImageKind kind) {
  VolumeInfo info;
  info.geometry = geometry;
  info.dtype = dtype;
  info.kind = kind;
  return Volume(info, Buffer::host(info.bytes()));
}

/// Samples tissue_at(position): the label at the voxel's centre, the value as the mean over 2x2x2 points of the voxel
/// given to to_value(mean, position, index), then rounded.
template <class T, class TissueAt, class ToValue>
Phantom sample(const PhantomGrid& grid, const TissueAt& tissue_at, const ToValue& to_value) {
  const Geometry geometry = grid.geometry();
  Phantom phantom{make_volume(geometry, data_type_of<T>(), ImageKind::image),
                  make_volume(geometry, DataType::uint8, ImageKind::label)};
  T* image = phantom.image.data_as<T>();
  auto* label = phantom.label->data_as<std::uint8_t>();
  std::int64_t index = 0;
  for (std::int64_t k = 0; k < grid.size[2]; ++k)
    for (std::int64_t j = 0; j < grid.size[1]; ++j)
      for (std::int64_t i = 0; i < grid.size[0]; ++i, ++index) {
        double sum = 0;
        for (int corner = 0; corner < 8; ++corner)
          sum += tissue_at(grid.position(double(i) + ((corner & 1) ? 0.25 : -0.25),
                                         double(j) + ((corner & 2) ? 0.25 : -0.25),
                                         double(k) + ((corner & 4) ? 0.25 : -0.25)))
                     .value;
        const Vec3 center = grid.position(double(i), double(j), double(k));
        image[index] = T(std::lround(to_value(sum / 8, center, index)));
        label[index] = tissue_at(center).label;
      }
  return phantom;
}

/// Painted from the skin inwards. Millimetres: x to the Right, y to Anterior, z to Superior.
Tissue torso_at(const Vec3& p) {
  enum Label : std::uint8_t { kNone, kBody, kLungs, kHeart, kLiver, kBone, kSpleen, kNodule };
  constexpr Ellipsoid kRightLung{{72, 8, 40}, {56, 80, 125}}, kLeftLung{{-72, 8, 40}, {56, 80, 125}};
  constexpr Ellipsoid kHeartWall{{-22, 25, -5}, {52, 45, 48}}, kHeartChambers{{-22, 25, -5}, {36, 30, 34}};
  constexpr Ellipsoid kLiverShape{{65, 5, -105}, {80, 75, 65}}, kSpleenShape{{-95, -30, -95}, {40, 45, 50}};
  constexpr Ellipsoid kNoduleShape{{85, 20, 60}, {11, 11, 11}};

  if (!in_column(p, 0, 0, 165, 115)) {
    const bool couch = std::abs(p[0]) < 180 && p[1] < -125 && p[1] > -133;
    return {couch ? -300.0 : -1000.0, kNone};
  }
  if (!in_column(p, 0, 0, 150, 100)) return {-100, kBody};  // fat
  Tissue tissue{50, kBody};                                 // muscle

  if (in_column(p, 0, 0, 148, 98) && !in_column(p, 0, 0, 139, 89) && modulo(p[2], 30) < 12) tissue = {350, kBone};
  if (kRightLung.contains(p) || kLeftLung.contains(p)) tissue = {-850, kLungs};
  if (kLiverShape.contains(p) && in_column(p, 0, 0, 138, 88)) tissue = {110, kLiver};
  if (kSpleenShape.contains(p) && in_column(p, 0, 0, 138, 88)) tissue = {120, kSpleen};
  if (kHeartWall.contains(p)) tissue = {kHeartChambers.contains(p) ? 160.0 : 60.0, kHeart};
  if (in_column(p, -18, -45, 13, 13)) tissue = {180, kHeart};  // aorta
  if (kNoduleShape.contains(p)) tissue = {30, kNodule};

  const bool disc = modulo(p[2], 32) >= 25;
  if (in_column(p, 0, -72, 22, 17)) {
    if (disc) tissue = {90, kBody};
    else tissue = {in_column(p, 0, -72, 17, 12) ? 200.0 : 600.0, kBone};
  }
  if (in_column(p, 0, -92, 13, 12)) tissue = {600, kBone};
  if (in_column(p, 0, -92, 8, 7)) tissue = {10, kBody};  // spinal canal
  return tissue;
}

Phantom torso(const Index3& size, double depth_mm) {
  PhantomGrid grid{size,
                   {384.0 / double(size[0]), 384.0 / double(size[1]), depth_mm / double(size[2])},
                   Matrix3{{{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}}},
                   {3.5, -12.25, -412.5}};
  return sample<std::int16_t>(grid, torso_at, [](double value, const Vec3&, std::int64_t index) {
    return std::max(-1024.0, value + 12 * noise(0x70127, index));
  });
}

/// Painted from the skin inwards. Millimetres: x to the Right, y to Anterior, z to Superior.
Tissue head_at(const Vec3& p) {
  enum Label : std::uint8_t { kNone, kCsf, kGrey, kWhite };
  constexpr Tissue kFluid{220, kCsf}, kGreyMatter{520, kGrey}, kWhiteMatter{760, kWhite};
  constexpr Ellipsoid kScalp{{0, 0, 0}, {76, 96, 92}}, kSkull{{0, 0, 0}, {71, 91, 87}},
      kInnerSkull{{0, 0, 0}, {66, 86, 82}};
  constexpr Ellipsoid kCerebrum{{0, 2, 6}, {62, 81, 74}}, kCerebellum{{0, -46, -50}, {42, 30, 23}};

  // Both halves are alike.
  const Vec3 half{std::abs(p[0]), p[1], p[2]};
  constexpr Ellipsoid kVentricle{{13, 6, 14}, {7, 33, 13}}, kNucleus{{25, 10, 4}, {9, 20, 11}},
      kEye{{31, 74, -28}, {12, 12, 12}};

  if (kEye.contains(half)) return {260, kNone};
  if (!kScalp.contains(p)) return {p[2] < -50 && in_column(p, 0, -12, 48, 52) ? 430.0 : 0.0, kNone};  // neck
  if (!kSkull.contains(p)) return {820, kNone};
  if (!kInnerSkull.contains(p)) return {90, kNone};

  if (kVentricle.contains(half)) return kFluid;
  if (kNucleus.contains(half)) return kGreyMatter;
  if (in_column(p, 0, -22, 12, 11) && p[2] < -15) return kWhiteMatter;  // brain stem
  const double folds = triangle(p[0] / 19) * triangle(p[1] / 23) + triangle(p[1] / 17 + 0.3) * triangle(p[2] / 21);
  if (const double square = kCerebellum.square(p); square <= 1)
    return square + 0.2 * folds < 0.6 ? kWhiteMatter : kGreyMatter;
  const bool fissure = half[0] < 1.5 && p[2] > 25;
  const double square = kCerebrum.square(p) + 0.12 * folds;
  if (p[2] < -40) return {430, kNone};  // face and skull base
  if (fissure || square > 1) return kFluid;
  return square < 0.68 ? kWhiteMatter : kGreyMatter;
}

}  // namespace

Phantom shepp_logan_phantom(std::int64_t size) {
  // Half axes, centres and tilts as Kak and Slaney's 2-D figure with the third axis of M. Schabel's phantom3d; values
  // of P. Toft, "The Radon Transform", 1996, table B.1. The tilt is about z.
  struct Part {
    double value;
    Ellipsoid shape;
    double cosine = 1, sine = 0;
  };
  constexpr double kCos18 = 0.95105651629515357, kSin18 = 0.30901699437494742;
  constexpr Part kParts[] = {
      {1.0, {{0, 0, 0}, {0.69, 0.92, 0.81}}},
      {-0.8, {{0, -0.0184, 0}, {0.6624, 0.874, 0.78}}},
      {-0.2, {{0.22, 0, 0}, {0.11, 0.31, 0.22}}, kCos18, -kSin18},
      {-0.2, {{-0.22, 0, 0}, {0.16, 0.41, 0.28}}, kCos18, kSin18},
      {0.1, {{0, 0.35, -0.15}, {0.21, 0.25, 0.41}}},
      {0.1, {{0, 0.1, 0.25}, {0.046, 0.046, 0.05}}},
      {0.1, {{0, -0.1, 0.25}, {0.046, 0.046, 0.05}}},
      {0.1, {{-0.08, -0.605, 0}, {0.046, 0.023, 0.05}}},
      {0.1, {{0, -0.606, 0}, {0.023, 0.023, 0.02}}},
      {0.1, {{0.06, -0.605, 0}, {0.023, 0.046, 0.02}}},
  };

  const PhantomGrid grid{{size, size, size},
                         {200.0 / double(size), 200.0 / double(size), 200.0 / double(size)},
                         Matrix3{{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
                         {0, 0, 0}};
  Volume image = make_volume(grid.geometry(), DataType::float32, ImageKind::image);
  float* voxel = image.data_as<float>();
  for (std::int64_t k = 0; k < size; ++k)
    for (std::int64_t j = 0; j < size; ++j)
      for (std::int64_t i = 0; i < size; ++i) {
        const Vec3 mm = grid.position(double(i), double(j), double(k));
        const Vec3 p{mm[0] / 100, mm[1] / 100, mm[2] / 100};
        double tenths = 0;  // whole numbers add without rounding
        for (const Part& part : kParts) {
          const Vec3& center = part.shape.center;
          const double x = p[0] - center[0], y = p[1] - center[1];
          const Vec3 turned{center[0] + part.cosine * x + part.sine * y, center[1] - part.sine * x + part.cosine * y,
                            p[2]};
          if (part.shape.contains(turned)) tenths += std::round(part.value * 10);
        }
        *voxel++ = float(tenths / 10);
      }
  return {std::move(image), std::nullopt};
}

Phantom torso_phantom(std::int64_t size) { return torso({size, size, std::max<std::int64_t>(1, size * 5 / 8)}, 300); }

Phantom torso_slab_phantom(std::int64_t size, std::int64_t slices) { return torso({size, size, slices}, 150); }

Phantom head_phantom(std::int64_t size) {
  // Two rational turns, so that no library's sine is needed: about x (99, 20, 101) and about z (60, 11, 61).
  constexpr double kCx = 99.0 / 101, kSx = 20.0 / 101, kCz = 60.0 / 61, kSz = 11.0 / 61;
  constexpr std::array<Vec3, 3> kTurned = {{{kCz, kCx * kSz, kSx * kSz}, {-kSz, kCx * kCz, kSx * kCz}, {0, -kSx, kCx}}};
  Matrix3 direction;
  for (int row = 0; row < 3; ++row) {  // columns run toward Posterior, Superior, Right
    direction[row][0] = -kTurned[1][row];
    direction[row][1] = kTurned[2][row];
    direction[row][2] = kTurned[0][row];
  }
  const std::int64_t slices = std::max<std::int64_t>(1, size / 2);
  const PhantomGrid grid{{size, size, slices},
                         {216.0 / double(size), 216.0 / double(size), 172.8 / double(slices)},
                         direction,
                         {1.5, -8.25, 22.0}};
  return sample<std::uint16_t>(grid, head_at, [](double value, const Vec3& mm, std::int64_t index) {
    if (value == 0) return 0.0;
    const double x = mm[0] / 100, y = mm[1] / 100, z = mm[2] / 100;
    const double bias = 1 - 0.15 * x + 0.2 * y + 0.12 * y * z - 0.18 * z * z;
    return std::max(0.0, value * bias + 12 * noise(0x4ead, index));
  });
}

}  // namespace volpipe
