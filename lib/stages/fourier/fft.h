// Discrete Fourier transforms of real volumes of any size, on either device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/context.h"

namespace volpipe {

/// Where the coefficients of a real volume are. With frequencies k in cycles per field of view,
///   F(k) = sum over x of f(x) exp(-2 pi i (k_x x / n_x + k_y y / n_y + k_z z / n_z)),  x in voxels from the first.
/// F(-k) is the conjugate of F(k), so the first axis that has more than one voxel is halved: it keeps 0, 1, .., n / 2.
/// The others have 0, 1, .., then the negative frequencies up to -1; n / 2 of an even n is its own negative.
class SpectrumLayout {
 public:
  explicit SpectrumLayout(const Index3& volume_size);

  const Index3& volume_size() const { return volume_size_; }
  const Index3& size() const { return size_; }  ///< coefficients along x (fastest), y and z
  int halved_axis() const { return halved_axis_; }
  std::int64_t count() const { return size_[0] * size_[1] * size_[2]; }
  std::size_t bytes(DataType type) const { return std::size_t(count()) * 2 * size_of(type); }

  /// The signed frequency of each index along an axis.
  std::vector<std::int64_t> frequencies(int axis) const;

 private:
  Index3 volume_size_, size_;
  int halved_axis_ = 0;
};

/// Transforms of one component. Volumes are real, float32 or float64; coefficients are pairs (real, imaginary) of that
/// type. Both are on the context's device, which this object is bound to.
class FourierTransform {
 public:
  virtual ~FourierTransform() = default;
  virtual void forward(const void* volume, void* spectrum) = 0;
  /// Divided by the number of voxels, so that it undoes forward(); `spectrum` is overwritten. Coefficients that must be
  /// real for the volume to be real count with their real part.
  virtual void inverse(void* spectrum, void* volume) = 0;
};

/// Throws Error(device) when a library that the device needs is missing. On the CPU the lines are transformed in double
/// whatever the type, with the same bits for any number of threads.
std::unique_ptr<FourierTransform> make_fourier_transform(DeviceContext& context, const Index3& size, DataType type);

/// Device memory that a transform takes besides its volume and its coefficients, at most.
std::size_t fourier_scratch_bytes(const Index3& size, DataType type);

}  // namespace volpipe
