#include "pipeline/shard.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "volume/error.h"

namespace volpipe {

namespace {

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int> variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? number_of(text) : std::nullopt;
}

/// Task numbers run from `first` by `step`.
Shard of_array(int task, int first, int step, int count, const char* scheduler) {
  const int place = step > 0 ? (task - first) / step : -1;
  if (step < 1 || task < first || (task - first) % step != 0 || place >= count)
    throw Error(ErrorCode::usage, std::string("--shard auto: the variables of ") + scheduler +
                                      " contradict each other (task " + std::to_string(task) + " of " +
                                      std::to_string(count) + " from " + std::to_string(first) + "): give --shard I/N");
  return {place + 1, count};
}

/// https://slurm.schedmd.com/job_array.html
std::optional<Shard> of_slurm() {
  const auto task = variable("SLURM_ARRAY_TASK_ID"), count = variable("SLURM_ARRAY_TASK_COUNT");
  if (!task || !count) return std::nullopt;
  const int first = variable("SLURM_ARRAY_TASK_MIN").value_or(0);
  const int last = variable("SLURM_ARRAY_TASK_MAX").value_or(first + *count - 1);
  const int step = variable("SLURM_ARRAY_TASK_STEP").value_or(*count > 1 ? (last - first) / (*count - 1) : 1);
  const bool one_of_many = *count == 1 && first > 1;
  if (step < 1 || (last - first) / step + 1 != *count || one_of_many)
    throw Error(ErrorCode::usage, "--shard auto: the tasks of this Slurm array (" + std::to_string(*count) + " from " +
                                      std::to_string(first) + " to " + std::to_string(last) +
                                      ") are not all of an even row, so none has a place of its own: give --shard I/N");
  return of_array(*task, first, step, *count, "Slurm");
}

/// Grid Engine's qsub(1): "undefined" outside of an array.
std::optional<Shard> of_grid_engine() {
  const auto task = variable("SGE_TASK_ID"), first = variable("SGE_TASK_FIRST"), last = variable("SGE_TASK_LAST");
  if (!task || !first || !last) return std::nullopt;
  const int step = variable("SGE_TASK_STEPSIZE").value_or(1);
  return of_array(*task, *first, step, step > 0 ? (*last - *first) / step + 1 : 0, "Grid Engine");
}

/// PBS names the task alone (PBS_ARRAY_INDEX; Torque: PBS_ARRAYID); the number of tasks must come from the job script.
std::optional<Shard> of_pbs() {
  auto task = variable("PBS_ARRAY_INDEX");
  if (!task) task = variable("PBS_ARRAYID");
  if (!task) return std::nullopt;
  const auto count = variable("PBS_ARRAY_COUNT");
  if (!count)
    throw Error(ErrorCode::usage,
                "--shard auto: PBS says which task this is, not how many there are: set PBS_ARRAY_COUNT (and "
                "PBS_ARRAY_FIRST where the first is not 1), or give --shard I/N");
  return of_array(*task, variable("PBS_ARRAY_FIRST").value_or(1), 1, *count, "PBS");
}

}  // namespace

std::string Shard::suffix() const {
  return whole() ? "" : "." + std::to_string(index) + "-of-" + std::to_string(count);
}

Shard parse_shard(const std::string& text) {
  if (text == "auto") {
    for (const auto& find : {of_slurm, of_grid_engine, of_pbs})
      if (const auto shard = find()) return *shard;
    throw Error(ErrorCode::usage,
                "--shard auto finds no array job of Slurm, PBS or Grid Engine around it: give --shard I/N");
  }
  const std::size_t slash = text.find('/');
  const auto index = number_of(text.substr(0, slash));
  const auto count = slash == std::string::npos ? std::nullopt : number_of(text.substr(slash + 1));
  if (!index || !count || *index < 1 || *index > *count)
    throw Error(ErrorCode::usage, "--shard '" + text + "' must be I/N with 1 <= I <= N, or auto");
  return {*index, *count};
}

}  // namespace volpipe
