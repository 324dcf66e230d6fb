// volpipe run: a pipeline over every input, with progress, a report and exit codes.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "command.h"
#include "io/atomic_file.h"
#include "pipeline/journal.h"
#include "pipeline/runner.h"
#include "progress.h"
#include "read_options.h"
#include "settings.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

std::atomic<int> interrupted{0};

/// The first signal lets the current item finish; the second ends at once.
void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupted = signal; };
  action.sa_flags = int(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Flags {
  std::string spec, output, device = "auto", memory, device_memory, shard, report, trace, log_file, manifest,
                            progress = "auto";
  std::vector<std::string> inputs, settings;
  std::string on_error = "skip";
  bool no_fallback = false, overwrite = false, resume = false, strict = false, quiet = false, verbose = false;
  bool allow_custom_kernels = false;
  int threads = 0;
  std::string seed = "0";
  ReadFlags reading;
};

/// A variable of a script that is not set must not count as an option that was not given.
CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) { return text.empty() ? std::string("it is empty") : std::string(); },
                        "");
}

void add_options(CLI::App& command, Flags& flags) {
  command.add_option("SPEC", flags.spec, "the pipeline, a JSON file")->required();
  command.add_option(
      "INPUT", flags.inputs,
      "files, DICOM series folders, folders searched recursively, @LIST, or - for paths on standard input");
  command.add_option("-o,--output", flags.output, "folder for the results and the report")->required();
  command.add_option("--manifest", flags.manifest,
                     "JSON or CSV, one item a row, columns named after the spec's inputs");
  command.add_option("--device", flags.device, "auto, cpu, cuda, cuda:N, cuda:N,M or cuda:all")->capture_default_str();
  command.add_flag("--no-fallback", flags.no_fallback,
                   "fail instead of using the CPU when the device asked for cannot be used");
  command.add_option("--threads", flags.threads, "host threads (default: those this process may use)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--memory", flags.memory,
                  "bound on host memory for the volumes in flight, such as 8G (default: half of what is available)")
      ->check(not_empty());
  command
      .add_option("--device-memory", flags.device_memory,
                  "bound on the memory of each GPU, such as 8G (default: what is free)")
      ->check(not_empty());
  command.add_flag("--overwrite", flags.overwrite, "replace outputs that exist");
  command
      .add_flag("--resume", flags.resume,
                "leave out items that an earlier run into OUTPUT finished, from the same inputs with the same spec")
      ->excludes("--overwrite");
  command.add_option("--on-error", flags.on_error, "after a failed item: skip it and go on, or stop")
      ->check(CLI::IsMember({"skip", "stop"}))
      ->capture_default_str();
  add_read_options(command, flags.reading);
  command.add_flag("--strict", flags.strict, "a notice about an input is an error");
  command.add_flag("--allow-custom-kernels", flags.allow_custom_kernels,
                   "run the code of the spec's cuda_kernel stages: only for specs that you trust");
  command
      .add_option(
          "--shard", flags.shard,
          "I/N: only every N-th item, starting with the I-th; auto: the task of an array job (Slurm, PBS, Grid Engine)")
      ->check(not_empty());
  command.add_option("--set", flags.settings, "NAME=VALUE of a variable of the spec (repeatable)")
      ->allow_extra_args(false);
  command.add_option("--seed", flags.seed, "seed of random parameters")->capture_default_str();
  command.add_option(
      "--report", flags.report,
      "path of the report (default: OUTPUT/volpipe-report.json; of a shard: volpipe-report.I-of-N.json)");
  command.add_option("--trace", flags.trace, "write a timeline for chrome://tracing or Perfetto to this file");
  command.add_option("--log-file", flags.log_file, "also write the log to this file");
  command.add_flag("-q,--quiet", flags.quiet, "errors only");
  command.add_flag("-v,--verbose", flags.verbose, "also notes and stage times");
  command.add_option("--progress", flags.progress, "auto, bar, plain or none")
      ->check(CLI::IsMember({"auto", "bar", "plain", "none"}))
      ->capture_default_str();
}

void open_log_file(const Flags& flags) {
  if (flags.log_file.empty()) return;
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(flags.log_file);
    spdlog::default_logger()->sinks().push_back(file);
    spdlog::set_pattern("volpipe: %l: %v");
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(ErrorCode::usage, "cannot write the log file '" + flags.log_file + "': " + error.what());
  }
}

int signal_code() { return interrupted == SIGTERM ? kTerminated : kInterrupted; }

int exit_code_of(const RunRecord& run) {
  for (const ItemRecord& item : run.items)
    if (item.status == ItemStatus::failed && item.error_code == ErrorCode::output) return kOutput;
  if (run.interrupted) return signal_code();
  return run.count(ItemStatus::ok) + run.count(ItemStatus::resumed) == run.items.size() ? kSuccess : kSomeFailed;
}

void make_output_folder(const std::string& path) {
  std::error_code fault;
  std::filesystem::create_directories(path, fault);
  if (fault || access(path.c_str(), W_OK) != 0)
    throw Error(ErrorCode::output, "cannot write into the output folder '" + path +
                                       "': " + (fault ? fault.message() : "permission denied"));
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

void check_given_code(const Pipeline& pipeline, const Flags& flags) {
  if (const StageEntry* stage = pipeline.find_given_code(); stage && !flags.allow_custom_kernels)
    throw Error(ErrorCode::usage, flags.spec + ": " + stage->pointer + ": '" + stage->label +
                                      "' holds code that can do anything on the GPU: read it, and give "
                                      "--allow-custom-kernels if you trust it");
}

std::string report_path_of(const Flags& flags, const Shard& shard) {
  return flags.report.empty() ? flags.output + "/volpipe-report" + shard.suffix() + ".json" : flags.report;
}

RunOptions options_of(const Flags& flags) {
  RunOptions options;
  options.output_directory = flags.output;
  options.allow_fallback = !flags.no_fallback;
  options.device = choose_device(flags.device, options.allow_fallback);
  options.threads = flags.threads;
  options.memory_limit = flags.memory.empty() ? 0 : parse_bytes("--memory", flags.memory);
  options.device_memory = flags.device_memory.empty() ? 0 : parse_bytes("--device-memory", flags.device_memory);
  options.overwrite = flags.overwrite || flags.resume;
  options.stop_on_error = flags.on_error == "stop";
  options.strict = flags.strict;
  options.seed = parse_seed(flags.seed);
  options.reading = to_read_options(flags.reading);
  return options;
}

Items items_of(const Flags& flags, const Pipeline& pipeline) {
  for (const Notice& notice : pipeline.notices.list()) spdlog::warn("{}", notice.message);
  const HostThreads threads(flags.threads);
  Items items = collect_items(pipeline, flags.inputs, flags.manifest, to_read_options(flags.reading, &threads));
  for (const Notice& notice : items.notices.list()) spdlog::warn("{}", notice.message);
  return items;
}

/// Takes the shard's items; false, with a line each, when something stands where an output goes.
bool take_items(const Flags& flags, const Pipeline& pipeline, const Shard& shard,
                const std::vector<std::string>& own_files, Items& items) {
  std::vector<std::string> faults = check_output_paths(pipeline, items, flags.output, own_files);
  take_shard(items, shard);
  if (!flags.overwrite && !flags.resume)
    for (std::string& fault : existing_outputs(pipeline, items, flags.output)) faults.push_back(std::move(fault));
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) spdlog::error("{}", faults[i]);
  if (faults.size() > kShown) spdlog::error("and {} more of these", faults.size() - kShown);
  return faults.empty();
}

void say_device(const Flags& flags, const DeviceChoice& device) {
  if (device.fallback_reason.empty()) return;
  spdlog::log(flags.device == "auto" ? spdlog::level::info : spdlog::level::warn, "running on {}: {}",
              device.used.front().is_cpu() ? "the CPU" : device.name(), device.fallback_reason);
}

/// What decides results and is not in the spec.
std::string key_of(const Flags& flags, const Pipeline& pipeline, const RunOptions& options) {
  Json decisions = to_json(flags.reading);
  decisions["strict"] = options.strict;
  return run_key(pipeline, options.seed, decisions);
}

int run(const Flags& flags) {
  install_signal_handlers();
  spdlog::set_level(flags.quiet ? spdlog::level::err : flags.verbose ? spdlog::level::debug : spdlog::level::info);
  const Pipeline pipeline = load_pipeline(flags.spec, parse_settings(flags.settings));
  check_given_code(pipeline, flags);
  if (flags.inputs.empty() && flags.manifest.empty())
    throw Error(ErrorCode::usage, "name at least one INPUT or a --manifest");
  const Shard shard = flags.shard.empty() ? Shard{} : parse_shard(flags.shard);
  RunOptions options = options_of(flags);
  Items items;
  try {
    items = items_of(flags, pipeline);
  } catch (const Error&) {
    if (interrupted) return signal_code();
    throw;
  }
  const std::string all = fingerprint(items);
  const std::string report_path = report_path_of(flags, shard), journal_path = journal_name(shard);
  if (!take_items(flags, pipeline, shard, {report_path, flags.log_file, flags.trace, flags.output + "/" + journal_path},
                  items))
    return kUsage;
  make_output_folder(flags.output);
  { const io::AtomicFile can_be_written(report_path, true); }
  open_log_file(flags);
  say_device(flags, options.device);

  const std::string key = key_of(flags, pipeline, options);
  std::vector<ItemRecord> resumed;
  std::vector<std::string> earlier;
  if (flags.resume) {
    const FinishedItems finished(flags.output);
    earlier = finished.processes(journal_path);
    resumed = take_finished(pipeline, items, finished, key);
    if (const std::size_t others = finished.made_otherwise(items, key))
      spdlog::warn(
          "{} items were finished with another spec, variable, seed, option or version of volpipe: they are made again "
          "and replaced",
          others);
  }
  Journal journal(flags.output, journal_path, key, flags.resume);
  options.journal = &journal;
  remove_partial_files(pipeline, items, flags.output, earlier);
  std::optional<Trace> trace;
  if (!flags.trace.empty()) options.trace = &trace.emplace(flags.trace);

  Progress progress(progress_style(flags.progress, flags.quiet));
  RunRecord record = run_items(pipeline, items, options, interrupted, progress);
  progress.end();
  record.add_resumed(std::move(resumed));
  Json report = make_report(record, pipeline, command_line());
  report["run_key"] = key;
  report["all_items"] = all;
  if (!shard.whole()) report["shard"] = {{"index", shard.index}, {"count", shard.count}};
  write_json(report, report_path);
  print_summary(record, report_path);
  if (trace && !trace->sound()) spdlog::warn("the trace '{}' is not whole: is its disk full?", flags.trace);
  return exit_code_of(record);
}

}  // namespace

Command add_run(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand("run", "Run a pipeline over every input");
  const auto flags = std::make_shared<Flags>();
  add_options(*command, *flags);
  command->footer("Example: volpipe run configs/demo.json sample_data -o results --device auto");
  return [flags] { return run(*flags); };
}

}  // namespace volpipe::app
