#include "io/module/in_order.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

namespace volpipe::io {

void in_order(const HostThreads* threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  if (!threads) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<std::size_t> lowest{count};
  threads->parallel(std::int64_t(count), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = std::size_t(begin); i < std::size_t(end); ++i) {
      if (i > lowest.load()) continue;
      try {
        work(i);
      } catch (...) {
        thrown[i] = std::current_exception();
        for (std::size_t known = lowest.load(); i < known && !lowest.compare_exchange_weak(known, i);) continue;
      }
    }
  });
  if (lowest < count) std::rethrow_exception(thrown[lowest]);
}

}  // namespace volpipe::io
