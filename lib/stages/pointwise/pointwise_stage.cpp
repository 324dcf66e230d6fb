#include "stages/pointwise/pointwise_stage.h"

#include <algorithm>

#include "volume/error.h"

namespace volpipe {

int PointwiseContext::input_number(const std::string& image) const {
  const auto found = std::find(inputs.begin(), inputs.end(), image);
  if (found == inputs.end()) throw Error(ErrorCode::internal, "the image '" + image + "' is no input of the program");
  return int(found - inputs.begin());
}

}  // namespace volpipe
