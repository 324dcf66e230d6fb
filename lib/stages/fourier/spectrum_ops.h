// The arithmetic of spectrum.h, for both compilers.
#pragma once

#include "device/cuda_hooks.h"
#include "device/host_device.h"
#include "stages/fourier/spectrum.h"

namespace volpipe {

template <class T>
struct Coefficient {
  T real, imaginary;
};

template <class T>
struct SpectrumEditor {
  const double* values[3];
  double limit;
  T factor;
  const Coefficient<T>* source;
  Coefficient<T>* target;

  /// Coefficient `i` of the row whose other indices are `j` and `k`, and which starts at `row`.
  VOLPIPE_HD void operator()(std::int64_t row, std::int64_t i, std::int64_t j, std::int64_t k) const {
    if (!(values[0][i] + values[1][j] + values[2][k] > limit)) return;
    const Coefficient<T> from = source[row + i];
    target[row + i] = {factor * from.real, factor * from.imaginary};
  }
};

namespace cpu {
void edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type, const SpectrumEdit& edit,
                   const void* source, void* target);
}
namespace cuda {
VOLPIPE_CUDA_CODE void edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type,
                                     const SpectrumEdit& edit, const void* source, void* target);
}

}  // namespace volpipe
