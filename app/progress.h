// What a user sees of a run on standard error while it goes on, and at its end.
#pragma once

#include <map>
#include <string>

#include "pipeline/runner.h"

namespace volpipe::app {

enum class ProgressStyle { none, lines, bar };

/// "auto", "bar", "plain" or "none" -> a bar where somebody watches, else a line an item.
ProgressStyle progress_style(const std::string& word, bool quiet);

class Progress final : public RunObserver {
 public:
  explicit Progress(ProgressStyle style) : style_(style) {}

  void finished(const ItemRecord& record, const RunProgress& progress) override;
  void tick(const RunProgress& progress) override;
  void interrupted() override;
  /// Ends the line of the bar.
  void end();

 private:
  void draw(const RunProgress& progress);

  ProgressStyle style_;
  bool drawn_ = false;
  double drawn_at_ms_ = 0;
  std::map<std::string, double> load_;  ///< of each device, smoothed
};

/// Totals, shares of time, the slowest items, where the report is.
void print_summary(const RunRecord& run, const std::string& report_path);

}  // namespace volpipe::app
