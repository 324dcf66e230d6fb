// Which part of the items a process works on.
#pragma once

#include <string>

namespace volpipe {

struct Shard {
  int index = 1, count = 1;  ///< 1-based

  bool whole() const { return count == 1; }
  /// "", or ".3-of-16" for names of files.
  std::string suffix() const;
};

/// "3/16", or "auto": the task of an array job of Slurm, PBS or Grid Engine, from the variables it sets. Throws
/// Error(usage), also when "auto" finds no array.
Shard parse_shard(const std::string& text);

}  // namespace volpipe
