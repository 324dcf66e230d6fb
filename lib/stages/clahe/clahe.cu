#include "device/cuda_context.h"
#include "stages/clahe/clahe.h"
#include "stages/separable/any_voxels.cuh"

namespace volpipe::cuda {

namespace {

constexpr int kThreads = 256;

/// All threads of a block share the bins of one tile.
struct BlockTeam {
  std::int64_t* scratch;  ///< kThreads numbers, shared

  template <class F>
  __device__ std::int64_t sum(int bins, const F& f) const {
    std::int64_t mine = 0;
    for (int bin = threadIdx.x; bin < bins; bin += kThreads) mine += f(bin);
    scratch[threadIdx.x] = mine;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
      __syncthreads();
    }
    const std::int64_t total = scratch[0];
    __syncthreads();
    return total;
  }

  /// Each thread takes a run of bins.
  template <class F, class G>
  __device__ void running(int bins, const F& f, const G& g) const {
    const int run = (bins + kThreads - 1) / kThreads, begin = min(int(threadIdx.x) * run, bins);
    const int end = min(begin + run, bins);
    std::int64_t mine = 0;
    for (int bin = begin; bin < end; ++bin) mine += f(bin);
    scratch[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      const std::int64_t before = threadIdx.x >= step ? scratch[threadIdx.x - step] : 0;
      __syncthreads();
      scratch[threadIdx.x] += before;
      __syncthreads();
    }
    std::int64_t total = scratch[threadIdx.x] - mine;
    for (int bin = begin; bin < end; ++bin) g(bin, total += f(bin));
  }
};

struct CountKernel {
  ClaheGrid grid;
  ClaheLevels levels;
  AnyVoxels values, decider;
  SelectVoxel select;
  std::int64_t pieces, rows_per_piece;  ///< a tile's rows along x are taken in pieces
  int copies;                           ///< of the counts, so that a warp's threads meet less often
  std::uint32_t* counts;
};

/// Block `tile * pieces + piece`.
__global__ void __launch_bounds__(kThreads) count_kernel(CountKernel kernel) {
  extern __shared__ std::uint32_t shared_counts[];
  const ClaheGrid& grid = kernel.grid;
  const int bins = kernel.levels.bins, copies = kernel.copies;
  for (int i = threadIdx.x; i < bins * copies; i += kThreads) shared_counts[i] = 0;
  __syncthreads();

  const std::int64_t tile = blockIdx.x / kernel.pieces, piece = blockIdx.x % kernel.pieces;
  const std::int64_t x0 = tile % grid.x.tiles * grid.x.tile, y0 = tile / grid.x.tiles % grid.y.tiles * grid.y.tile;
  const std::int64_t z0 = tile / grid.x.tiles / grid.y.tiles * grid.z.tile;
  const std::int64_t first = piece * kernel.rows_per_piece, rows = grid.y.tile * grid.z.tile;
  const std::int64_t last = min(first + kernel.rows_per_piece, rows);
  const auto width = std::uint32_t(grid.x.tile), count = std::uint32_t((last - first) * grid.x.tile);
  const bool selects = kernel.select.kind != Selection::Kind::all;
  std::uint32_t* mine = shared_counts + threadIdx.x % copies;
  kernel.values.visit([&](const auto* values) {
    for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) {
      const std::int64_t row = first + i / width;
      const std::int64_t voxel = grid.voxel(grid.x.mirrored(x0 + i % width),
                                            grid.y.mirrored(y0 + std::uint32_t(row) % std::uint32_t(grid.y.tile)),
                                            grid.z.mirrored(z0 + std::uint32_t(row) / std::uint32_t(grid.y.tile)));
      const double value = double(values[voxel]);
      bool counts = isfinite(value);
      if (selects && counts)
        kernel.decider.visit([&](const auto* decider) { counts = kernel.select(double(decider[voxel])); });
      if (counts) atomicAdd(mine + kernel.levels.bin_of(value) * copies, 1u);
    }
  });
  __syncthreads();
  for (int bin = threadIdx.x; bin < bins; bin += kThreads) {
    std::uint32_t sum = 0;
    for (int copy = 0; copy < copies; ++copy) sum += shared_counts[bin * copies + copy];
    if (sum) atomicAdd(kernel.counts + tile * bins + bin, sum);
  }
}

/// A block a tile.
__global__ void __launch_bounds__(kThreads)
    map_kernel(std::uint32_t* counts, int bins, double clip_limit, std::uint16_t* maps) {
  __shared__ std::int64_t scratch[kThreads];
  map_counts(BlockTeam{scratch}, counts + blockIdx.x * std::int64_t(bins), bins, clip_limit,
             maps + blockIdx.x * std::int64_t(bins));
}

struct InterpolateKernel {
  ClaheGrid grid;
  ClaheLevels levels;
  AnyVoxels values;
  const std::uint16_t* maps;
  double share;                           ///< 1 / voxels of a tile
  std::int64_t slices_per_block, pieces;  ///< a cell's slices are taken in pieces
};

/// A voxel's cell along each axis.
struct Cell {
  std::int64_t x, y, z;
};

/// Of voxel (i, j, k); load(bin, levels) gives what the maps of its cell's corners say.
template <class Whole, class T, class Output, class Load>
__device__ __forceinline__ void write_level(const InterpolateKernel& kernel, const Cell& cell, std::int64_t i,
                                            std::int64_t j, std::int64_t k, const T* values, Output* output,
                                            const Load& load) {
  const ClaheGrid& grid = kernel.grid;
  const std::int64_t voxel = grid.voxel(i, j, k);
  const T value = values[voxel];
  if (value != value) {
    output[voxel] = Output(value);
    return;
  }
  std::uint16_t levels[8];
  load(kernel.levels.bin_of(double(value)), levels);
  const ClaheRow<Whole> row(grid, j, cell.y, k, cell.z);
  output[voxel] = Output(double(row.between(levels, Whole(grid.x.weight(i, cell.x)))) * kernel.share);
}

/// Block `cell * pieces + piece`: the maps of the cell's corners lie side by side in shared memory.
template <class Whole, class Output>
__global__ void __launch_bounds__(kThreads) cell_kernel(InterpolateKernel kernel, Output* output) {
  extern __shared__ uint4 shared_maps[];
  const ClaheGrid& grid = kernel.grid;
  const std::int64_t cell = blockIdx.x / kernel.pieces, piece = blockIdx.x % kernel.pieces;
  const Cell at{cell % grid.x.cells(), cell / grid.x.cells() % grid.y.cells(), cell / grid.x.cells() / grid.y.cells()};
  const std::int64_t x0 = grid.x.cell_begin(at.x), y0 = grid.y.cell_begin(at.y);
  const std::int64_t z0 = grid.z.cell_begin(at.z) + piece * kernel.slices_per_block;
  const auto width = std::uint32_t(grid.x.cell_begin(at.x + 1) - x0);
  const auto height = std::uint32_t(grid.y.cell_begin(at.y + 1) - y0);
  const std::int64_t depth = min(kernel.slices_per_block, grid.z.cell_begin(at.z + 1) - z0);
  if (width == 0 || height == 0 || depth <= 0) return;

  const ClaheCorners corners(grid, at.x, at.y, at.z);
  const int bins = kernel.levels.bins;
  for (int bin = threadIdx.x; bin < bins; bin += kThreads) {
    std::uint32_t words[4];
    for (int p = 0; p < 4; ++p)
      words[p] = kernel.maps[corners.tile[2 * p] * bins + bin] |
                 std::uint32_t(kernel.maps[corners.tile[2 * p + 1] * bins + bin]) << 16;
    shared_maps[bin] = make_uint4(words[0], words[1], words[2], words[3]);
  }
  __syncthreads();

  const auto load = [](int bin, std::uint16_t(&levels)[8]) {
    const uint4 packed = shared_maps[bin];
    const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
    for (int p = 0; p < 4; ++p) {
      levels[2 * p] = std::uint16_t(words[p]);
      levels[2 * p + 1] = std::uint16_t(words[p] >> 16);
    }
  };
  kernel.values.visit([&](const auto* values) {
    for (std::uint32_t n = threadIdx.x, count = width * height * std::uint32_t(depth); n < count; n += kThreads) {
      const std::uint32_t line = n / width;
      write_level<Whole>(kernel, at, x0 + n % width, y0 + line % height, z0 + line / height, values, output, load);
    }
  });
}

/// For cells too small to be worth a block.
template <class Output>
struct InterpolateVoxel {
  InterpolateKernel kernel;
  Output* output;

  __device__ void operator()(std::int64_t voxel) const {
    const ClaheGrid& grid = kernel.grid;
    const std::int64_t i = voxel % grid.x.size, j = voxel / grid.x.size % grid.y.size;
    const std::int64_t k = voxel / grid.x.size / grid.y.size;
    const Cell cell{grid.x.cell_of(i), grid.y.cell_of(j), grid.z.cell_of(k)};
    const ClaheCorners corners(grid, cell.x, cell.y, cell.z);
    const auto load = [&](int bin, std::uint16_t(&levels)[8]) {
      for (int corner = 0; corner < 8; ++corner)
        levels[corner] = kernel.maps[corners.tile[corner] * kernel.levels.bins + bin];
    };
    kernel.values.visit(
        [&](const auto* values) { write_level<std::uint64_t>(kernel, cell, i, j, k, values, output, load); });
  }
};

template <class Output>
void interpolate(DeviceContext& context, InterpolateKernel kernel, Output* output) {
  const ClaheGrid& grid = kernel.grid;
  constexpr std::int64_t kLeastVoxels = 2048, kVoxels = 8192;
  const std::int64_t slice = grid.x.tile * grid.y.tile;
  if (grid.x.tile < 8 || grid.tile_voxels() < kLeastVoxels) {
    for_each(context, grid.x.size * grid.y.size * grid.z.size, InterpolateVoxel<Output>{kernel, output});
    return;
  }
  kernel.slices_per_block = std::clamp<std::int64_t>(kVoxels / slice, 1, grid.z.tile);
  kernel.pieces = divide_up(grid.z.tile, kernel.slices_per_block);
  const auto launch = [&](auto launched) {
    launched<<<unsigned(grid.cells() * kernel.pieces), kThreads, std::size_t(kernel.levels.bins) * sizeof(uint4),
               stream_of(context)>>>(kernel, output);
    VOLPIPE_CHECK_CUDA(cudaGetLastError());
  };
  if (std::uint64_t(kClaheLevels) * std::uint64_t(grid.tile_voxels()) >> 32 == 0)
    launch(cell_kernel<std::uint32_t, Output>);
  else launch(cell_kernel<std::uint64_t, Output>);
}

}  // namespace

void clahe_maps(DeviceContext& context, const ClaheWork& work, std::uint32_t* counts, std::uint16_t* maps) {
  const ClaheGrid& grid = work.grid;
  const int bins = work.levels.bins;
  const cudaStream_t stream = stream_of(context);
  VOLPIPE_CHECK_CUDA(cudaMemsetAsync(counts, 0, 2 * clahe_map_bytes(grid, work.levels), stream));

  constexpr std::int64_t kVoxels = 16384;
  const std::int64_t rows = grid.y.tile * grid.z.tile;
  const std::int64_t rows_per_piece = std::clamp<std::int64_t>(kVoxels / grid.x.tile, 1, rows);
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  const int copies = std::clamp(4096 / bins, 1, 8);
  const CountKernel kernel{grid,
                           work.levels,
                           {work.values.data, work.values.dtype},
                           {work.decider.data, work.decider.dtype},
                           work.select,
                           pieces,
                           rows_per_piece,
                           copies,
                           counts};
  count_kernel<<<unsigned(grid.tiles() * pieces), kThreads, std::size_t(bins * copies) * sizeof(std::uint32_t),
                 stream>>>(kernel);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
  map_kernel<<<unsigned(grid.tiles()), kThreads, 0, stream>>>(counts, bins, work.clip_limit, maps);
  VOLPIPE_CHECK_CUDA(cudaGetLastError());
}

void clahe_interpolate(DeviceContext& context, const ClaheWork& work, const std::uint16_t* maps, void* output,
                       DataType type) {
  const InterpolateKernel kernel{
      work.grid, work.levels, {work.values.data, work.values.dtype}, maps, 1 / double(work.grid.tile_voxels()), 1, 1};
  if (type == DataType::float32) interpolate(context, kernel, static_cast<float*>(output));
  else interpolate(context, kernel, static_cast<double*>(output));
}

}  // namespace volpipe::cuda
