// Flags that several commands share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spec/parameters.h"

namespace volpipe::app {

/// "--set NAME=VALUE": VALUE is JSON where it parses as such, else a text. Throws Error(usage).
std::map<std::string, Json> parse_settings(const std::vector<std::string>& settings);

/// "8G", "512M", "1.5g", "1048576" -> bytes. Throws Error(usage).
std::size_t parse_bytes(const std::string& text);

/// A whole number from 0 to 2^64 - 1. Throws Error(usage).
std::uint64_t parse_seed(const std::string& text);

/// "3/16" -> {3, 16}. Throws Error(usage).
std::pair<int, int> parse_shard(const std::string& text);


}  // namespace volpipe::app
