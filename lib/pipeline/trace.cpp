#include "pipeline/trace.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "volume/error.h"

namespace volpipe {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Trace::Trace(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
  if (!file_) throw Error(ErrorCode::usage, "cannot write the trace '" + path + "': " + std::strerror(errno));
  std::fputs("[\n", file_.get());
}

Trace::~Trace() { std::fputs("\n]\n", file_.get()); }

void Trace::add(const std::string& track, const std::string& name, double begin_ms, double end_ms,
                const std::string& item) {
  const std::lock_guard lock(mutex_);
  const auto [place, added] = tracks_.emplace(track, int(tracks_.size()) + 1);
  if (added)
    write(text_of(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", place->second}, {"args", {{"name", track}}}}));
  write(text_of({{"name", name},
                 {"ph", "X"},
                 {"pid", 1},
                 {"tid", place->second},
                 {"ts", (begin_ms - start_ms_) * 1e3},
                 {"dur", (end_ms - begin_ms) * 1e3},
                 {"args", {{"item", item}}}}));
}

void Trace::write(const std::string& event) {
  if (!first_) std::fputs(",\n", file_.get());
  first_ = false;
  std::fputs(event.c_str(), file_.get());
  std::fflush(file_.get());
}

}  // namespace volpipe
