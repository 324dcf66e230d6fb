// volpipe calc: image arithmetic in one line, the expression stage without a spec.
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <iostream>

#include "command.h"
#include "pipeline/file_cache.h"
#include "pipeline/runner.h"
#include "read_options.h"
#include "settings.h"
#include "sources.h"
#include "stages/expression/expression.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

struct Flags {
  std::string expression, output, device = "auto", dtype, boundary, memory, seed = "0";
  std::vector<std::string> images;
  bool no_fallback = false, overwrite = false, in_double = false;
  int threads = 0;
  ReadFlags reading;
};

Item item_of(const Flags& flags) {
  Item item;
  item.id = item.stem = std::filesystem::path(flags.output).filename().string();
  for (const std::string& image : flags.images) {
    const std::size_t equals = image.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw Error(ErrorCode::usage, "'" + image + "' is not NAME=FILE, such as a=t1.nii.gz");
    const std::string name = image.substr(0, equals), file = image.substr(equals + 1);
    if (!item.images.emplace(name, single_source(file, to_read_options(flags.reading))).second)
      throw Error(ErrorCode::usage, "there are two images '" + name + "': give each a name of its own");
  }
  return item;
}

/// The result is a scalar where no output is named.
Json spec_of(const Flags& flags, const Item& item) {
  std::string result = "result";
  while (item.images.contains(result)) result += "_";
  Json spec = {{"volpipe", kSpecVersion}, {"inputs", Json::object()}};
  for (const auto& [name, source] : item.images) spec["inputs"][name] = {{"suffix", "_" + name}};
  Json stage = {{"op", "expression"}, {"expr", flags.expression}, {"output", result}};
  if (flags.output.empty()) stage["dtype"] = "float64";
  else if (!flags.dtype.empty()) stage["dtype"] = flags.dtype;
  if (!flags.boundary.empty()) stage["boundary"] = flags.boundary;
  if (flags.in_double || flags.output.empty()) stage["precision"] = "double";
  spec["stages"] = {stage};
  const std::string file = std::filesystem::path(flags.output).filename().string();
  spec["outputs"][result] = {{"path", flags.output.empty() ? "result.nii.gz" : file}};
  return spec;
}

/// Parses the expression alone first, so that a fault of it is shown without the spec around it.
void check_expression(const Flags& flags, const Item& item) {
  ExpressionNames names;
  for (const auto& [name, source] : item.images) names.images.emplace(name, name);
  const Expression expression = parse_expression(flags.expression, names);
  if (flags.output.empty() && expression[expression.result()].varies)
    throw Error(ErrorCode::usage,
                "the result is an image: name a file for it with -o (a single number, such as mean(a), is printed)");
}

RunOptions options_of(const Flags& flags) {
  RunOptions options;
  if (!flags.output.empty()) options.output_directory = std::filesystem::absolute(flags.output).parent_path().string();
  options.allow_fallback = !flags.no_fallback;
  options.device = choose_device(flags.device, options.allow_fallback);
  options.threads = flags.threads;
  options.memory_limit = flags.memory.empty() ? 0 : parse_bytes("--memory", flags.memory);
  options.overwrite = flags.overwrite;
  options.seed = parse_seed(flags.seed);
  options.reading = to_read_options(flags.reading);
  if (!options.device.fallback_reason.empty() && flags.device != "auto")
    spdlog::warn("running on the CPU: {}", options.device.fallback_reason);
  return options;
}

void print_scalar(const Pipeline& pipeline, const Item& item, const RunOptions& options) {
  ItemRecord record;
  const auto context = make_context(options.device.used.front(), options.threads);
  OpenItem opened(pipeline, item, options.reading, record);
  FileCache cache;
  ItemFiles files(cache, item);
  const ItemKey key{options.seed, item.id, 0};
  Images images = opened.read([&](std::size_t bytes) { return context->allocate_host(bytes); }, record);
  Plan plan = make_plan(pipeline, infos_of(images), key, &files);
  images = compute_item(*context, pipeline, plan, key, files, images, record);
  for (const Notice& notice : record.warnings) spdlog::warn("{}", notice.message);
  std::cout << fmt::format("{}", images.begin()->second.data_as<double>()[0]) << "\n";
}

int write_result(const Pipeline& pipeline, const Item& item, const RunOptions& options) {
  Items items{{item}, {}, {}};
  std::vector<std::string> faults = check_output_paths(pipeline, items, options.output_directory);
  if (!options.overwrite)
    for (std::string& fault : existing_outputs(pipeline, items, options.output_directory))
      faults.push_back(std::move(fault));
  for (const std::string& fault : faults) spdlog::error("{}", fault);
  if (!faults.empty()) return kUsage;
  const std::atomic<int> never{0};
  RunObserver nobody;
  const RunRecord run = run_items(pipeline, items, options, never, nobody);
  const ItemRecord& record = run.items.front();
  for (const Notice& notice : record.warnings) spdlog::warn("{}", notice.message);
  if (record.status == ItemStatus::ok) return kSuccess;
  throw Error(record.error_code, record.error_message).with_path(record.error_path);
}

/// The user wrote no spec, so faults are shown without their places in it.
Pipeline pipeline_of(const Flags& flags, const Item& item) {
  try {
    return parse_pipeline(spec_of(flags, item).dump(), "calc");
  } catch (const SpecError& error) { throw Error(ErrorCode::usage, error.faults().front().message); }
}

int calc(const Flags& flags) {
  const Item item = item_of(flags);
  check_expression(flags, item);
  const Pipeline pipeline = pipeline_of(flags, item);
  const RunOptions options = options_of(flags);
  if (!flags.output.empty()) return write_result(pipeline, item, options);
  print_scalar(pipeline, item, options);
  return kSuccess;
}

}  // namespace

Command add_calc(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand("calc", "Image arithmetic in one line");
  const auto flags = std::make_shared<Flags>();
  command->add_option("EXPR", flags->expression, "the expression, such as \"where(mask > 0, a - mean(a, mask), 0)\"")
      ->required();
  command->add_option("NAME=FILE", flags->images, "the images it names")->required();
  command->add_option("-o,--output", flags->output, "file for the result; without it a single number is printed");
  command->add_option("--dtype", flags->dtype,
                      "pixel type of the result (default: uint8 for true/false, else float32)");
  command->add_option("--boundary", flags->boundary, "of neighbours beyond the image (default: reflect)");
  command->add_flag("--double", flags->in_double, "compute and write in float64");
  command->add_option("--device", flags->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_flag("--no-fallback", flags->no_fallback,
                    "fail instead of using the CPU when the device asked for cannot be used");
  command->add_option("--threads", flags->threads, "host threads (default: those this process may use)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--memory", flags->memory, "bound on host memory for the volumes, such as 8G");
  add_read_options(*command, flags->reading);
  command->add_flag("--overwrite", flags->overwrite, "replace the output if it exists");
  command->footer(
      "An expression that begins with - comes after --.\nExample: volpipe calc \"(a - mean(a, m)) / std(a, m)\" "
      "a=t1.nii.gz m=brain.nii.gz -o z.nii.gz");
  return [flags] { return calc(*flags); };
}

}  // namespace volpipe::app
