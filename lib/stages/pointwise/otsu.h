// Thresholds that part intensities into classes.
#pragma once

#include <span>
#include <vector>

#include "stages/pointwise/statistics.h"

namespace volpipe {

inline constexpr int kOtsuBins = 256;

/// The thresholds that part values into `classes` classes of greatest variance between them (Otsu 1979; for several
/// Liao, Chen, Chung 2001), found exactly by dynamic programming over the bins of `histogram`, equal ones between
/// moments.min and moments.max. Class k is what lies above k thresholds, and that is whole bins: a threshold is the
/// largest number, in the precision of the values, of the last bin below it (scikit-image's is that bin's centre). Of
/// equally good partings the lowest. Fewer where fewer bins are filled than there should be classes; none for an empty
/// histogram.
std::vector<double> otsu_thresholds(const Moments& moments, std::span<const std::int64_t> histogram, int classes,
                                    Precision precision);

/// The threshold between two classes on a histogram of kOtsuBins bins; foreground is what lies above it. The constant
/// itself for a constant image; NaN when nothing is selected.
double otsu_threshold(DeviceContext& context, const SampledValues& values);

}  // namespace volpipe
