#include "pipeline/compare.h"

#include <cmath>

namespace volpipe {

namespace {

struct Extreme {
  double difference = 0;
  std::int64_t at = 0;

  void take(double candidate, std::int64_t index) {
    if (candidate > difference) *this = {candidate, index};
  }
};

struct Piece {
  std::int64_t differing = 0, non_finite_mismatches = 0;
  Extreme absolute, relative;

  void add(double a, double b, std::int64_t index, const Tolerance& tolerance) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      ++non_finite_mismatches;
      ++differing;
      return;
    }
    const double difference = std::abs(a - b);
    differing += !(difference <= tolerance.absolute + tolerance.relative * std::abs(b));
    absolute.take(difference, index);
    if (b != 0) relative.take(difference / std::abs(b), index);
  }

  void add(const Piece& later) {
    differing += later.differing;
    non_finite_mismatches += later.non_finite_mismatches;
    absolute.take(later.absolute.difference, later.absolute.at);
    relative.take(later.relative.difference, later.relative.at);
  }
};

template <class A, class B>
Piece compare_values(const DeviceContext& context, const A* a, const B* b, std::int64_t count,
                     const Tolerance& tolerance) {
  constexpr std::int64_t kGrain = 1 << 16;
  std::vector<Piece> pieces(std::size_t((count + kGrain - 1) / kGrain));
  context.parallel(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Piece& piece = pieces[std::size_t(begin / kGrain)];
    for (std::int64_t i = begin; i < end; ++i) piece.add(double(a[i]), double(b[i]), i, tolerance);
  });
  Piece all;
  for (const Piece& piece : pieces) all.add(piece);
  return all;
}

double value_at(const Volume& volume, std::int64_t i) {
  return visit(volume.dtype(), [&](auto tag) { return double(volume.data_as<typename decltype(tag)::type>()[i]); });
}

VoxelPair pair_at(const Volume& a, const Volume& b, std::int64_t i) {
  const Index3& size = a.geometry().size();
  const std::int64_t voxel = i % a.geometry().voxel_count();
  return {{voxel % size[0], voxel / size[0] % size[1], voxel / (size[0] * size[1])},
          i / a.geometry().voxel_count(),
          value_at(a, i),
          value_at(b, i)};
}

}  // namespace

Comparison compare_volumes(const DeviceContext& context, const Volume& a, const Volume& b, const Tolerance& tolerance) {
  Comparison result;
  result.same_size = a.geometry().size() == b.geometry().size();
  result.same_components = a.info().components == b.info().components;
  result.same_grid = same_grid(a.geometry(), b.geometry());
  result.corner_distance_mm = max_corner_distance_mm(a.geometry(), b.geometry());
  if (!result.same_size || !result.same_components) return result;

  result.values = a.info().value_count();
  const Piece all = visit(a.dtype(), [&](auto tag_a) {
    return visit(b.dtype(), [&](auto tag_b) {
      return compare_values(context, a.data_as<typename decltype(tag_a)::type>(),
                            b.data_as<typename decltype(tag_b)::type>(), result.values, tolerance);
    });
  });
  result.differing = all.differing;
  result.non_finite_mismatches = all.non_finite_mismatches;
  result.max_absolute = all.absolute.difference;
  result.max_absolute_at = pair_at(a, b, all.absolute.at);
  result.max_relative = all.relative.difference;
  result.max_relative_at = pair_at(a, b, all.relative.at);
  return result;
}

}  // namespace volpipe
