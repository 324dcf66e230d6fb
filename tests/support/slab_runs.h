// What the tests of slabs share: an item cut into so many slabs, against one run over the whole.
#pragma once

#include <gtest/gtest.h>

#include "pipeline/slabs.h"
#include "support/pipeline_runs.h"

namespace volpipe::testing_support {

struct SlabRun {
  SlabResults results;
  Notices notices;
};

/// Every image cut into `slabs`, those that are asked about too.
inline SlabPlan slabs_of(const Plan& plan, std::int64_t slabs) {
  return {slabs, std::vector<std::int64_t>(plan.groups.size(), slabs), 0};
}

inline SlabRun run_in_slabs(DeviceContext& context, const Pipeline& pipeline, const Plan& plan, const SlabPlan& slabs,
                            const Images& images) {
  SlabRun run;
  run.results = compute_in_slabs(context, pipeline, plan, slabs, images, run.notices);
  return run;
}

inline Images copies_of(const Images& images) {
  Images copied;
  for (const auto& [name, volume] : images) copied.emplace(name, copy_of(volume));
  return copied;
}

inline bool asks_for_moments(const Plan& plan) {
  for (const Group& group : plan.groups)
    for (const auto& stage : group.pointwise)
      for (const StatisticsRequest& request : stage->requests())
        if (request.moments) return true;
  return false;
}

/// To the bit; where means and deviations are merged, 4 units in the last place of the largest float32 voxel, as a
/// constant of the program may round the other way and is multiplied and added to, and one step of integers.
inline void expect_alike(const Volume& whole, const Volume& slabs, bool to_the_bit, const std::string& trace) {
  ASSERT_EQ(whole.info(), slabs.info()) << trace;
  if (to_the_bit) {
    ASSERT_TRUE(same_bytes(whole, slabs)) << trace;
    return;
  }
  const std::vector<double> x = values_of(whole), y = values_of(slabs);
  double largest = 0;
  for (const double v : x)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  const double tolerance = is_floating(whole.dtype()) ? 4 * std::ldexp(largest, -23) : 1;
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE((std::isnan(x[i]) && std::isnan(y[i])) || x[i] == y[i] || std::abs(x[i] - y[i]) <= tolerance)
        << trace << ", voxel " << i << ": " << x[i] << ", " << y[i];
}

inline std::vector<std::string> sorted_notices(const std::vector<Notice>& notices) {
  std::vector<std::string> texts;
  for (const Notice& notice : notices) texts.push_back(notice.code + ": " + notice.message);
  std::sort(texts.begin(), texts.end());
  return texts;
}

/// Runs the pipeline whole and in each number of slabs. Saturated voxels are as many, and notices the same, where
/// `counts_alike`.
inline void expect_slabs_equal_whole(DeviceContext& context, const Pipeline& pipeline, const Images& images,
                                     std::vector<std::int64_t> counts = {1, 2, 3, 7, 33}, bool counts_alike = true) {
  const ItemKey key{.seed = 5, .item_id = "item"};
  TestFiles files;
  const Plan plan = make_plan(pipeline, infos_of(images), key, &files);
  const SlabChoice choice = plan_slabs(pipeline, plan, std::size_t(1) << 40);
  ASSERT_TRUE(choice.plan) << choice.why_not;
  EXPECT_EQ(choice.plan->slabs, 1);
  const PipelineResult whole = run_pipeline(context, pipeline, copies_of(images), key);
  for (const std::int64_t slabs : counts) {
    const std::string trace = pipeline.spec["stages"].dump() + " in " + std::to_string(slabs) + " slabs";
    const SlabRun run = run_in_slabs(context, pipeline, plan, slabs_of(plan, slabs), images);
    ASSERT_EQ(run.results.images.size(), whole.images.size()) << trace;
    for (const auto& [name, volume] : whole.images)
      expect_alike(volume, run.results.images.at(name), !asks_for_moments(plan), trace + ", " + name);
    if (!counts_alike) continue;
    EXPECT_EQ(run.results.saturated, whole.record.saturated_voxels) << trace;
    EXPECT_EQ(sorted_notices(run.notices.list()), sorted_notices(whole.record.warnings)) << trace;
  }
}

}  // namespace volpipe::testing_support
