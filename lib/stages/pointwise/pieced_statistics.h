// Statistics of values of which only a piece is in memory at a time: the pieces are gone through as often as a question
// needs.
#pragma once

#include <functional>

#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

/// Calls `visit` once for each piece; together they are the values. Their selections are `all`, or masks that are
/// images. At least one piece; all of one program's precision.
using EachPiece = std::function<void(const std::function<void(const SampledValues& piece)>& visit)>;

/// The answer to a request over the pieces. Counts, ranges, percentiles and histograms are those of the whole to the
/// bit. Mean and sum of squares are merged from the pieces' (see merge()): from what one pass over the whole gives,
/// whose order of summation is another, the mean and the standard deviation differ by a few times 2^-52 of |mean| +
/// deviation. The pieces are gone through once for moments or the range, once more for a histogram, twice more for
/// Otsu's threshold, and for percentiles once and then twice for each time that 8192 bins narrow the search: three
/// times in all where values are whole numbers, about seven where they are not. Throws Error(unsupported) for
/// percentiles of float64 values whose range, or a step of it, float64 cannot hold.
StatisticsResult measure_pieces(DeviceContext& context, const StatisticsRequest& request, const EachPiece& pieces);

}  // namespace volpipe
