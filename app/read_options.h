// What a user decides about inputs, the same flags for every command that reads volumes.
#pragma once

#include <CLI/CLI.hpp>

#include "io/io.h"
#include "spec/parameters.h"

namespace volpipe::app {

struct ReadFlags {
  io::NiftiAffine affine = io::NiftiAffine::automatic;
  bool allow_gaps = false, allow_duplicates = false, allow_no_geometry = false;
};

/// Adds --affine, --allow-gaps, --allow-duplicates and --allow-no-geometry to `command`; `flags` must outlive its
/// parsing.
void add_read_options(CLI::App& command, ReadFlags& flags);

/// What io reads by. `threads` is where headers and slices are read, null for the calling thread alone.
io::ReadOptions to_read_options(const ReadFlags& flags, const HostThreads* threads = nullptr);

/// The decisions by name, as they stand in the key of a journal.
Json to_json(const ReadFlags& flags);

}  // namespace volpipe::app
