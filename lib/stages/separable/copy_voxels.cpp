#include <algorithm>
#include <cstring>

#include "stages/separable/executors.h"

namespace volpipe::cpu {

namespace {

/// A stretch of target voxels along x with one rule.
struct Run {
  enum class Kind : std::uint8_t { forward, backward, repeat, fill } kind;
  std::int64_t begin, length, source;
};

std::int64_t run_length(const std::vector<std::int32_t>& index, std::size_t begin, std::int32_t step) {
  std::size_t end = begin + 1;
  while (end < index.size() && index[end] == index[end - 1] + step) ++end;
  return std::int64_t(end - begin);
}

std::vector<Run> runs_of(const std::vector<std::int32_t>& index) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < index.size();) {
    Run run{Run::Kind::fill, std::int64_t(i), 1, index[i]};
    if (index[i] < 0) {
      run.length = run_length(index, i, 0);
    } else {
      run.kind = Run::Kind::forward;
      run.length = run_length(index, i, 1);
      for (const auto& [kind, step] : {std::pair{Run::Kind::backward, -1}, std::pair{Run::Kind::repeat, 0}}) {
        std::int64_t length = run_length(index, i, step);
        if (step < 0 && length > 1 && index[i + std::size_t(length) - 1] < 0) --length;
        if (length > run.length) run = {kind, std::int64_t(i), length, index[i]};
      }
    }
    runs.push_back(run);
    i += std::size_t(run.length);
  }
  return runs;
}

template <class T>
void copy_run(const Run& run, const T* source, T fill, T* target) {
  target += run.begin;
  source += run.source;
  switch (run.kind) {
    case Run::Kind::forward:
      std::memcpy(target, source, std::size_t(run.length) * sizeof(T));
      break;
    case Run::Kind::backward:
      for (std::int64_t i = 0; i < run.length; ++i) target[i] = source[-i];
      break;
    case Run::Kind::repeat:
      std::fill_n(target, run.length, *source);
      break;
    case Run::Kind::fill:
      std::fill_n(target, run.length, fill);
      break;
  }
}

template <class T>
class Copier {
 public:
  Copier(const CopyWork& work, const void* input, void* output)
      : work_(work), input_(static_cast<const T*>(input)), output_(static_cast<T*>(output)) {
    std::memcpy(&fill_, &work.fill_bits, sizeof(T));
    const Index3& n = work.source_size;
    const Index3 stride{1, n[0], n[0] * n[1]};
    for (std::size_t axis = 0; axis < 3; ++axis) stride_[axis] = stride[std::size_t(work.source_axis[axis])];
    fills_columns_ = std::any_of(work.index[0].begin(), work.index[0].end(), [](std::int32_t i) { return i < 0; });
    source_voxels_ = n[0] * n[1] * n[2];
    target_voxels_ = work.target_size[0] * work.target_size[1] * work.target_size[2];
  }

  void run(DeviceContext& context) const {
    if (work_.source_axis[0] == 0) copy_rows(context);
    else transpose(context);
  }

 private:
  static constexpr std::int64_t kLine = 64 / sizeof(T);
  static constexpr std::int64_t kBand = 64, kGroup = 8, kWidth = 8 * kLine;

  void copy_rows(DeviceContext& context) const {
    const auto [columns, rows, planes] = work_.target_size;
    const std::vector<Run> runs = runs_of(work_.index[0]);
    const bool long_runs = std::int64_t(runs.size()) * 8 <= columns || runs.size() == 1;
    const std::int64_t grain = std::max<std::int64_t>(1, 65536 / columns);
    context.parallel(rows * planes * work_.components, grain,
                     [&, columns = columns, rows = rows, planes = planes](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t row = begin; row < end; ++row) {
                         const std::int32_t y = work_.index[1][std::size_t(row % rows)];
                         const std::int32_t z = work_.index[2][std::size_t(row / rows % planes)];
                         T* target = output_ + row * columns;
                         if (y < 0 || z < 0) {
                           std::fill_n(target, columns, fill_);
                           continue;
                         }
                         const T* source =
                             input_ + row / (rows * planes) * source_voxels_ + y * stride_[1] + z * stride_[2];
                         if (long_runs) {
                           for (const Run& run : runs) copy_run(run, source, fill_, target);
                         } else {
                           gather_row(source, target);
                         }
                       }
                     });
  }

  void gather_row(const T* source, T* __restrict target) const {
    const std::int32_t* __restrict index = work_.index[0].data();
    const std::int64_t columns = work_.target_size[0];
    if (fills_columns_)
      for (std::int64_t x = 0; x < columns; ++x) target[x] = index[x] < 0 ? fill_ : source[index[x]];
    else
      for (std::int64_t x = 0; x < columns; ++x) target[x] = source[index[x]];
  }

  /// Tiles of the plane spanned by the target's x and the target axis that runs along the source's x. A tile turns in a
  /// buffer of its own, so that both volumes are met in pieces of several cache lines, each once: lines a power of two
  /// apart push each other out of the caches. The next tile's lines are asked for ahead.
  void transpose(DeviceContext& context) const {
    const std::size_t along = work_.source_axis[1] == 0 ? 1 : 2;
    const std::size_t other = 3 - along;
    const Index3& size = work_.target_size;
    const std::int64_t bands = (size[along] + kBand - 1) / kBand, groups = (size[other] + kGroup - 1) / kGroup;
    context.parallel(bands * groups * work_.components, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t c = piece / (bands * groups);
        const std::int64_t first = piece % bands * kBand, group = piece / bands % groups * kGroup;
        transpose_block({along, first, std::min(first + kBand, size[along])}, {other, group, std::min(group + kGroup, size[other])},
                        input_ + c * source_voxels_, output_ + c * target_voxels_);
      }
    });
  }

  struct Stretch { std::size_t axis; std::int64_t begin, end; };  ///< of a target axis

  void transpose_block(const Stretch& along, const Stretch& other, const T* input, T* output) const {
    const Index3& size = work_.target_size;
    const Index3 target_stride{1, size[0], size[0] * size[1]};
    const std::int32_t* rows = work_.index[along.axis].data() + along.begin;
    const std::int64_t count = along.end - along.begin;
    T tile[kBand][kWidth + kLine];
    for (std::int64_t x = 0; x < size[0]; x += kWidth) {
      const std::int64_t width = std::min(kWidth, size[0] - x);
      for (std::int64_t o = other.begin; o < other.end; ++o) {
        const T* next = o + 1 < other.end ? plane(input, other.axis, o + 1) : nullptr;
        turn(plane(input, other.axis, o), next, work_.index[0].data() + x, width, rows, count, tile);
        T* target = output + o * target_stride[other.axis] + along.begin * target_stride[along.axis] + x;
        for (std::int64_t a = 0; a < count; ++a) std::copy_n(tile[a], width, target + a * target_stride[along.axis]);
      }
    }
  }

  /// Where the source of position o of a target axis begins; null: fill.
  const T* plane(const T* input, std::size_t axis, std::int64_t o) const {
    const std::int32_t index = work_.index[axis][std::size_t(o)];
    return index < 0 ? nullptr : input + index * stride_[axis];
  }

  void turn(const T* source, const T* next, const std::int32_t* columns, std::int64_t width, const std::int32_t* rows, std::int64_t count,
            T (*tile)[kWidth + kLine]) const {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t offset = columns[x] * stride_[0];
      if (next && columns[x] >= 0)
        for (std::int64_t a = 0; a < count; a += kLine) __builtin_prefetch(next + offset + std::max(rows[a], 0));
      if (source && columns[x] >= 0)
        for (std::int64_t a = 0; a < count; ++a) tile[a][x] = rows[a] < 0 ? fill_ : source[offset + rows[a]];
      else
        for (std::int64_t a = 0; a < count; ++a) tile[a][x] = fill_;
    }
  }

  const CopyWork& work_;
  const T* input_;
  T* output_;
  T fill_{};
  bool fills_columns_ = false;
  Index3 stride_{};
  std::int64_t source_voxels_ = 0, target_voxels_ = 0;
};

}  // namespace

void copy_voxels(DeviceContext& context, const CopyWork& work, const void* input, void* output) {
  switch (work.element_bytes) {
    case 1:
      return Copier<std::uint8_t>(work, input, output).run(context);
    case 2:
      return Copier<std::uint16_t>(work, input, output).run(context);
    case 4:
      return Copier<std::uint32_t>(work, input, output).run(context);
    default:
      return Copier<std::uint64_t>(work, input, output).run(context);
  }
}

}  // namespace volpipe::cpu
