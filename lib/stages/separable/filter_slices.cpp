#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "stages/separable/executors.h"

namespace volpipe::cpu {

namespace {

constexpr int kLanes = 8;
constexpr std::int64_t kCacheBytes = 512 * 1024;

template <class A>
struct Vector;
template <>
struct Vector<float> {
  typedef float type __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));
};
template <>
struct Vector<double> {
  typedef double type __attribute__((vector_size(kLanes * sizeof(double)), aligned(alignof(double)), may_alias));
};

/// A vector at any address. A member, because clang forgets the alignment of a vector type that a template hands on.
template <class A>
struct [[gnu::may_alias]] Lanes {
  typename Vector<A>::type value;
};
template <class A>
Lanes<A>& lanes(A* values) {
  return *reinterpret_cast<Lanes<A>*>(values);
}
template <class A>
const Lanes<A>& lanes(const A* values) {
  return *reinterpret_cast<const Lanes<A>*>(values);
}

/// An axis matrix in the arithmetic's type, rows trimmed to their nonzero ends.
template <class A>
class Weights {
 public:
  struct Row {
    std::int64_t start;
    int count;
    const A* weights;
    A fill;
  };

  Weights(const AxisMatrix& matrix, double fill) : values_(matrix.weights().begin(), matrix.weights().end()) {
    const int taps = matrix.taps();
    for (std::int64_t j = 0; j < matrix.output_size(); ++j) {
      const A* weights = values_.data() + j * taps;
      int first = 0, last = taps;
      while (last > 0 && weights[last - 1] == 0) --last;
      while (first < last && weights[first] == 0) ++first;
      const double share = matrix.fill_weights()[std::size_t(j)];
      rows_.push_back({matrix.start()[std::size_t(j)] + first, last - first, weights + first,
                       share == 0 ? A(0) : A(share) * A(fill)});
    }
  }

  std::int64_t size() const { return std::int64_t(rows_.size()); }
  const Row& row(std::int64_t j) const { return rows_[std::size_t(j)]; }

  /// The window (not yet folded by the period) that rows [begin, end) read.
  std::pair<std::int64_t, std::int64_t> window(std::int64_t begin, std::int64_t end) const {
    std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      if (row(j).count == 0) continue;
      low = std::min(low, row(j).start);
      high = std::max(high, row(j).start + row(j).count);
    }
    return high == 0 ? std::pair<std::int64_t, std::int64_t>{0, 0} : std::pair{low, high};
  }

 private:
  std::vector<A> values_;
  std::vector<Row> rows_;
};

template <class T, class A>
void convert(const T* source, std::int64_t count, A* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = A(source[i]);
}

/// Columns [begin, begin + count) of a row of `size`, taken modulo the size.
template <class T, class A>
void load_columns(const T* row, std::int64_t size, std::int64_t begin, std::int64_t count, A* target) {
  while (count > 0) {
    const std::int64_t at = begin % size;
    const std::int64_t piece = std::min(count, size - at);
    convert(row + at, piece, target);
    target += piece;
    begin += piece;
    count -= piece;
  }
}

inline void transpose8(const float* source, std::int64_t source_stride, float* target, std::int64_t target_stride) {
  using V = Vector<float>::type;
  V r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = lanes(source + i * source_stride).value;
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    r[i + 2] = __builtin_shufflevector(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    r[i + 3] = __builtin_shufflevector(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    lanes(target + i * target_stride).value = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    lanes(target + (i + 4) * target_stride).value = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

inline void transpose8(const double* source, std::int64_t source_stride, double* target, std::int64_t target_stride) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) target[i * target_stride + j] = source[j * source_stride + i];
}

/// target[i] = the row's weighted sum of source[t * stride + i], for Vectors * kLanes consecutive i.
template <int Vectors, class A>
void weigh(const typename Weights<A>::Row& row, const A* source, std::int64_t stride, A* target) {
  using V = typename Vector<A>::type;
  V sum[Vectors];
  for (int v = 0; v < Vectors; ++v) sum[v] = V{} + row.fill;
  for (int t = 0; t < row.count; ++t) {
    const A weight = row.weights[t];
    if (weight == 0) continue;
    const A* voxels = source + t * stride;
    for (int v = 0; v < Vectors; ++v) sum[v] += weight * lanes(voxels + v * kLanes).value;
  }
  for (int v = 0; v < Vectors; ++v) lanes(target + v * kLanes).value = sum[v];
}

template <class A>
void weigh_columns(const typename Weights<A>::Row& row, const A* source, std::int64_t stride, std::int64_t columns,
                   A* target) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) weigh<4, A>(row, source + i, stride, target + i);
  for (; i + kLanes <= columns; i += kLanes) weigh<1, A>(row, source + i, stride, target + i);
  for (; i < columns; ++i) {
    A sum = row.fill;
    for (int t = 0; t < row.count; ++t)
      if (row.weights[t] != 0) sum += row.weights[t] * source[t * stride + i];
    target[i] = sum;
  }
}

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

template <class T, class A>
class SliceFilter {
 public:
  SliceFilter(const SliceWork& work, const void* input, void* output)
      : work_(work), input_(static_cast<const T*>(input)), output_(static_cast<A*>(output)) {
    if (work.x) x_ = std::make_unique<Weights<A>>(*work.x, work.fill);
    if (work.y) y_ = std::make_unique<Weights<A>>(*work.y, work.fill);
  }

  void run(DeviceContext& context) const {
    const std::int64_t columns = work_.output_columns();
    const std::int64_t block = block_columns();
    const std::int64_t blocks = (columns + block - 1) / block;
    context.parallel(work_.slices * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t first = piece % blocks * block;
        filter_block(piece / blocks, first, std::min(first + block, columns));
      }
    });
  }

 private:
  /// Columns whose intermediate rows stay in the second-level cache.
  std::int64_t block_columns() const {
    const std::int64_t columns = round_up(work_.output_columns(), 2 * kLanes);
    if (!y_) return std::min<std::int64_t>(columns, 4096);
    const std::int64_t fitting = kCacheBytes / std::int64_t(sizeof(A)) / work_.rows / 64 * 64;
    return std::min(std::max<std::int64_t>(fitting, 64), columns);
  }

  void filter_block(std::int64_t slice, std::int64_t begin, std::int64_t end) const {
    const T* input = input_ + slice * work_.rows * work_.columns;
    A* output = output_ + slice * work_.output_rows() * work_.output_columns() + begin;
    if (!y_) return filter_x(input, begin, end, output, work_.output_columns());
    const std::int64_t stride = round_up(end - begin, 2 * kLanes);
    static thread_local std::vector<A> between;
    if (std::int64_t(between.size()) < stride * work_.rows) between.resize(std::size_t(stride * work_.rows));
    filter_x(input, begin, end, between.data(), stride);
    for (std::int64_t j = 0; j < y_->size(); ++j)
      filter_y(j, between.data(), stride, end - begin, output + j * work_.output_columns());
  }

  void filter_y(std::int64_t j, const A* rows, std::int64_t stride, std::int64_t columns, A* target) const {
    auto row = y_->row(j);
    if (row.start >= work_.rows) row.start -= work_.rows;
    if (row.start + row.count <= work_.rows)
      return weigh_columns<A>(row, rows + row.start * stride, stride, columns, target);
    for (std::int64_t i = 0; i < columns; ++i) {
      A sum = row.fill;
      for (int t = 0; t < row.count; ++t)
        if (row.weights[t] != 0) sum += row.weights[t] * rows[(row.start + t) % work_.rows * stride + i];
      target[i] = sum;
    }
  }

  void filter_x(const T* input, std::int64_t begin, std::int64_t end, A* output, std::int64_t output_stride) const {
    if (!x_) {
      for (std::int64_t row = 0; row < work_.rows; ++row)
        convert(input + row * work_.columns + begin, end - begin, output + row * output_stride);
      return;
    }
    for (std::int64_t row = 0; row < work_.rows; row += 2 * kLanes)
      filter_x_rows(input + row * work_.columns, std::min<std::int64_t>(2 * kLanes, work_.rows - row), begin, end,
                    output + row * output_stride, output_stride);
  }

  /// Up to 16 rows side by side, so that a weight serves 16 sums.
  void filter_x_rows(const T* input, std::int64_t rows, std::int64_t begin, std::int64_t end, A* output,
                     std::int64_t output_stride) const {
    constexpr std::int64_t kRows = 2 * kLanes;
    const auto [low, high] = x_->window(begin, end);
    const std::int64_t width = round_up(high - low, kLanes), columns = round_up(end - begin, kLanes);
    static thread_local std::vector<A> scratch;
    const std::size_t needed = std::size_t(kRows * 2 * std::max(width, columns) + kRows * columns);
    if (scratch.size() < needed) scratch.resize(needed);
    A* loaded = scratch.data();
    A* sideways = loaded + kRows * std::max(width, columns);
    A* sums = sideways + kRows * std::max(width, columns);

    for (std::int64_t row = 0; row < rows; ++row)
      load_columns(input + row * work_.columns, work_.columns, low, high - low, loaded + row * width);
    for (std::int64_t i = 0; i < width; i += kLanes)
      for (std::int64_t half = 0; half < kRows; half += kLanes)
        transpose8(loaded + half * width + i, width, sideways + i * kRows + half, kRows);
    for (std::int64_t j = begin; j < end; ++j) {
      const auto& row = x_->row(j);
      weigh<2, A>(row, sideways + (row.start - low) * kRows, kRows, sums + (j - begin) * kRows);
    }
    for (std::int64_t i = 0; i < columns; i += kLanes)
      for (std::int64_t half = 0; half < kRows; half += kLanes)
        transpose8(sums + i * kRows + half, kRows, loaded + half * columns + i, columns);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(loaded + row * columns, end - begin, output + row * output_stride);
  }

  const SliceWork& work_;
  const T* input_;
  A* output_;
  std::unique_ptr<Weights<A>> x_, y_;
};

}  // namespace

void filter_slices(DeviceContext& context, const SliceWork& work, const void* input, void* output) {
  visit(work.input_type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if (work.output_type == DataType::float64) SliceFilter<T, double>(work, input, output).run(context);
    else SliceFilter<T, float>(work, input, output).run(context);
  });
}

}  // namespace volpipe::cpu
