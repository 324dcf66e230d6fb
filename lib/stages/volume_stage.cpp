#include "stages/volume_stage.h"

namespace volpipe {

std::string made_by(const Stage& stage) {
  if (const auto* pointwise = dynamic_cast<const PointwiseStage*>(&stage)) return pointwise->makes();
  if (const auto* volume = dynamic_cast<const VolumeStage*>(&stage)) return volume->makes();
  return {};
}

}  // namespace volpipe
