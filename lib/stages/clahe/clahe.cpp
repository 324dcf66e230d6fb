#include "stages/clahe/clahe.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "volume/error.h"

namespace volpipe {

std::size_t clahe_map_bytes(const ClaheGrid& grid, const ClaheLevels& levels) {
  return std::size_t(grid.tiles()) * std::size_t(levels.bins) * sizeof(std::uint16_t);
}

std::size_t clahe_scratch_bytes(const ClaheGrid& grid, const ClaheLevels& levels) {
  return 3 * clahe_map_bytes(grid, levels);  // counts have 32 bits
}

void clahe_levels(DeviceContext& context, const ClaheWork& work, void* output, DataType type) {
  if (double(work.grid.x.tile) * double(work.grid.y.tile) * double(work.grid.z.tile) > double(~std::uint32_t(0)))
    throw Error(ErrorCode::unsupported, "a tile of 2^32 voxels or more cannot be counted: give a smaller 'kernel'");
  Buffer maps = context.allocate(clahe_map_bytes(work.grid, work.levels));
  auto* map = static_cast<std::uint16_t*>(maps.data());
  {
    Buffer counts = context.allocate(2 * clahe_map_bytes(work.grid, work.levels));
    run_on(context, cpu::clahe_maps, cuda::clahe_maps, work, static_cast<std::uint32_t*>(counts.data()), map);
  }
  run_on(context, cpu::clahe_interpolate, cuda::clahe_interpolate, work, map, output, type);
}

namespace cpu {

namespace {

/// One thread does all.
struct Alone {
  template <class F>
  std::int64_t sum(int bins, const F& f) const {
    std::int64_t total = 0;
    for (int bin = 0; bin < bins; ++bin) total += f(bin);
    return total;
  }
  template <class F, class G>
  void running(int bins, const F& f, const G& g) const {
    std::int64_t total = 0;
    for (int bin = 0; bin < bins; ++bin) g(bin, total += f(bin));
  }
};

/// Which voxels [voxel, voxel + count) are counted.
void select_row(const ClaheWork& work, std::int64_t voxel, std::int64_t count, std::uint8_t* selected) {
  visit(work.decider.dtype, [&]<class Tag>(Tag) {
    const auto* decider = static_cast<const typename Tag::type*>(work.decider.data) + voxel;
    for (std::int64_t i = 0; i < count; ++i) selected[i] = work.select(double(decider[i]));
  });
}

/// Counts slices [begin, end) of a tile into `counts`.
template <class T>
void count_slices(const ClaheWork& work, const T* values, std::int64_t tile, std::int64_t begin, std::int64_t end,
                  std::vector<std::uint32_t>& counts) {
  const ClaheGrid& grid = work.grid;
  const std::int64_t x0 = tile % grid.x.tiles * grid.x.tile, y0 = tile / grid.x.tiles % grid.y.tiles * grid.y.tile;
  const std::int64_t z0 = tile / grid.x.tiles / grid.y.tiles * grid.z.tile;
  const bool selects = work.select.kind != Selection::Kind::all;
  std::vector<std::uint8_t> selected(std::size_t(grid.x.size), 1);
  for (std::int64_t z = begin; z < end; ++z)
    for (std::int64_t y = 0; y < grid.y.tile; ++y) {
      const std::int64_t row = grid.voxel(0, grid.y.mirrored(y0 + y), grid.z.mirrored(z0 + z));
      if (selects) select_row(work, row, grid.x.size, selected.data());
      for (std::int64_t place = x0; place < x0 + grid.x.tile; ++place) {
        const std::int64_t x = grid.x.mirrored(place);
        const auto value = double(values[row + x]);
        if (std::isfinite(value) && selected[std::size_t(x)]) ++counts[std::size_t(work.levels.bin_of(value))];
      }
    }
}

/// Slices of a tile that are worth a piece of work.
std::int64_t slices_per_piece(const ClaheGrid& grid) {
  constexpr std::int64_t kVoxels = 65536;
  return std::clamp<std::int64_t>(kVoxels / (grid.x.tile * grid.y.tile), 1, grid.z.tile);
}

}  // namespace

void clahe_maps(DeviceContext& context, const ClaheWork& work, std::uint32_t* counts, std::uint16_t* maps) {
  const ClaheGrid& grid = work.grid;
  const int bins = work.levels.bins;
  const std::int64_t slices = slices_per_piece(grid), pieces = (grid.z.tile + slices - 1) / slices;
  std::fill_n(counts, grid.tiles() * bins, 0u);
  visit(work.values.dtype, [&]<class Tag>(Tag) {
    const auto* values = static_cast<const typename Tag::type*>(work.values.data);
    context.parallel(grid.tiles() * pieces, 1, [&](std::int64_t piece, std::int64_t) {
      std::vector<std::uint32_t> found(static_cast<std::size_t>(bins));
      const std::int64_t tile = piece / pieces, begin = piece % pieces * slices;
      count_slices(work, values, tile, begin, std::min(begin + slices, grid.z.tile), found);
      for (int bin = 0; bin < bins; ++bin)
        if (found[std::size_t(bin)])
          std::atomic_ref(counts[tile * bins + bin]).fetch_add(found[std::size_t(bin)], std::memory_order_relaxed);
    });
  });
  context.parallel(grid.tiles(), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile)
      map_counts(Alone{}, counts + tile * bins, bins, work.clip_limit, maps + tile * bins);
  });
}

namespace {

template <class T, class Output>
void interpolate_row(const ClaheWork& work, const std::uint16_t* maps, const T* values, std::int64_t j, std::int64_t k,
                     Output* output) {
  const ClaheGrid& grid = work.grid;
  const std::int64_t start = grid.voxel(0, j, k), cell_y = grid.y.cell_of(j), cell_z = grid.z.cell_of(k);
  const ClaheRow<std::uint64_t> row(grid, j, cell_y, k, cell_z);
  const double share = 1 / double(grid.tile_voxels());
  for (std::int64_t cell = 0; cell < grid.x.cells(); ++cell) {
    const ClaheCorners corners(grid, cell, cell_y, cell_z);
    const std::uint16_t* map[8];
    for (int corner = 0; corner < 8; ++corner) map[corner] = maps + corners.tile[corner] * work.levels.bins;
    for (std::int64_t i = grid.x.cell_begin(cell), end = grid.x.cell_begin(cell + 1); i < end; ++i) {
      const T value = values[start + i];
      if (value != value) {
        output[start + i] = Output(value);
        continue;
      }
      const int bin = work.levels.bin_of(double(value));
      std::uint16_t levels[8];
      for (int corner = 0; corner < 8; ++corner) levels[corner] = map[corner][bin];
      output[start + i] = Output(double(row.between(levels, std::uint64_t(grid.x.weight(i, cell)))) * share);
    }
  }
}

}  // namespace

void clahe_interpolate(DeviceContext& context, const ClaheWork& work, const std::uint16_t* maps, void* output,
                       DataType type) {
  const ClaheGrid& grid = work.grid;
  visit(work.values.dtype, [&]<class Tag>(Tag) {
    const auto* values = static_cast<const typename Tag::type*>(work.values.data);
    context.parallel(grid.y.size * grid.z.size, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t j = line % grid.y.size, k = line / grid.y.size;
        if (type == DataType::float32) interpolate_row(work, maps, values, j, k, static_cast<float*>(output));
        else interpolate_row(work, maps, values, j, k, static_cast<double*>(output));
      }
    });
  });
}

}  // namespace cpu

}  // namespace volpipe
