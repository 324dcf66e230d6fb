#include "stages/registry.h"

namespace volpipe {

const StageDefinition* find_stage(std::string_view op) {
  for (const StageDefinition& definition : stages())
    if (definition.op == op) return &definition;
  return nullptr;
}

}  // namespace volpipe
