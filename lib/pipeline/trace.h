// A timeline of a run in the Trace Event Format, which chrome://tracing and Perfetto show.
// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace volpipe {

/// Host time, milliseconds; only differences mean something.
inline double host_clock_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Written event by event, so that a run that is killed leaves a trace that can be shown. Any thread may add.
class Trace {
 public:
  /// Throws Error(usage) when the file cannot be written.
  explicit Trace(const std::string& path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// What `track` (a thread, a stream) did from one host_clock_ms() to another.
  void add(const std::string& track, const std::string& name, double begin_ms, double end_ms, const std::string& item);

  /// False when something could not be written.
  bool sound() const { return !std::ferror(file_.get()); }

 private:
  void write(const std::string& event);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const double start_ms_ = host_clock_ms();
  std::mutex mutex_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::map<std::string, int> tracks_;
  bool first_ = true;
};

/// Adds what happened during its life; does nothing without a trace.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, std::string track, std::string name, std::string item)
      : trace_(trace), track_(std::move(track)), name_(std::move(name)), item_(std::move(item)) {}
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (trace_) trace_->add(track_, name_, begin_ms_, host_clock_ms(), item_);
  }

 private:
  Trace* trace_;
  std::string track_, name_, item_;
  double begin_ms_ = host_clock_ms();
};

}  // namespace volpipe
