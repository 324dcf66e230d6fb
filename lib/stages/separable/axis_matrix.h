// A linear map from one voxel axis to another as a banded matrix, built and composed in double precision. Flips, crops,
// pads, every interpolation on an axis-aligned grid (spline prefilter included), anti-aliasing and convolution are all
// of this form, so a chain of them is one product.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace volpipe {

/// Row j: out[j] = sum_t weights[j * taps + t] * in[start[j] + t] + fill_weights[j] * fill.
/// start[j] + t lies in [0, input_size) unless `periodic`, where it is taken modulo input_size. A weight of exactly 0
/// never touches the voxel (a NaN there does not spread).
class AxisMatrix {
 public:
  struct Tap {
    std::int64_t index;
    double weight;
  };                             ///< index -1: the fill value
  using Row = std::vector<Tap>;  ///< any order; repeated indices add up

  static AxisMatrix identity(std::int64_t size);
  /// Every row must span at most a window of consecutive input voxels (modulo the size when periodic).
  static AxisMatrix from_rows(std::int64_t input_size, const std::vector<Row>& rows, bool periodic = false);
  /// out[j] = in[source[j]], or the fill value where source[j] is -1.
  static AxisMatrix lattice(std::int64_t input_size, const std::vector<std::int64_t>& source);

  /// `second` after `first` as one matrix; empty when the rows of the product are not contiguous windows.
  static std::optional<AxisMatrix> compose(const AxisMatrix& second, const AxisMatrix& first);

  std::int64_t input_size() const { return input_size_; }
  std::int64_t output_size() const { return std::int64_t(start_.size()); }
  int taps() const { return taps_; }
  bool periodic() const { return periodic_; }
  /// Every row is one voxel with weight 1, or the fill value: voxels are copied, never computed.
  bool copies() const { return copies_; }
  bool is_identity() const;
  bool uses_fill() const;

  std::span<const std::int64_t> start() const { return start_; }
  std::span<const double> weights() const { return weights_; }  ///< output_size x taps
  std::span<const double> fill_weights() const { return fill_weights_; }
  Row row(std::int64_t j) const;  ///< its nonzero taps, by ascending index
  /// Of a matrix that copies: the input voxel of each row, -1 for the fill value; what lattice() was made of.
  std::vector<std::int64_t> sources() const;

 private:
  std::int64_t input_size_ = 0;
  int taps_ = 1;
  bool periodic_ = false;
  bool copies_ = false;
  std::vector<std::int64_t> start_;
  std::vector<double> weights_;
  std::vector<double> fill_weights_;
};

/// Entries [begin, end) of an axis.
struct AxisRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
  bool operator==(const AxisRange&) const = default;
};

/// The input voxels that rows `rows`, at least one, read; one voxel near them where they read none. Rows that wrap
/// around a periodic axis read all of it.
AxisRange columns_of(const AxisMatrix& matrix, const AxisRange& rows);

/// Those rows over the input voxels `columns`, which hold columns_of(matrix, rows): the same sums in the same order.
AxisMatrix part_of(const AxisMatrix& matrix, const AxisRange& rows, const AxisRange& columns);

/// Rows [begin, end) of a matrix that copies take the input voxels first, first + step, ...
struct LatticeRun {
  std::int64_t begin = 0, end = 0, first = 0, step = 1;
  std::int64_t length() const { return end - begin; }
};

/// The longest run of AxisMatrix::sources(), the first of the longest; of no length where all are the fill value.
LatticeRun longest_run(const std::vector<std::int64_t>& sources);

}  // namespace volpipe
