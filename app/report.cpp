// volpipe report merge: one report of the reports of shards.
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "command.h"
#include "pipeline/merge_reports.h"
#include "settings.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

struct Flags {
  std::vector<std::string> reports;
  std::string output;
};

Json read_report(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw Error(ErrorCode::usage, "this is a folder: name the report files in it").with_path(path);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad() || text.empty())
    throw Error(ErrorCode::usage, "the report cannot be read").with_path(path);
  Json report = Json::parse(text, nullptr, false);
  if (report.is_discarded()) throw Error(ErrorCode::usage, "the report is not JSON").with_path(path);
  return report;
}

int merge(const Flags& flags) {
  std::vector<NamedReport> reports;
  for (const std::string& path : flags.reports) reports.emplace_back(path, read_report(path));
  const Json merged = merge_reports(reports);
  write_json(merged, flags.output);
  bool missing = false;
  for (const Json& warning : merged["warnings"])
    if (warning["code"] == "missing_shard") {
      spdlog::error("{}", warning["message"].get<std::string>());
      missing = true;
    }
  for (const Json& item : merged["items"])
    if (item.value("status", "") == "failed" && item.contains("error"))
      spdlog::error("{}: {}", item["error"].value("path", ""), item["error"].value("message", ""));
  const Json& totals = merged["totals"];
  spdlog::info("{} items: {} ok, {} done before, {} failed, {} skipped; report: {}", totals["items"].get<long>(),
               totals["ok"].get<long>(), totals["resumed"].get<long>(), totals["failed"].get<long>(),
               totals["skipped"].get<long>(), flags.output);
  const bool all = totals["ok"].get<long>() + totals["resumed"].get<long>() == totals["items"].get<long>();
  return all && !missing ? kSuccess : kSomeFailed;
}

}  // namespace

Command add_report(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand("report", "Work with reports of runs");
  CLI::App* merging = command->add_subcommand("merge", "One report of the reports of shards");
  command->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  merging->add_option("REPORT", flags->reports, "reports of the shards of one run")->required();
  merging->add_option("-o,--output", flags->output, "file for the merged report; it is replaced")->required();
  merging->footer(
      "Exit code 0 when every item has its outputs and no shard is missing, else 1.\n"
      "Example: volpipe report merge results/volpipe-report.*-of-16.json -o results/volpipe-report.json");
  return [flags] { return merge(*flags); };
}

}  // namespace volpipe::app
