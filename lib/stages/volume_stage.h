// A stage with an algorithm of its own over a whole volume: Fourier transforms, local histograms, ITK's filters.
#pragma once

#include <string>
#include <vector>

#include "stages/pointwise/pointwise_stage.h"
#include "stages/pointwise/volume_statistics.h"
#include "stages/stage.h"

namespace volpipe {

/// What a volume stage sees besides its input while it runs.
struct VolumeContext {
  DeviceContext& device;
  FindImage image;  ///< other images of the item, on the device
  Notices& notices;
  ConversionCounts converted{};  ///< set by a stage that converts to integers
};

class VolumeStage : public VoxelStage {
 public:
  /// False: voxels are moved as they are, whatever precision the spec asks for.
  virtual bool computes() const { return true; }
  /// Device memory beyond input and output, at most.
  virtual std::size_t scratch_bytes(const VolumeInfo& input) const = 0;
  /// What computes the same and runs on the CPU in its place, reading no image that reads() leaves out; null: run().
  virtual std::shared_ptr<const PointwiseStage> twin_on_cpu() const { return nullptr; }
  /// Runs, but for what comes before and after, on the host whatever the device; on CUDA what it works on is
  /// downloaded.
  virtual bool on_host() const { return false; }
  /// `output` is output(input.info()), in float64 where the spec asks for double precision; whatever comes out is a
  /// volume of that description.
  virtual Volume run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const = 0;
};

}  // namespace volpipe
