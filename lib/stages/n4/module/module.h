// The table through which lib/stages reaches ITK's N4 filter. It lies in libvolpipe_n4.so, which is loaded on first
// use.
#pragma once

#include "stages/n4/n4.h"

namespace volpipe {

/// All functions throw volpipe::Error only.
struct N4Module {
  /// fit_bias_field() of an image with at least two voxels along each axis.
  SplineLattice (*fit)(const N4Image& image, const N4Settings& settings, const HostThreads& threads);
};

/// The one symbol of the module.
extern "C" const N4Module* volpipe_n4_module();
inline constexpr char kN4ModuleSymbol[] = "volpipe_n4_module";

}  // namespace volpipe
