// Flags that several commands share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spec/parameters.h"

namespace volpipe::app {

/// "--set NAME=VALUE": VALUE is JSON where it parses as such, else a text. Throws Error(usage).
std::map<std::string, Json> parse_settings(const std::vector<std::string>& settings);

/// "8G", "512M", "1.5g", "1048576" -> bytes. Throws Error(usage), which names the option.
std::size_t parse_bytes(const std::string& option, const std::string& text);

/// A whole number from 0 to 2^64 - 1. Throws Error(usage).
std::uint64_t parse_seed(const std::string& text);

/// Writes `json` as text of two-space steps, whole or not at all; replaces what is there. Throws Error(output).
void write_json(const Json& json, const std::string& path);

}  // namespace volpipe::app
