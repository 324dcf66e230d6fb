// Work over a list of files on several threads, with the outcome of working through them one by one.
#pragma once

#include <cstddef>
#include <functional>

#include "device/host_threads.h"

namespace volpipe::io {

/// Calls work(i) for every i in [0, count), on `threads` or, where null, on the calling thread alone, and waits. Throws
/// what the lowest i threw, whatever the number of threads; some work above that i may be left undone.
void in_order(const HostThreads* threads, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace volpipe::io
