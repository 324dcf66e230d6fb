// The host threads of a run: one bound for everything that computes, packs and unpacks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace volpipe {

/// Host threads this process may use: CPU affinity, and SLURM_CPUS_PER_TASK where it is set.
int available_threads();

/// At most count() threads work in it at one time, however many threads call it. What runs in it must not wait for
/// other callers.
class HostThreads {
 public:
  /// 0: available_threads().
  explicit HostThreads(int count = 0);
  ~HostThreads();

  int count() const { return count_; }

  /// Runs `body` as one of the threads, once one is free; waits for it and throws what it throws.
  void run(const std::function<void()>& body) const;

  /// Runs body(begin, end) over [0, count) in pieces of `grain`, in parallel, and waits. Pieces are the same for any
  /// number of threads, so per-piece results are deterministic.
  void parallel(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body) const;

 private:
  struct Arena;
  int count_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace volpipe
