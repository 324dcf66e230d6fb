// Deterministic statistics of a program's values: fixed chunks, fixed lanes, fixed tree, the same for any number of
// threads and on either device; counts are 64-bit, sums are in double. Non-finite voxels are left out and counted.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "stages/pointwise/program.h"

namespace volpipe {

/// Which voxels are looked at: the value after the program decides (nonzero, above), or another volume of the grid on
/// the same device (nonzero there). NaN is nonzero, and above nothing.
struct Selection {
  enum class Kind : std::uint8_t { all, nonzero, above, mask } kind = Kind::all;
  double threshold = 0;
  ProgramInput mask{nullptr, DataType::uint8};
};

inline const Program kIdentity;

/// The values program(inputs) of `count` voxels that pass the selection.
struct SampledValues {
  std::span<const ProgramInput> inputs;
  const Program* program = &kIdentity;
  std::int64_t count = 0;
  Selection selection{};
  Precision precision = Precision::single;
  ProgramGrid grid{};  ///< for programs that ask for places
};

struct Moments {
  std::int64_t count = 0;       ///< finite voxels selected
  std::int64_t non_finite = 0;  ///< NaN and infinite voxels selected, left out of the rest
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double sum_squares = 0;             ///< of differences from the mean
  double std(double ddof = 0) const;  ///< 0 when count <= ddof
  bool operator==(const Moments&) const = default;
};

/// Moments of two disjoint sets together (Chan, Golub, LeVeque 1979).
Moments merge(const Moments& a, const Moments& b);

/// One pass; the devices give the same bits.
Moments compute_moments(DeviceContext& context, const SampledValues& values);

/// The moments' counts, min and max alone, in less time.
Moments compute_range(DeviceContext& context, const SampledValues& values);

/// Exact percentiles (0 to 100) of the finite values, linear between order statistics (numpy's default), by radix
/// selection on the value's bits; NaN when nothing is selected. Several percentiles share the passes. On CUDA,
/// statistics_scratch_bytes of memory are taken meanwhile.
std::vector<double> compute_percentiles(DeviceContext& context, const SampledValues& values,
                                        std::span<const double> percents);

/// Counts in `bins` equal bins over [low, high]: bin floor((value - low) * (bins / (high - low))) in double; values
/// outside are left out; `high` belongs to the last bin. Throws Error(internal) unless low < high and bins > 0.
std::vector<std::int64_t> compute_histogram(DeviceContext& context, const SampledValues& values, double low,
                                            double high, int bins);

/// Device memory, at most, that the statistics of `count` values take on CUDA besides them; percentiles take the most,
/// and what a program of the general machine gives is written out.
std::size_t statistics_scratch_bytes(std::int64_t count, Precision precision, bool percentiles,
                                     bool general_program = false);

}  // namespace volpipe
