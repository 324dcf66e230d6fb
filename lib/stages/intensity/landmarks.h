// Standard scales of intensities, as files and as curves: percentiles of an image go to landmarks of the scale (Nyul,
// Udupa, Magn Reson Med 1999; Nyul, Udupa, Zhang, IEEE Trans Med Imaging 2000).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "spec/parameters.h"

namespace volpipe {

struct Landmarks {
  std::vector<double> percentiles;  ///< ascending, at least two
  std::vector<double> values;       ///< where they lie on the scale, not descending
  std::array<double, 2> scale{0, 100};
  Mask mask{};              ///< where percentiles are taken
  std::int64_t images = 0;  ///< that they were learned from; 0: not known
};

/// {"percentiles": [...], "landmarks": [...], "scale": [low, high], "mask": ..., "images": n}; the last three may be
/// left out.
Json to_json(const Landmarks& landmarks);
/// Returns "" or what is wrong with it.
std::string read_landmarks(const Json& json, Landmarks& landmarks);

/// Ascending, from 0 to 100, at least two: returns "" or what is wrong.
std::string check_percentiles(const std::vector<double>& percentiles);

/// Learns landmarks: the mean over images of their percentiles, each image's first and last brought to the ends of the
/// scale.
class LandmarkTrainer {
 public:
  LandmarkTrainer(std::vector<double> percentiles, std::array<double, 2> scale, Mask mask);

  const std::vector<double>& percentiles() const { return percentiles_; }
  const Mask& mask() const { return mask_; }
  /// Throws Error(input) when the image has no voxel under the mask, or its first and last percentile are the same.
  void add(const std::vector<double>& image_percentiles);
  std::int64_t images() const { return images_; }
  /// Of at least one image.
  Landmarks result() const;

 private:
  std::vector<double> percentiles_, sums_;
  std::array<double, 2> scale_;
  Mask mask_;
  std::int64_t images_ = 0;
};

}  // namespace volpipe
