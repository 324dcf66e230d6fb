// What can be said of an expression's values beforehand: whether they are whole numbers, and between which.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stages/expression/expression.h"
#include "volume/volume.h"

namespace volpipe {

/// Every finite value lies in [low, high].
struct ValueRange {
  double low, high;
  bool whole;  ///< finite values are whole numbers
};

/// Of all values of a pixel type.
ValueRange range_of(DataType type);

/// Of each node. `image` knows the images; `voxels` is the number of values that reductions take together at most.
std::vector<ValueRange> value_ranges(const Expression& expression, const Index3& size, std::int64_t voxels,
                                     const std::function<ValueRange(const std::string& image)>& image);

/// True when `node`, or what it is made of, may be a whole number that float32 does not hold, because it is beyond
/// 2^24.
bool exceeds_float32(const Expression& expression, int node, const std::vector<ValueRange>& ranges);

}  // namespace volpipe
