// volpipe schema: the JSON Schema of the spec, for editors.
#include <iostream>

#include "command.h"
#include "pipeline/pipeline.h"

namespace volpipe::app {

Command add_schema(CLI::App& parent) {
  parent.add_subcommand("schema", "Print the JSON Schema of the spec (for editors)");
  return [] {
    std::cout << spec_schema().dump(2) << "\n";
    return kSuccess;
  };
}

}  // namespace volpipe::app
