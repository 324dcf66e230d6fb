// Where the tiles of an adaptive equalization lie, what levels are, and the map of a tile: one definition for both
// devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/host_device.h"

namespace volpipe {

inline constexpr int kClaheLevels = 1 << 14;

/// Values as levels, levels as bins.
struct ClaheLevels {
  double low = 0, range = 1;  ///< values from low to low + range are all levels
  int bins = 256, width = 65;

  ClaheLevels(double least, double greatest, int bin_count)
      : low(least), range(greatest - least), bins(bin_count), width(1 + kClaheLevels / bin_count) {}
  /// Of any value but NaN; those beyond the range have the levels of its ends.
  VOLPIPE_HD int bin_of(double value) const {
    const double level = std::rint((value - low) / range * (kClaheLevels - 1));
    const int whole = level < kClaheLevels - 1 ? (level > 0 ? int(level) : 0) : kClaheLevels - 1;
    return whole / width;
  }
};

/// One axis cut into tiles, the last of which may reach beyond the end; voxels there are mirrored ones. A cell is where
/// the same two tiles are the nearest.
struct ClaheAxis {
  std::int64_t size = 1, tile = 1, tiles = 1;

  ClaheAxis() = default;
  ClaheAxis(std::int64_t voxels, std::int64_t tile_voxels)
      : size(voxels), tile(tile_voxels), tiles((voxels + tile_voxels - 1) / tile_voxels) {}

  /// Tiles of one voxel: each is its voxel's only one.
  VOLPIPE_HD bool apart() const { return tile == 1; }
  VOLPIPE_HD std::int64_t cells() const { return apart() ? tiles : tiles + 1; }
  VOLPIPE_HD std::int64_t cell_of(std::int64_t i) const { return (i + tile / 2) / tile; }
  VOLPIPE_HD std::int64_t cell_begin(std::int64_t cell) const {
    const std::int64_t begin = cell * tile - tile / 2;
    return begin < 0 ? 0 : begin < size ? begin : size;
  }
  VOLPIPE_HD std::int64_t lower(std::int64_t cell) const { return apart() || cell == 0 ? cell : cell - 1; }
  VOLPIPE_HD std::int64_t upper(std::int64_t cell) const { return cell < tiles ? cell : tiles - 1; }
  /// How much the upper tile counts at voxel i of a cell, of `tile`.
  VOLPIPE_HD std::int64_t weight(std::int64_t i, std::int64_t cell) const { return i + tile / 2 - cell * tile; }
  /// The voxel at place i of the tiles, which may lie beyond the end by less than the axis.
  VOLPIPE_HD std::int64_t mirrored(std::int64_t i) const { return i < size ? i : 2 * (size - 1) - i; }
};

struct ClaheGrid {
  ClaheAxis x, y, z;

  VOLPIPE_HD std::int64_t tiles() const { return x.tiles * y.tiles * z.tiles; }
  VOLPIPE_HD std::int64_t cells() const { return x.cells() * y.cells() * z.cells(); }
  VOLPIPE_HD std::int64_t tile_voxels() const { return x.tile * y.tile * z.tile; }
  VOLPIPE_HD std::int64_t voxel(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return (k * y.size + j) * x.size + i;
  }
  VOLPIPE_HD std::int64_t tile_number(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return (k * y.tiles + j) * x.tiles + i;
  }
};

/// The eight tiles nearest to the voxels of a cell; bit 0 of the number: the upper one along x, bit 1 y, bit 2 z.
struct ClaheCorners {
  std::int64_t tile[8];

  VOLPIPE_HD ClaheCorners(const ClaheGrid& grid, std::int64_t x, std::int64_t y, std::int64_t z) {
    for (int corner = 0; corner < 8; ++corner)
      tile[corner] = grid.tile_number(corner & 1 ? grid.x.upper(x) : grid.x.lower(x),
                                      corner & 2 ? grid.y.upper(y) : grid.y.lower(y),
                                      corner & 4 ? grid.z.upper(z) : grid.z.lower(z));
  }
};

/// Trilinear weights of a row along x, in whole numbers that add up to the voxels of a tile. Whole is an unsigned type
/// that holds kClaheLevels times that.
template <class Whole>
struct ClaheRow {
  Whole pair[4];  ///< of the corners with bits 1 and 2
  Whole tile;

  /// Row (j, k), in the cells y and z.
  VOLPIPE_HD ClaheRow(const ClaheGrid& grid, std::int64_t j, std::int64_t y, std::int64_t k, std::int64_t z)
      : tile(Whole(grid.x.tile)) {
    const Whole upper_y = Whole(grid.y.weight(j, y)), upper_z = Whole(grid.z.weight(k, z));
    const Whole lower_y = Whole(grid.y.tile) - upper_y, lower_z = Whole(grid.z.tile) - upper_z;
    pair[0] = lower_y * lower_z;
    pair[1] = upper_y * lower_z;
    pair[2] = lower_y * upper_z;
    pair[3] = upper_y * upper_z;
  }

  /// The level between the corners' levels at weight `x` of the upper ones, times the voxels of a tile: exact.
  VOLPIPE_HD Whole between(const std::uint16_t (&levels)[8], Whole x) const {
    Whole lower = 0, upper = 0;
    for (int p = 0; p < 4; ++p) {
      lower += pair[p] * levels[2 * p];
      upper += pair[p] * levels[2 * p + 1];
    }
    return lower * (tile - x) + upper * x;
  }
};

/// Cuts the bins of a tile at `limit` counts and gives what was cut to the bins below it (Zuiderveld 1994, with
/// scikit-image's order): first the same to each, then, while there are more left over, one each to bins spread evenly.
/// Team::sum(bins, f) calls f for every bin, in parallel or not, and gives the sum of the results to all.
template <class Team>
VOLPIPE_HD void clip_counts(const Team& team, std::uint32_t* counts, int bins, std::int64_t limit) {
  std::int64_t left = team.sum(bins, [=](int bin) -> std::int64_t {
    if (counts[bin] <= limit) return 0;
    const std::int64_t excess = counts[bin] - limit;
    counts[bin] = std::uint32_t(limit);
    return excess;
  });
  const std::int64_t each = left / bins, nearly = limit - each;
  left -= team.sum(bins, [=](int bin) -> std::int64_t {
    const std::int64_t before = counts[bin];
    std::int64_t after = before < nearly ? before + each : before;
    if (after >= nearly && after < limit) after = limit;
    counts[bin] = std::uint32_t(after);
    return after - before;
  });
  while (left > 0) {
    const std::int64_t before = left;
    for (int first = 0; first < bins && left > 0; ++first) {
      const std::int64_t below = team.sum(bins, [=](int bin) -> std::int64_t { return counts[bin] < limit; });
      const std::int64_t step = below / left > 1 ? below / left : 1;
      left -= team.sum(bins, [=](int bin) -> std::int64_t {
        if (bin < first || (bin - first) % step != 0 || counts[bin] >= limit) return 0;
        ++counts[bin];
        return 1;
      });
    }
    if (left == before) return;
  }
}

/// Turns the counts of a tile into its map, level[bin]. Team::running(bins, f, g) calls g(bin, sum of f over the bins
/// up to this one).
template <class Team>
VOLPIPE_HD void map_counts(const Team& team, std::uint32_t* counts, int bins, double clip_limit, std::uint16_t* map) {
  std::int64_t total = team.sum(bins, [=](int bin) -> std::int64_t { return counts[bin]; });
  if (total == 0)
    total = team.sum(bins, [=](int bin) -> std::int64_t {
      counts[bin] = 1;
      return 1;
    });
  else if (clip_limit > 0) {
    const double limit = clip_limit * double(total);
    if (limit < double(total)) clip_counts(team, counts, bins, limit > 1 ? std::int64_t(limit) : 1);
  }
  const double scale = (kClaheLevels - 1) / double(total);
  team.running(
      bins, [=](int bin) -> std::int64_t { return counts[bin]; },
      [=](int bin, std::int64_t sum) {
        const double level = double(sum) * scale;
        map[bin] = std::uint16_t(level < kClaheLevels - 1 ? level : kClaheLevels - 1);
      });
}

}  // namespace volpipe
