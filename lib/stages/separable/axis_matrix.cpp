#include "stages/separable/axis_matrix.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "volume/error.h"

namespace volpipe {

namespace {

struct MergedRow {
  AxisMatrix::Row taps;  // ascending, distinct, nonzero
  double fill = 0;
};

struct Window {
  std::int64_t start = 0, length = 0;
};

MergedRow merge(const AxisMatrix::Row& row) {
  MergedRow merged;
  AxisMatrix::Row sorted;
  for (const auto& tap : row) {
    if (tap.index < 0) merged.fill += tap.weight;
    else sorted.push_back(tap);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  for (const auto& tap : sorted) {
    if (!merged.taps.empty() && merged.taps.back().index == tap.index) merged.taps.back().weight += tap.weight;
    else merged.taps.push_back(tap);
  }
  std::erase_if(merged.taps, [](const auto& tap) { return tap.weight == 0; });
  return merged;
}

Window window_of(const AxisMatrix::Row& taps, std::int64_t size, bool periodic) {
  if (taps.empty()) return {};
  if (!periodic) return {taps.front().index, taps.back().index - taps.front().index + 1};
  std::size_t first = 0;
  std::int64_t widest_gap = taps.front().index + size - taps.back().index;
  for (std::size_t i = 1; i < taps.size(); ++i)
    if (const std::int64_t gap = taps[i].index - taps[i - 1].index; gap > widest_gap) {
      widest_gap = gap;
      first = i;
    }
  return {taps[first].index, size - widest_gap + 1};
}

std::int64_t widest_window(const std::vector<AxisMatrix::Row>& rows, std::int64_t size, bool periodic) {
  std::int64_t widest = 1;
  for (const auto& row : rows) widest = std::max(widest, window_of(merge(row).taps, size, periodic).length);
  return widest;
}

/// Rows that touch no voxel borrow a neighbour's window, so that they do not widen what a tile must load.
void borrow_starts(std::vector<std::int64_t>& start, const std::vector<bool>& empty) {
  const auto first = std::find(empty.begin(), empty.end(), false);
  std::int64_t last = first == empty.end() ? 0 : start[std::size_t(first - empty.begin())];
  for (std::size_t j = 0; j < start.size(); ++j) {
    if (empty[j]) start[j] = last;
    last = start[j];
  }
}

}  // namespace

AxisMatrix AxisMatrix::identity(std::int64_t size) {
  std::vector<std::int64_t> source(static_cast<std::size_t>(size));
  std::iota(source.begin(), source.end(), std::int64_t(0));
  return lattice(size, source);
}

AxisMatrix AxisMatrix::lattice(std::int64_t input_size, const std::vector<std::int64_t>& source) {
  std::vector<Row> rows;
  rows.reserve(source.size());
  for (const std::int64_t index : source) rows.push_back({{index, 1.0}});
  return from_rows(input_size, rows);
}

AxisMatrix AxisMatrix::from_rows(std::int64_t input_size, const std::vector<Row>& rows, bool periodic) {
  std::vector<MergedRow> merged;
  std::vector<Window> windows;
  std::int64_t taps = 1;
  for (const Row& row : rows) {
    merged.push_back(merge(row));
    const Row& kept = merged.back().taps;
    if (!kept.empty() && kept.back().index >= input_size)
      throw Error(ErrorCode::internal, "an axis matrix reads voxel " + std::to_string(kept.back().index) + " of " +
                                           std::to_string(input_size));
    windows.push_back(window_of(kept, input_size, periodic));
    taps = std::max(taps, windows.back().length);
  }

  AxisMatrix matrix;
  matrix.input_size_ = input_size;
  matrix.taps_ = int(taps);
  matrix.periodic_ = periodic;
  matrix.copies_ = true;
  matrix.weights_.assign(rows.size() * std::size_t(taps), 0.0);
  std::vector<bool> empty(rows.size());
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const Row& kept = merged[j].taps;
    const std::int64_t start = periodic ? windows[j].start : std::min(windows[j].start, input_size - taps);
    empty[j] = kept.empty();
    matrix.start_.push_back(start);
    matrix.fill_weights_.push_back(merged[j].fill);
    for (const Tap& tap : kept) {
      const std::int64_t t = tap.index - start;
      matrix.weights_[j * std::size_t(taps) + std::size_t(t < 0 ? t + input_size : t)] = tap.weight;
    }
    const bool one_voxel = kept.size() == 1 && kept[0].weight == 1 && merged[j].fill == 0;
    const bool all_fill = kept.empty() && merged[j].fill == 1;
    matrix.copies_ = matrix.copies_ && (one_voxel || all_fill);
  }
  borrow_starts(matrix.start_, empty);
  return matrix;
}

std::optional<AxisMatrix> AxisMatrix::compose(const AxisMatrix& second, const AxisMatrix& first) {
  if (second.input_size() != first.output_size())
    throw Error(ErrorCode::internal, "axis matrices of different sizes cannot be composed");
  if (first.is_identity()) return second;
  if (second.is_identity()) return first;
  std::vector<Row> rows;
  std::int64_t most_taps = 1;
  for (std::int64_t j = 0; j < second.output_size(); ++j) {
    Row row{{-1, second.fill_weights_[std::size_t(j)]}};
    for (const Tap& outer : second.row(j)) {
      row.push_back({-1, outer.weight * first.fill_weights_[std::size_t(outer.index)]});
      for (const Tap& inner : first.row(outer.index)) row.push_back({inner.index, outer.weight * inner.weight});
    }
    most_taps = std::max(most_taps, std::int64_t(merge(row).taps.size()));
    rows.push_back(std::move(row));
  }
  const std::int64_t acceptable = 4 * most_taps + 4;
  const std::int64_t plain = widest_window(rows, first.input_size(), false);
  if (plain <= acceptable && !first.periodic()) return from_rows(first.input_size(), rows, false);
  if (widest_window(rows, first.input_size(), true) <= acceptable) return from_rows(first.input_size(), rows, true);
  return std::nullopt;
}

bool AxisMatrix::is_identity() const {
  if (!copies_ || output_size() != input_size_ || uses_fill()) return false;
  for (std::int64_t j = 0; j < input_size_; ++j)
    if (row(j).front().index != j) return false;
  return true;
}

bool AxisMatrix::uses_fill() const {
  return std::any_of(fill_weights_.begin(), fill_weights_.end(), [](double weight) { return weight != 0; });
}

AxisMatrix::Row AxisMatrix::row(std::int64_t j) const {
  Row row;
  for (int t = 0; t < taps_; ++t)
    if (const double weight = weights_[std::size_t(j * taps_ + t)]; weight != 0)
      row.push_back({(start_[std::size_t(j)] + t) % input_size_, weight});
  std::sort(row.begin(), row.end(), [](const Tap& a, const Tap& b) { return a.index < b.index; });
  return row;
}

std::vector<std::int64_t> AxisMatrix::sources() const {
  std::vector<std::int64_t> sources;
  sources.reserve(start_.size());
  for (std::int64_t j = 0; j < output_size(); ++j) {
    const Row taps = row(j);
    sources.push_back(taps.empty() ? -1 : taps.front().index);
  }
  return sources;
}

namespace {

/// Whether a row's taps go on at the other end of the axis.
bool wraps(const AxisMatrix& matrix, std::int64_t j) {
  for (int t = 0; t < matrix.taps(); ++t)
    if (matrix.weights()[std::size_t(j * matrix.taps() + t)] != 0 &&
        matrix.start()[std::size_t(j)] + t >= matrix.input_size())
      return true;
  return false;
}

}  // namespace

AxisRange columns_of(const AxisMatrix& matrix, const AxisRange& rows) {
  AxisRange columns{matrix.input_size(), 0};
  for (std::int64_t j = rows.begin; j < rows.end; ++j) {
    if (matrix.periodic() && wraps(matrix, j)) return {0, matrix.input_size()};
    const AxisMatrix::Row taps = matrix.row(j);
    if (taps.empty()) continue;
    columns.begin = std::min(columns.begin, taps.front().index);
    columns.end = std::max(columns.end, taps.back().index + 1);
  }
  if (columns.begin < columns.end) return columns;
  const std::int64_t near =
      std::clamp<std::int64_t>(matrix.start()[std::size_t(rows.begin)], 0, matrix.input_size() - 1);
  return {near, near + 1};
}

AxisMatrix part_of(const AxisMatrix& matrix, const AxisRange& rows, const AxisRange& columns) {
  const bool all_columns = columns == AxisRange{0, matrix.input_size()};
  if (all_columns && rows == AxisRange{0, matrix.output_size()}) return matrix;
  std::vector<AxisMatrix::Row> taps;
  for (std::int64_t j = rows.begin; j < rows.end; ++j) {
    AxisMatrix::Row& row = taps.emplace_back(matrix.row(j));
    for (AxisMatrix::Tap& tap : row) tap.index -= columns.begin;
    row.push_back({-1, matrix.fill_weights()[std::size_t(j)]});
  }
  return AxisMatrix::from_rows(columns.length(), taps, matrix.periodic() && all_columns);
}

LatticeRun longest_run(const std::vector<std::int64_t>& sources) {
  LatticeRun longest;
  const auto size = std::int64_t(sources.size());
  const auto at = [&](std::int64_t j) { return sources[std::size_t(j)]; };
  for (std::int64_t j = 0; j < size;) {
    if (at(j) < 0) {
      ++j;
      continue;
    }
    LatticeRun run{j, j + 1, at(j), 1};
    if (run.end < size && at(run.end) >= 0) run.step = at(run.end) - at(j);
    while (run.end < size && at(run.end) >= 0 && at(run.end) - at(run.end - 1) == run.step) ++run.end;
    if (run.length() > longest.length()) longest = run;
    j = run.end;
  }
  return longest;
}

}  // namespace volpipe
