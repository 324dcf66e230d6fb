// A stage that changes each voxel by itself, perhaps with constants taken from whole images, other images of the item,
// places and random draws.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stages/pointwise/statistics.h"
#include "stages/stage.h"

namespace volpipe {

struct StatisticsResult;
struct PointwiseContext;

/// What a pointwise stage wants to know of its input before it can write its instructions.
struct StatisticsRequest {
  /// What is taken together: all components of the image, each by itself, or all images of the item that the stage acts
  /// on.
  enum class Over : std::uint8_t { volume, component, item };

  bool moments = false;
  bool range = false;                 ///< the moments' counts, min and max alone, which take less time
  std::vector<double> percentiles{};  ///< 0 to 100
  int bins = 0;                       ///< a histogram between the least and the greatest value; gives the range too
  Mask mask{};
  Over over = Over::volume;
  /// Appends what is to be measured instead of the value as it is; the context has the answers to earlier requests.
  std::function<void(Program&, const PointwiseContext&)> of{};
};

/// The answer; default values where nothing was asked.
struct StatisticsResult {
  Moments moments{};
  std::vector<double> percentiles{};
  std::vector<std::int64_t> histogram{};  ///< empty where no two values differ
};

struct PointwiseContext {
  const VolumeInfo& input;                    ///< what the accumulator is a voxel of
  std::span<const StatisticsResult> answers;  ///< to requests(), in order
  std::span<const std::string> inputs;        ///< images that the program's inputs are; [0] the one it starts from
  Notices& notices;
  Precision precision = Precision::single;  ///< of the voxels' values

  /// The program's input that is `image`.
  int input_number(const std::string& image) const;
};

class PointwiseStage : public VoxelStage {
 public:
  /// Empty: no pass over the image is needed. They are answered in order.
  virtual std::vector<StatisticsRequest> requests() const { return {}; }
  /// True when neighbours of the image itself are read, or images as they are before this stage's pass.
  virtual bool reads_neighbours() const { return false; }
  /// True when float32 would not do, such as for whole numbers beyond 2^24 that must be exact.
  virtual bool needs_double() const { return false; }
  /// Appends this stage's instructions: accumulator in, accumulator out; registers are free to use.
  virtual void append(Program& program, const PointwiseContext& context) const = 0;
};

}  // namespace volpipe
