// FILE arguments of the commands that look at volumes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/io.h"
#include "volume/error.h"

namespace volpipe::app {

/// Calls visit for every source of `files` (files, DICOM folders, folders searched recursively). What cannot be read is
/// one line "path: reason" on standard error, and the rest goes on. Returns false when there was such a line.
bool for_each_source(const std::vector<std::string>& files, const std::function<void(const io::Source&)>& visit);

/// The one source of `file`. Throws Error(input) when it cannot be read, Error(usage) when it holds several.
io::Source single_source(const std::string& file);

/// Prints notices as lines "path: message" on standard error.
void print_notices(const std::string& path, const Notices& notices);

}  // namespace volpipe::app
