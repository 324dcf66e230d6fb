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

bool for_each_source(const std::vector<std::string>& files, const io::ReadOptions& options,
                     const SourceVisitor& visitor) {
  bool sound = true;
  const auto without_source = [&](const std::string& path, const std::function<void()>& work) {
    sound &= guarded(path, [&] {
      try {
        work();
      } catch (const Error& error) {
        if (visitor.fault) visitor.fault(error.path().empty() ? path : error.path(), error);
        throw;
      }
    });
  };
  for (const std::string& file : files) {
    io::Found found;
    without_source(file, [&] {
      found = io::find_sources(file, options);
      if (found.sources.empty() && found.faults.empty())
        throw Error(ErrorCode::input, "no volume was found here").with_path(file);
    });
    print_notices(file, found.notices);
    if (visitor.notices) visitor.notices(file, found.notices);
    for (const auto& fault : found.faults)
      without_source(fault.path, [&] { throw Error(ErrorCode::input, fault.message).with_path(fault.path); });
    for (const io::Source& source : found.sources) sound &= guarded(source.path, [&] { visitor.visit(source); });
  }
  return sound;
}

io::Source single_source(const std::string& file, const io::ReadOptions& options) {
  const io::Found found = io::find_sources(file, options);
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
