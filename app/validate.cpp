// volpipe validate: checks a spec and lists every fault.
#include <spdlog/spdlog.h>

#include <iostream>

#include "command.h"
#include "pipeline/pipeline.h"
#include "settings.h"

namespace volpipe::app {

Command add_validate(CLI::App& parent) {
  struct Flags {
    std::string spec;
    std::vector<std::string> settings;
  };
  CLI::App* command = parent.add_subcommand("validate", "Check a spec; exit 2 with every fault listed");
  const auto flags = std::make_shared<Flags>();
  command->add_option("SPEC", flags->spec, "the pipeline, a JSON file")->required();
  command->add_option("--set", flags->settings, "NAME=VALUE of a variable of the spec (repeatable)")
      ->allow_extra_args(false);
  return [flags] {
    const Pipeline pipeline = load_pipeline(flags->spec, parse_settings(flags->settings));
    for (const Notice& notice : pipeline.notices.list()) spdlog::warn("{}", notice.message);
    std::cout << flags->spec << ": ok, " << pipeline.stages.size() << " stages\n";
    return kSuccess;
  };
}

}  // namespace volpipe::app
