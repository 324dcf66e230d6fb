#include "sources.h"

#include <cstdio>

namespace volpipe::app {

namespace {

void print_line(const std::string& path, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", path.c_str(), text.c_str());
}

bool guarded(const std::string& path, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::output || error.code() == ErrorCode::internal) throw;
    print_line(error.path().empty() ? path : error.path(), error.what());
    return false;
  }
}

}  // namespace

bool for_each_source(const std::vector<std::string>& files, const std::function<void(const io::Source&)>& visit) {
  bool sound = true;
  for (const std::string& file : files)
    sound &= guarded(file, [&] {
      const io::Found found = io::find_sources(file);
      print_notices(file, found.notices);
      for (const auto& fault : found.faults) print_line(fault.path, fault.message);
      if (!found.faults.empty()) sound = false;
      if (found.sources.empty() && found.faults.empty())
        throw Error(ErrorCode::input, "no volume was found here").with_path(file);
      for (const io::Source& source : found.sources) sound &= guarded(source.path, [&] { visit(source); });
    });
  return sound;
}

io::Source single_source(const std::string& file) {
  const io::Found found = io::find_sources(file);
  if (!found.faults.empty()) throw Error(ErrorCode::input, found.faults[0].message).with_path(found.faults[0].path);
  if (found.sources.size() != 1)
    throw Error(ErrorCode::usage, "one volume is expected, found " + std::to_string(found.sources.size()))
        .with_path(file);
  return found.sources[0];
}

void print_notices(const std::string& path, const Notices& notices) {
  for (const Notice& notice : notices.list()) print_line(path, notice.message);
}

}  // namespace volpipe::app
