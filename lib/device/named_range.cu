#include <nvtx3/nvToolsExt.h>

#include "device/named_range.h"

namespace volpipe::cuda {

void push_named_range(const char* name) { nvtxRangePushA(name); }

void pop_named_range() { nvtxRangePop(); }

}  // namespace volpipe::cuda
