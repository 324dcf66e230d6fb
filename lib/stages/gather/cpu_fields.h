// Vector fields on the CPU, a stretch of target voxels at a time. For gather_cpu.cpp alone.
#pragma once

#include "stages/gather/cpu_samplers.h"
#include "stages/gather/point_map.h"

namespace volpipe::cpu {

namespace {

/// One field, whose vectors are of type V. A chunk is what a stretch of at most kChunk voxels of a target row have.
template <class V>
class Field {
 public:
  explicit Field(const FieldWork& work)
      : work_(work),
        to_grid_(gather::map_of(work.to_grid)),
        points_(sampling(work, Interpolation::linear)),
        coefficients_(sampling(work, Interpolation::bspline3)) {
    view_.vectors = static_cast<const V*>(work.vectors);
    std::copy_n(work.size.data(), 3, view_.size);
    view_.component_stride = work.size[0] * work.size[1] * work.size[2];
    const double sign = work.use == FieldWork::Use::undo ? -1 : 1;
    for (int row = 0; row < 3; ++row)
      for (int column = 0; column < 3; ++column) linear_[row][column] = sign * work.linear[row][std::size_t(column)];
  }

  /// Moves the points `at` of target voxels (i, j, k), (i + 1, j, k), ...
  void move(std::int64_t i, double j, double k, std::int64_t count, double (*at)[kChunk]) const {
    if (work_.use == FieldWork::Use::undo) return undo(count, at);
    double grid[3][kChunk];
    V v[3][kChunk];
    if (work_.from_target) {
      const Point row = gather::row_of(to_grid_, j, k);
      apply_to_row(row, i, count, grid);
      const bool along_row = work_.bspline && to_grid_.m[1][0] == 0 && to_grid_.m[2][0] == 0;
      if (!along_row || !vectors_along_row(row, grid[0], count, v)) vectors(grid, count, v);
    } else {
      apply(at, count, grid);
      vectors(grid, count, v);
    }
    if (work_.use == FieldWork::Use::replace)
      for (std::size_t a = 0; a < 3; ++a) std::fill_n(at[a], count, work_.offset[a]);
    displace(at, v, count, at);
  }

 private:
  /// The field as an image of which stretches well inside are taken.
  static GatherWork sampling(const FieldWork& field, Interpolation interpolation) {
    GatherWork work;
    std::int64_t stride = 1;
    for (std::size_t a = 0; a < 3; ++a) {
      work.source[a] = {.size = field.size[a], .offset = 0, .stride = stride, .begin = 0, .end = field.size[a]};
      stride *= field.size[a];
    }
    work.interpolation = interpolation;
    return work;
  }

  void apply_to_row(const Point& row, std::int64_t i, std::int64_t count, double (*grid)[kChunk]) const {
    const double first = double(i);
    for (int a = 0; a < 3; ++a)
      for (int l = 0; l < int(count); ++l) grid[a][l] = std::fma(to_grid_.m[a][0], first + l, row.at[a]);
  }
  void apply(const double (*at)[kChunk], std::int64_t count, double (*grid)[kChunk]) const {
    const auto& m = to_grid_.m;
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l)
        grid[a][l] = std::fma(m[a][0], at[0][l], std::fma(m[a][1], at[1][l], std::fma(m[a][2], at[2][l], m[a][3])));
  }

  /// gather::moved for a chunk; `to` may be `from`.
  void displace(const double (*from)[kChunk], const V (*v)[kChunk], std::int64_t count, double (*to)[kChunk]) const {
    for (int a = 0; a < 3; ++a)
      for (std::int64_t l = 0; l < count; ++l)
        to[a][l] =
            std::fma(linear_[a][0], double(v[0][l]),
                     std::fma(linear_[a][1], double(v[1][l]), std::fma(linear_[a][2], double(v[2][l]), from[a][l])));
  }

  void vectors(const double (*grid)[kChunk], std::int64_t count, V (*v)[kChunk]) const {
    if (work_.bspline) vectors_by(coefficients_, grid, count, v);
    else vectors_by(points_, grid, count, v);
  }

  template <class Sampler>
  void vectors_by(const Sampler& sampler, const double (*grid)[kChunk], std::int64_t count, V (*v)[kChunk]) const {
    const auto inside = [&](std::int64_t begin, std::int64_t length, const double(*points)[kChunk]) {
      typename Sampler::Positions positions;
      sampler.positions(points, length, sampler.source().reach(), positions);
      for (int c = 0; c < 3; ++c)
        sampler.template take<1>(positions, length, sampler.source().reach(),
                                 view_.vectors + c * view_.component_stride, v[c] + begin);
    };
    const auto each = [&](std::int64_t l) {
      V vector[3];
      const Point p{{grid[0][l], grid[1][l], grid[2][l]}};
      if (work_.bspline) gather::spline_vector(view_, p, vector);
      else gather::linear_vector(view_, p, vector);
      for (int c = 0; c < 3; ++c) v[c][l] = vector[c];
    };
    split_chunk(sampler.source(), grid, count, inside, each);
  }

  /// Once a step changes nothing the steps that are left would not either.
  void undo(std::int64_t count, double (*at)[kChunk]) const {
    double q[3][kChunk], next[3][kChunk], grid[3][kChunk];
    V v[3][kChunk];
    for (int a = 0; a < 3; ++a) std::copy_n(at[a], count, q[a]);
    for (int step = 0; step < FieldStep::kUndoIterations; ++step) {
      apply(q, count, grid);
      vectors(grid, count, v);
      displace(at, v, count, next);
      bool stays = true;
      for (int a = 0; a < 3; ++a) {
        stays = stays && std::equal(next[a], next[a] + count, q[a]);
        std::copy_n(next[a], count, q[a]);
      }
      if (stays) break;
    }
    for (int a = 0; a < 3; ++a) std::copy_n(q[a], count, at[a]);
  }

  /// The columns of coefficients that a row shares are taken through y and z once. False when the row crosses more of
  /// them than it has voxels.
  bool vectors_along_row(const Point& row, const double* x, std::int64_t count, V (*v)[kChunk]) const {
    constexpr std::int64_t kMostColumns = kChunk + 8;
    std::int64_t first_y = 0, first_z = 0, first[kChunk], lowest = view_.size[0], highest = 0;
    V wy[4], wz[4], w[kChunk][4];
    const bool inside = gather::spline_taps(row.at[1], view_.size[1], first_y, wy) &&
                        gather::spline_taps(row.at[2], view_.size[2], first_z, wz);
    for (std::int64_t l = 0; l < count; ++l) {
      if (!inside || !gather::spline_taps(x[l], view_.size[0], first[l], w[l])) {
        first[l] = -1;
        continue;
      }
      lowest = std::min(lowest, first[l]);
      highest = std::max(highest, first[l] + 4);
    }
    if (highest - lowest > kMostColumns) return false;
    V columns[kMostColumns];
    for (int c = 0; c < 3; ++c) {
      if (highest > lowest) take_columns(c, lowest, highest - lowest, first_y, first_z, wy, wz, columns);
      for (std::int64_t l = 0; l < count; ++l) {
        V sum = 0;
        if (first[l] >= 0)
          for (int dx = 0; dx < 4; ++dx) sum = std::fma(w[l][dx], columns[first[l] - lowest + dx], sum);
        v[c][l] = sum;
      }
    }
    return true;
  }

  /// gather::spline_column for `count` columns.
  void take_columns(int component, std::int64_t x, std::int64_t count, std::int64_t first_y, std::int64_t first_z,
                    const V (&wy)[4], const V (&wz)[4], V* columns) const {
    std::fill_n(columns, count, V(0));
    for (int dz = 0; dz < 4; ++dz) {
      const V* rows[4];
      for (int dy = 0; dy < 4; ++dy)
        rows[dy] = view_.vectors + component * view_.component_stride +
                   ((first_z + dz) * view_.size[1] + first_y + dy) * view_.size[0] + x;
      for (std::int64_t c = 0; c < count; ++c) {
        V line = 0;
        for (int dy = 0; dy < 4; ++dy) line = std::fma(wy[dy], rows[dy][c], line);
        columns[c] = std::fma(wz[dz], line, columns[c]);
      }
    }
  }

  FieldWork work_;
  gather::Map to_grid_;
  gather::FieldView<V> view_;
  double linear_[3][3];
  LinearSampler<V, V> points_;
  TapSampler<Interpolation::bspline3, V, V> coefficients_;
};

}  // namespace

}  // namespace volpipe::cpu
