// N4 bias field correction (Tustison et al. 2010) on the host, by ITK: the field's logarithm is a B-spline that is
// fitted to what sharpening the histogram takes from each voxel, on a lattice that doubles from level to level.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/host_threads.h"
#include "stages/pointwise/program.h"
#include "volume/matrix.h"

namespace volpipe {

struct N4Settings {
  std::vector<std::int64_t> iterations;  ///< most of each level
  double convergence = 0.001;            ///< a level ends when the field changes by a coefficient of variation below
  Index3 control_points{4, 4, 4};        ///< of the first level; more than `order` along each axis
  int order = 3;                         ///< of the spline, 1 to 3
  int bins = 200;                        ///< of the histogram of logarithms
  double fwhm = 0.15;                    ///< of the Gaussian that blurs the histogram
  double wiener = 0.01;                  ///< noise of the filter that undoes it
};

struct N4Image {
  Index3 size;
  std::vector<float> values;
  std::vector<std::uint8_t> mask;  ///< 1 where the field is estimated: values above 0, not all alike
};

/// A tensor product of uniform B-splines over an image, the first voxel of an axis at the start of the first span, the
/// last at the end of the last.
struct SplineLattice {
  Index3 control_points;
  int order;
  std::vector<double> coefficients;  ///< x fastest

  std::int64_t spans(std::size_t axis) const { return control_points[axis] - order; }
};

/// The logarithm of the field of an image. An axis of one voxel counts as two that are alike. ITK works
/// on `threads` alone; the result does not depend on them. Throws Error(unsupported) with ITK's words when it fails,
/// Error(internal) when the module libvolpipe_n4.so cannot be loaded.
SplineLattice fit_bias_field(const N4Image& image, const N4Settings& settings, const HostThreads& threads);

/// Every step-th voxel of a grid from `first` on: `count` of them, in the middle of the axis.
struct SampledAxis {
  std::int64_t size, step, count, first;

  /// As ITK's ShrinkImageFilter, but that an axis keeps at least eight voxels, or all.
  static SampledAxis shrunk(std::int64_t size, std::int64_t factor);
};

/// A spline over the sampled voxels, at all voxels of the grid: those before the first sample and after the last
/// continue the outermost spans.
std::shared_ptr<const Field> field_over(const SplineLattice& lattice, const std::array<SampledAxis, 3>& axes);

}  // namespace volpipe
