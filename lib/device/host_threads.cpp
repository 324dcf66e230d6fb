#include "device/host_threads.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace volpipe {

struct HostThreads::Arena {
  explicit Arena(int threads) : arena(threads) {
    if (threads > oneapi::tbb::this_task_arena::max_concurrency())
      more_than_cores.emplace(oneapi::tbb::global_control::max_allowed_parallelism, std::size_t(threads));
  }
  std::optional<oneapi::tbb::global_control> more_than_cores;  // else TBB prints a warning and uses fewer
  oneapi::tbb::task_arena arena;
};

HostThreads::HostThreads(int count)
    : count_(count > 0 ? count : available_threads()), arena_(std::make_unique<Arena>(count_)) {}

HostThreads::~HostThreads() = default;

void HostThreads::run(const std::function<void()>& body) const { arena_->arena.execute(body); }

void HostThreads::parallel(std::int64_t count, std::int64_t grain,
                           const std::function<void(std::int64_t, std::int64_t)>& body) const {
  if (count <= 0) return;
  const std::int64_t pieces = (count + grain - 1) / grain;
  const auto run_piece = [&](std::int64_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); };
  if (count_ == 1 || pieces == 1)
    return run([&] {
      for (std::int64_t piece = 0; piece < pieces; ++piece) run_piece(piece);
    });
  run([&] {
    oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::int64_t>(0, pieces, 1), [&](const auto& range) {
      for (std::int64_t piece = range.begin(); piece != range.end(); ++piece) run_piece(piece);
    });
  });
}

int available_threads() {
  cpu_set_t affinity;
  int threads = sched_getaffinity(0, sizeof affinity, &affinity) == 0 ? CPU_COUNT(&affinity) : 1;
  if (const char* slurm = std::getenv("SLURM_CPUS_PER_TASK")) {
    int granted = 0;
    const auto [end, fault] = std::from_chars(slurm, slurm + std::strlen(slurm), granted);
    if (fault == std::errc{} && *end == '\0' && granted > 0) threads = std::min(threads, granted);
  }
  return std::max(threads, 1);
}

}  // namespace volpipe
