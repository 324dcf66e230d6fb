// volpipe stages: the stages, their parameters, defaults and units, from their declarations.
#include <iostream>

#include "command.h"
#include "pipeline/pipeline.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

std::string_view targets_in_words(StageTargets targets) {
  switch (targets) {
    case StageTargets::all:
      return "every image";
    case StageTargets::images:
      return "images";
    case StageTargets::labels:
      break;
  }
  return "labels";
}

Json to_json(const StageDefinition& stage) {
  Json parameters = Json::array();
  for (const ParameterInfo& info : stage.parameters) {
    Json entry = {
        {"name", info.name}, {"type", info.type}, {"required", info.limits.required}, {"default", info.default_value}};
    entry["unit"] = info.limits.unit;
    entry["help"] = info.help;
    entry["schema"] = info.schema;
    parameters.push_back(std::move(entry));
  }
  return {{"op", stage.op},
          {"family", stage.family},
          {"summary", stage.summary},
          {"acts_on", targets_in_words(stage.targets)},
          {"devices", {"cpu", "cuda"}},
          {"parameters", std::move(parameters)},
          {"example", stage.example}};
}

std::string default_in_words(const ParameterInfo& info) {
  return info.limits.required ? "required" : info.default_value.is_null() ? "-" : info.default_value.dump();
}

void print_one(const StageDefinition& stage) {
  std::cout << stage.op << " (" << stage.family << "): " << stage.summary << "\nActs on "
            << targets_in_words(stage.targets) << " unless \"on\" says otherwise; runs on cpu and cuda.\n\n";
  for (const ParameterInfo& info : stage.parameters) {
    const std::string range = detail::range_in_words(info.limits);
    std::cout << "  " << info.name << "  (default " << default_in_words(info) << ")\n      " << info.help << "\n      "
              << info.type << (range.empty() ? "" : ", " + range)
              << (info.limits.unit.empty() ? "" : ", " + info.limits.unit) << "\n";
  }
  std::cout << "\nExample: " << stage.example.dump() << "\n";
}

void print_all() {
  for (const StageDefinition& stage : stages())
    std::printf("%-16s %-10s %s\n", stage.op.c_str(), stage.family.c_str(), stage.summary.c_str());
  std::cout << "\nEvery stage also takes \"on\", \"name\", \"probability\" and \"precision\". 'volpipe stages NAME' "
               "shows its parameters.\n";
}

std::string in_cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.replace(at, 1, "\\|");
  return text;
}

void print_markdown() {
  std::cout << "| stage | family | what it does | parameters (default) |\n|---|---|---|---|\n";
  for (const StageDefinition& stage : stages()) {
    std::string parameters;
    for (const ParameterInfo& info : stage.parameters)
      parameters += (parameters.empty() ? "`" : ", `") + info.name + "` (" + in_cell(default_in_words(info)) + ")";
    std::cout << "| `" << stage.op << "` | " << stage.family << " | " << in_cell(stage.summary) << " | " << parameters
              << " |\n";
  }
}

const StageDefinition& find_or_suggest(const std::string& op) {
  if (const StageDefinition* stage = find_stage(op)) return *stage;
  std::vector<std::string> ops;
  for (const StageDefinition& stage : stages()) ops.push_back(stage.op);
  throw Error(ErrorCode::usage,
              "there is no stage '" + op + "'" + did_you_mean(op, ops) + "; 'volpipe stages' lists them");
}

}  // namespace

Command add_stages(CLI::App& parent) {
  struct Flags {
    std::string op;
    bool json = false, markdown = false;
  };
  CLI::App* command = parent.add_subcommand("stages", "List the stages, or show one with its parameters");
  const auto flags = std::make_shared<Flags>();
  command->add_option("NAME", flags->op, "a stage");
  command->add_flag("--json", flags->json, "as JSON");
  command->add_flag("--markdown", flags->markdown, "all as a Markdown table (the README's)");
  return [flags] {
    if (!flags->op.empty()) {
      const StageDefinition& stage = find_or_suggest(flags->op);
      if (flags->json) std::cout << to_json(stage).dump(2) << "\n";
      else print_one(stage);
    } else if (flags->json) {
      Json list = Json::array();
      for (const StageDefinition& stage : stages()) list.push_back(to_json(stage));
      std::cout << Json{{"stages", list}}.dump(2) << "\n";
    } else if (flags->markdown) {
      print_markdown();
    } else {
      print_all();
    }
    return kSuccess;
  };
}

}  // namespace volpipe::app
