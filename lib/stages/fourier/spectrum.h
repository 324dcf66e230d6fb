// Changes of a spectrum, on either device.
#pragma once

#include <array>
#include <vector>

#include "stages/fourier/fft.h"

namespace volpipe {

/// Which coefficients are changed, and into what. An axis has a value for each of its indices; coefficients whose three
/// values sum to more than `limit` are. The choice must not tell k from -k, so that the volume stays real: the values
/// of k and -k are equal.
struct SpectrumEdit {
  std::array<std::vector<double>, 3> values;
  double limit = 0;
  double factor = 1;

  /// Nothing is chosen yet: every value is 0.
  explicit SpectrumEdit(const SpectrumLayout& layout);
};

/// Where `edit` says so, target = factor * source; the rest of `target` stays. Both may be the same.
void edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type, const SpectrumEdit& edit,
                   const void* source, void* target);

}  // namespace volpipe
