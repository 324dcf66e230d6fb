// The commands of volpipe, one file each: declare flags on a CLI11 sub-command, call the library, print.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace volpipe::app {

/// Exit codes; see README "Exit codes". CLI11's own never leak.
enum ExitCode : int {
  kSuccess = 0,
  kSomeFailed = 1,  ///< some items failed (run), volumes differ (compare)
  kUsage = 2,       ///< wrong usage, spec or inputs, or outputs that exist: nothing was started
  kDevice = 3,      ///< the device asked for cannot be used and --no-fallback was given
  kOutput = 4,      ///< outputs cannot be written
  kInternal = 70,
  kInterrupted = 130,  ///< SIGINT
  kTerminated = 143    ///< SIGTERM
};

/// Adds a sub-command; the returned function runs it and gives the exit code. Results go to standard output, talk to
/// standard error; an Error may escape (main prints it and maps its code).
using Command = std::function<int()>;

Command add_run(CLI::App& parent);
Command add_validate(CLI::App& parent);
Command add_plan(CLI::App& parent);
Command add_stages(CLI::App& parent);
Command add_schema(CLI::App& parent);
Command add_devices(CLI::App& parent);
Command add_info(CLI::App& parent);
Command add_compare(CLI::App& parent);
Command add_preview(CLI::App& parent);
Command add_phantom(CLI::App& parent);
Command add_report(CLI::App& parent);
Command add_calc(CLI::App& parent);
Command add_train_landmarks(CLI::App& parent);

}  // namespace volpipe::app
