// Stages that change what an MR scanner would have measured: k-space, the discrete Fourier transform of the image.
//
// What they share. Frequencies k are in cycles per field of view along the voxel axes x, y, z, 0 being the mean; an
// axis of n voxels has |k| <= n / 2, and n / 2 is its Nyquist frequency. Each component is an image of its own. Every
// change treats k and -k alike, so the result is real, and none touches k = 0, so the mean stays and a constant image
// too. A transform would spread a NaN or an infinity over the whole image: the mean of the finite voxels stands for
// them, and they are put back afterwards, with a notice.
#pragma once

#include <string>

#include "stages/fourier/spectrum.h"
#include "stages/volume_stage.h"

namespace volpipe {

/// The axis along which a scanner takes one line of k-space after another.
enum class PhaseAxis : std::uint8_t { x, y, z };
template <>
struct EnumNames<PhaseAxis> {
  static constexpr std::array names{"x", "y", "z"};
};

/// |k| as a share of the Nyquist frequency, for each index along an axis.
std::vector<double> shares_of_nyquist(const SpectrumLayout& layout, int axis);

/// One component in k-space, float32 or float64.
struct KSpace {
  DeviceContext& device;
  const SpectrumLayout& layout;
  FourierTransform& transform;
  const Volume& image;  ///< finite, its mean taken away; `least` is its lowest voxel
  double least;
  Buffer& spectrum;  ///< of the image

  DataType type() const { return image.dtype(); }
  void edit(const SpectrumEdit& edit) const { edit_from(spectrum.data(), edit); }
  void edit_from(const void* source, const SpectrumEdit& edit) const {
    edit_spectrum(device, layout, type(), edit, source, spectrum.data());
  }
};

class KSpaceStage : public VolumeStage {
 public:
  explicit KSpaceStage(std::string op) : op_(std::move(op)) {}
  std::size_t scratch_bytes(const VolumeInfo& input) const override;
  Volume run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const final;

 protected:
  /// One component, as it is in memory while it is worked on.
  static VolumeInfo component_of(const VolumeInfo& info, DataType type);

 private:
  /// True when nothing would change: the image is copied, to the bit where its type is kept.
  virtual bool changes_nothing() const = 0;
  virtual void change(const KSpace& kspace) const = 0;

  std::string op_;
};

}  // namespace volpipe
