// One report of the reports of shards.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spec/parameters.h"

namespace volpipe {

/// Path and content of a report.
using NamedReport = std::pair<std::string, Json>;

/// Items by id, totals summed, times and memory of the slowest and largest, each shard's own figures under "shards",
/// and a warning for each shard that is missing. Throws Error(usage) when a file is no report, an item is in two of
/// them, or they come of different specs, versions or numbers of shards.
Json merge_reports(const std::vector<NamedReport>& reports);

}  // namespace volpipe
