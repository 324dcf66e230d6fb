// A stage that changes each voxel by itself, perhaps with constants taken from the whole image.
#pragma once

#include <optional>
#include <vector>

#include "stages/pointwise/statistics.h"
#include "stages/stage.h"

namespace volpipe {

/// What a pointwise stage wants to know of its input before it can write its instructions.
struct StatisticsRequest {
  bool moments = false;
  std::vector<double> percentiles{};  ///< 0 to 100
  Mask mask{};
  bool per_component = false;  ///< each component by itself, else all together
};

/// The answer; default values when nothing was asked.
struct StatisticsResult {
  Moments moments{};
  std::vector<double> percentiles{};
};

class PointwiseStage : public Stage {
 public:
  /// Empty: no pass over the image is needed.
  virtual std::optional<StatisticsRequest> request() const { return std::nullopt; }
  /// Appends this stage's instructions: accumulator in, accumulator out; registers are free to use.
  virtual void append(Program& program, const VolumeInfo& input, const StatisticsResult& statistics,
                      Notices& notices) const = 0;

  /// Default: the same grid in float32.
  virtual VolumeInfo output(const VolumeInfo& input) const {
    VolumeInfo result = input;
    result.dtype = DataType::float32;
    return result;
  }
};

}  // namespace volpipe
