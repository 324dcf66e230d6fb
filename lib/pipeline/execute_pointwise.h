// Runs pointwise groups: statistics first, then one pass with the program that they complete.
#pragma once

#include "pipeline/execute.h"

namespace volpipe {

/// The notices about voxels that a conversion to the group's integers changed.
void add_notices(const ConversionCounts& counts, const Group& group, Notices& notices);

/// True when a stage takes the statistics of each component by itself, so that each has a program of its own.
bool each_by_itself(const Group& group);

/// False where each component would be measured alike, because the values come from images of one component: what is
/// counted is counted once.
bool differs_by_component(const Group& group, const Mask& mask, const Program& program,
                          const std::function<bool(const std::string&)>& has_components);

/// Answers a stage's question about the values of `measured`.
using AnswerRequest = std::function<StatisticsResult(const StatisticsRequest& request, const Program& measured)>;

/// The program of a pointwise group, its questions answered one after another. Throws Error with the stage's label.
Program complete_program(const Pipeline& pipeline, const Group& group, ItemStatistics& statistics, Notices& notices,
                         const AnswerRequest& answer);

GroupResult run_pointwise(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                          ItemStatistics& statistics, Notices& notices);

}  // namespace volpipe
