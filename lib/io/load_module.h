// Loads libvolpipe_io.so, the module of the formats that need ITK and GDCM.
#pragma once

#include "io/module/module.h"

namespace volpipe::io {

/// Loads on the first call, which takes about 50 ms; may be called from any thread. Throws as load_symbol() does.
const Module& load_module();

}  // namespace volpipe::io
