#include "progress.h"

#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace volpipe::app {

namespace {

constexpr double kRedrawMs = 200;
constexpr std::size_t kBarWidth = 24, kSlowest = 5;

std::string duration(double seconds) {
  const auto whole = (long long)(std::llround(seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

/// Seconds to go, by the bytes of files; by items where files have none.
double seconds_left(const RunProgress& progress) {
  const bool by_bytes = progress.bytes_total > 0 && progress.bytes_done > 0;
  const double done = by_bytes ? progress.bytes_done / progress.bytes_total
                               : double(progress.done) / double(std::max<std::size_t>(progress.total, 1));
  return done > 0 ? progress.elapsed_ms / 1e3 * (1 - done) / done : 0;
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void clear_line() { std::fputs("\r\033[K", stderr); }

double reading(const ItemRecord& item) { return item.timing.read + item.timing.decode; }
double computing(const ItemRecord& item) { return item.timing.upload + item.timing.compute + item.timing.download; }
double writing(const ItemRecord& item) { return item.timing.encode + item.timing.write; }

std::string name_of(const ItemRecord& item) {
  return item.repeat > 0 ? fmt::format("{} (version {})", item.id, item.repeat) : item.id;
}

void log_record(const ItemRecord& item) {
  for (const Notice& notice : item.warnings) spdlog::warn("{}: {}", name_of(item), notice.message);
  if (item.status == ItemStatus::failed)
    spdlog::error("{}: {}{}", item.error_path.empty() ? name_of(item) : item.error_path,
                  item.error_stage.empty() ? "" : item.error_stage + ": ", item.error_message);
  for (const StageRecord& stage : item.stages)
    spdlog::debug("{}: {} on {} ({}): {:.2f} ms", name_of(item), stage.name, stage.image, item.device, stage.ms);
}

}  // namespace

ProgressStyle progress_style(const std::string& word, bool quiet) {
  if (quiet || word == "none") return ProgressStyle::none;
  const bool watched = word == "auto" && isatty(STDERR_FILENO);
  return word == "bar" || watched ? ProgressStyle::bar : ProgressStyle::lines;
}

void Progress::finished(const ItemRecord& record, const RunProgress& progress) {
  if (drawn_) clear_line();
  drawn_ = false;
  log_record(record);
  if (style_ == ProgressStyle::lines && record.status == ItemStatus::ok)
    spdlog::info("[{}/{}] {} {:.0f} ms on {}", progress.done, progress.total, name_of(record), record.timing.total,
                 record.device);
  if (style_ == ProgressStyle::bar) draw(progress);
}

void Progress::tick(const RunProgress& progress) {
  if (style_ != ProgressStyle::bar) return;
  for (const auto& [device, load] : progress.load) {
    double& smoothed = load_.emplace(device, load).first->second;
    smoothed += 0.2 * (load - smoothed);
  }
  if (progress.elapsed_ms - drawn_at_ms_ >= kRedrawMs) draw(progress);
}

void Progress::interrupted() {
  if (drawn_) clear_line();
  drawn_ = false;
  spdlog::warn("stopping: what is being computed is finished and written; a second signal ends at once");
}

void Progress::draw(const RunProgress& progress) {
  drawn_at_ms_ = progress.elapsed_ms;
  const std::size_t filled = kBarWidth * progress.done / std::max<std::size_t>(progress.total, 1);
  const double seconds = std::max(progress.elapsed_ms, 1.0) / 1e3;
  std::string line =
      fmt::format("[{}{}] {}/{}  {:.0f} MB/s", std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
                  progress.done, progress.total, progress.voxel_bytes / 1e6 / seconds);
  for (const auto& [device, load] : load_) line += fmt::format("  {} {:.0f} %", device, 100 * load);
  if (progress.done > 0 && progress.done < progress.total) line += "  ETA " + duration(seconds_left(progress));
  line.resize(std::min(line.size(), terminal_width() - 1));
  clear_line();
  std::fputs(line.c_str(), stderr);
  drawn_ = true;
}

void Progress::end() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

void print_summary(const RunRecord& run, const std::string& report_path) {
  double read = 0, compute = 0, write = 0, bytes = 0;
  std::vector<const ItemRecord*> worked;
  for (const ItemRecord& item : run.items) {
    read += reading(item);
    compute += computing(item);
    write += writing(item);
    if (item.status == ItemStatus::ok) worked.push_back(&item);
    for (const ImageRecord& image : item.inputs) bytes += double(image.info.bytes());
  }
  const double seconds = std::max(run.wall_ms, 1e-3) / 1e3, work = std::max(read + compute + write, 1e-9);
  if (worked.size() > 1) {
    spdlog::info("read {:.0f} %, compute {:.0f} %, write {:.0f} % of {:.1f} s of work; {:.2f} volumes/s, {:.0f} MB/s",
                 100 * read / work, 100 * compute / work, 100 * write / work, work / 1e3,
                 double(worked.size()) / seconds, bytes / 1e6 / seconds);
    const std::size_t shown = std::min(kSlowest, worked.size());
    std::partial_sort(worked.begin(), worked.begin() + std::ptrdiff_t(shown), worked.end(),
                      [](const ItemRecord* a, const ItemRecord* b) {
                        return reading(*a) + computing(*a) + writing(*a) > reading(*b) + computing(*b) + writing(*b);
                      });
    spdlog::info("slowest, ms:    read  compute    write");
    for (std::size_t i = 0; i < shown; ++i)
      spdlog::info("{:>20.0f} {:>8.0f} {:>8.0f}  {}", reading(*worked[i]), computing(*worked[i]), writing(*worked[i]),
                   name_of(*worked[i]));
  }
  if (run.interrupted) spdlog::warn("interrupted: the same command with --resume goes on from here");
  const std::size_t resumed = run.count(ItemStatus::resumed);
  spdlog::info("{} ok, {} failed, {} skipped{} in {:.2f} s on {}; report: {}", run.count(ItemStatus::ok),
               run.count(ItemStatus::failed), run.count(ItemStatus::skipped),
               resumed ? fmt::format(", {} done before", resumed) : "", seconds, run.device.name(), report_path);
}

}  // namespace volpipe::app
