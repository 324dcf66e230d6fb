// Every stage there is. A source lib/stages/<family>/<op>.cpp that defines `StageDefinition stage_<op>()` is in it.
#pragma once

#include <string_view>
#include <vector>

#include "stages/stage.h"

namespace volpipe {

const std::vector<StageDefinition>& stages();
const StageDefinition* find_stage(std::string_view op);  ///< null when there is none of that name

}  // namespace volpipe
