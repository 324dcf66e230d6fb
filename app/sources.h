// FILE arguments of the commands that look at volumes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/io.h"
#include "volume/error.h"

namespace volpipe::app {

/// What to do with what `files` hold; only `visit` is needed.
struct SourceVisitor {
  std::function<void(const io::Source&)> visit;
  std::function<void(const std::string& path, const Error&)> fault = {};      ///< what makes no source
  std::function<void(const std::string& path, const Notices&)> notices = {};  ///< of the search
};

/// Calls visitor.visit for every source of `files` (files, DICOM folders, folders searched recursively). What cannot be
/// read is one line "path: reason" on standard error, and the rest goes on. Returns false when there was such a line.
bool for_each_source(const std::vector<std::string>& files, const io::ReadOptions& options,
                     const SourceVisitor& visitor);

/// The one source of `file`. Throws Error(input) when it cannot be read, Error(usage) when it holds several.
io::Source single_source(const std::string& file, const io::ReadOptions& options = {});

/// Prints notices as lines "path: message" on standard error.
void print_notices(const std::string& path, const Notices& notices);

}  // namespace volpipe::app
