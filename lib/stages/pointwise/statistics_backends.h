// The two executors behind the statistics: precision settled by the caller.
#pragma once

#include "device/cuda_hooks.h"
#include "stages/pointwise/statistics_ops.h"

namespace volpipe {

/// Finite values selected, and the keys at percentile_ranks(count, percents).
struct OrderStatistics {
  std::int64_t count = 0;
  std::vector<std::uint64_t> keys{};
};

namespace cpu {
Moments moments(DeviceContext& context, const SampledValues& values);
Moments range(DeviceContext& context, const SampledValues& values);
OrderStatistics order_statistics(DeviceContext& context, const SampledValues& values, const KeyFormat& format,
                                 std::span<const double> percents);
std::vector<std::int64_t> histogram(DeviceContext& context, const SampledValues& values, double low, double high,
                                    int bins);
}  // namespace cpu

namespace cuda {
VOLPIPE_CUDA_CODE Moments moments(DeviceContext& context, const SampledValues& values);
VOLPIPE_CUDA_CODE Moments range(DeviceContext& context, const SampledValues& values);
VOLPIPE_CUDA_CODE OrderStatistics order_statistics(DeviceContext& context, const SampledValues& values,
                                                   const KeyFormat& format, std::span<const double> percents);
VOLPIPE_CUDA_CODE std::vector<std::int64_t> histogram(DeviceContext& context, const SampledValues& values, double low,
                                                      double high, int bins);
}  // namespace cuda

}  // namespace volpipe
