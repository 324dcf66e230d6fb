#include "stages/pointwise/volume_statistics.h"

#include <array>

#include "stages/pointwise/otsu.h"
#include "volume/error.h"

namespace volpipe {

Selection selection_of(DeviceContext& context, const Mask& mask, const SampledValues& values, const VolumeInfo& image,
                       std::int64_t component, const FindImage& find) {
  if (mask.kind != Mask::Kind::image) return selection_by_value(context, mask, values);
  const Volume& volume = find(mask.image);
  check_mask_components(mask.image, volume.info(), image);
  return {Selection::Kind::mask, 0, {volume.component(volume.info().components == 1 ? 0 : component), volume.dtype()}};
}

void check_mask_components(const std::string& mask, const VolumeInfo& info, const VolumeInfo& image) {
  if (info.components != 1 && info.components != image.components)
    throw Error(ErrorCode::input, "the mask '" + mask + "' has " + std::to_string(info.components) +
                                      " components; expected 1, or as many as the image");
}

Selection selection_by_value(DeviceContext& context, const Mask& mask, const SampledValues& values) {
  switch (mask.kind) {
    case Mask::Kind::all:
      return {};
    case Mask::Kind::nonzero:
      return {Selection::Kind::nonzero};
    case Mask::Kind::above:
      return {Selection::Kind::above, mask.threshold};
    case Mask::Kind::foreground:
      return {Selection::Kind::above, otsu_threshold(context, values)};
    case Mask::Kind::image:
      break;
  }
  throw Error(ErrorCode::internal, "the mask '" + mask.image + "' is an image and cannot be found in the values");
}

std::vector<double> volume_percentiles(DeviceContext& context, const Volume& volume, const Mask& mask,
                                       std::span<const double> percents) {
  const std::array<ProgramInput, 1> inputs{ProgramInput{volume.data(), volume.dtype()}};
  const Precision precision = fits_float32(volume.dtype()) ? Precision::single : Precision::double_;
  SampledValues values{.inputs = inputs, .count = volume.info().value_count(), .precision = precision};
  values.selection = selection_by_value(context, mask, values);
  return compute_percentiles(context, values, percents);
}

}  // namespace volpipe
