// volpipe: runs JSON pipelines of transform stages over volumes. Each command is one file beside this one; what they do
// is in lib/, starting at lib/pipeline.
#include <fcntl.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <vector>

#include "command.h"
#include "pipeline/pipeline.h"
#include "pipeline/report.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
    case ErrorCode::exists:
      return kUsage;
    case ErrorCode::device:
      return kDevice;
    case ErrorCode::output:
      return kOutput;
    case ErrorCode::internal:
      return kInternal;
    case ErrorCode::input:
    case ErrorCode::out_of_memory:
    case ErrorCode::unsupported:
      return kSomeFailed;
  }
  return kInternal;
}

int report_error(const Error& error) {
  std::string where;
  if (!error.path().empty()) where += error.path() + ": ";
  if (!error.stage().empty()) where += error.stage() + ": ";
  spdlog::error("{}{}", where, error.what());
  return exit_code_of(error.code());
}

/// The code, unless what was printed did not arrive.
int flushed(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout) return code;
  spdlog::error("standard output cannot be written");
  return kOutput;
}

int no_such_command(const std::string& word, const std::vector<std::pair<const CLI::App*, Command>>& commands) {
  std::vector<std::string> names;
  for (const auto& [subcommand, run] : commands) names.push_back(subcommand->get_name());
  spdlog::error("there is no command '{}'{} (see --help)", word, did_you_mean(word, names));
  return kUsage;
}

bool cpu_is_supported() {
#if defined(__x86_64__) && defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

/// A file that is opened must not become standard output or standard error because those were closed.
void fill_standard_descriptors() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{
      "Runs JSON pipelines of transform stages over medical and scientific volumes, on the CPU or an NVIDIA GPU.",
      "volpipe"};
  app.set_version_flag("--version", "volpipe " + version() + " (" + build_description() + ")");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 all done, 1 some items failed (or volumes differ), 2 wrong usage, spec or inputs, 3 device not "
      "usable,\n"
      "4 outputs cannot be written, 70 internal error, 130/143 interrupted. See 'volpipe COMMAND --help'.");
  std::vector<std::pair<const CLI::App*, Command>> commands;
  for (auto* add : {add_run, add_validate, add_plan, add_stages, add_schema, add_devices, add_info, add_compare,
                    add_preview, add_report, add_phantom, add_calc, add_train_landmarks}) {
    Command command = add(app);
    commands.emplace_back(app.get_subcommands({}).back(), std::move(command));
  }

  const bool first_is_word = argc > 1 && argv[1][0] != '-';
  const auto is_first = [&](const auto& command) { return command.first->get_name() == argv[1]; };
  if (first_is_word && std::none_of(commands.begin(), commands.end(), is_first))
    return no_such_command(argv[1], commands);

  try {
    app.parse(argc, argv);
    for (const auto& [subcommand, run] : commands)
      if (subcommand->parsed()) return flushed(run());
    return kInternal;
  } catch (const CLI::Success& help) { return flushed(app.exit(help)); } catch (const CLI::ParseError& error) {
    spdlog::error("{} (see --help)", error.what());
    return kUsage;
  }
}

int main(int argc, char** argv) {
  fill_standard_descriptors();
  signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error of one write, not the end of a run
  signal(SIGXFSZ, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("volpipe"));
  spdlog::set_pattern("volpipe: %l: %v");
  if (!cpu_is_supported()) {
    spdlog::error(
        "this build needs a processor with AVX2 and FMA; build with -DVOLPIPE_CPU_FLAGS=-march=native for this one");
    return kInternal;
  }

  try {
    return parse_and_run(argc, argv);
  } catch (const SpecError& error) {
    for (const std::string& line : error.lines()) spdlog::error("{}", line);
    return kUsage;
  } catch (const Error& error) { return report_error(error); } catch (const std::exception& error) {
    spdlog::error("internal error: {}", error.what());
    return kInternal;
  }
}

}  // namespace
}  // namespace volpipe::app

int main(int argc, char** argv) { return volpipe::app::main(argc, argv); }
