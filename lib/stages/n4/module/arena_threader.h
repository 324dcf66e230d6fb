// ITK's filters on the host threads of a run, in place of ITK's own pool, which takes as many as the machine has and
// one more.
#pragma once

#include "device/host_threads.h"

namespace volpipe {

/// Filters that this thread makes while the object lives run on `threads`: in 16 parts, however many threads there are,
/// because ITK adds the parts of a fit up in float32. Filters made elsewhere are left to ITK.
class ItkThreads {
 public:
  explicit ItkThreads(const HostThreads& threads);
  ~ItkThreads();
  ItkThreads(const ItkThreads&) = delete;
  ItkThreads& operator=(const ItkThreads&) = delete;
};

}  // namespace volpipe
