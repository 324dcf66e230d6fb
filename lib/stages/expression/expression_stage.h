// The `expression` stage: image arithmetic as a pointwise stage.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stages/expression/expression.h"
#include "stages/expression/measures.h"
#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

template <>
struct EnumNames<ImageKind> {
  static constexpr std::array names{"image", "label"};
};

/// Each image that it acts on, or a new one, becomes the value of an expression. The image it acts on is the
/// accumulator under the name `this` and under its own. for_image() gives the stage with the types of the images known;
/// without it, 32-bit integers beyond 2^24 are not promised to be exact.
class ExpressionStage final : public PointwiseStage {
 public:
  struct Params {
    ExpressionText expr{};
    ImageAliases inputs{};
    std::optional<std::string> output{};  ///< an image's name
    std::optional<DataType> dtype{};
    std::optional<ImageKind> kind{};
    Boundary boundary = Boundary::reflect;
    Fill fill{};
  };

  /// Throws ExpressionError.
  explicit ExpressionStage(Params params);
  static void check(const Params& params, const std::string& pointer, Faults& faults);

  std::shared_ptr<const VoxelStage> for_image(const std::string& image, const VolumeInfo& input,
                                              const StageContext& context) const override;
  std::vector<StatisticsRequest> requests() const override;
  std::vector<std::string> reads() const override;
  bool reads_neighbours() const override;
  bool needs_double() const override { return needs_double_; }
  std::string makes() const override { return params_.output.value_or(""); }
  void append(Program& program, const PointwiseContext& context) const override;
  VolumeInfo output(const VolumeInfo& input) const override;

 private:
  ExpressionStage(Params params, std::string image);
  bool makes_new() const { return params_.output && params_.output != image_; }
  void append_node(Program& program, int node, const PointwiseContext& context) const;
  using FindInfo = std::function<const VolumeInfo*(const std::string& image)>;  ///< "": at hand; null: not there
  void learn_types(const VolumeInfo& input, const ImageInfos& images);

  Params params_;
  std::string image_;  ///< at hand; empty: not known yet
  Expression expression_;
  Measures measures_;
  bool needs_double_ = false;
};

}  // namespace volpipe
