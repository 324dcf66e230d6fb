#include "io/companion_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/file_names.h"
#include "io/header_text.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestHeader = 1 << 20;
constexpr std::size_t kMostFiles = 100000;

/// The names that a printf pattern with one whole number stands for, "slice%03d.raw 1 10 1".
std::vector<std::string> numbered_names(const std::string& text) {
  std::istringstream words(text);
  std::string pattern;
  std::int64_t first = 0, last = 0, step = 1;
  if (!(words >> pattern >> first >> last)) return {};
  if (!(words >> step) || step == 0) step = 1;
  const auto percent = pattern.find('%');
  const auto end = pattern.find_first_not_of("0123456789", percent + 1);
  if (end == std::string::npos || (pattern[end] != 'd' && pattern[end] != 'u' && pattern[end] != 'i')) return {};
  const std::string width = pattern.substr(percent + 1, end - percent - 1);
  const std::size_t digits = width.empty() || width.size() > 3 ? 0 : std::stoul(width);
  std::vector<std::string> names;
  for (std::int64_t i = first; (step > 0 ? i <= last : i >= last) && names.size() < kMostFiles; i += step) {
    std::string number = std::to_string(i);
    if (number.size() < digits) number.insert(0, digits - number.size(), width[0] == '0' ? '0' : ' ');
    names.push_back(pattern.substr(0, percent) + number + pattern.substr(end + 1));
  }
  return names;
}

}  // namespace

std::string meta_data_file(const std::string& path) { return fs::path(path).replace_extension(".raw").string(); }

std::vector<std::string> detached_data_files(const std::string& path) {
  const std::string extension(volume_extension(path).value_or(""));
  const bool nrrd = extension == ".nrrd" || extension == ".nhdr";
  if (!nrrd && extension != ".mha" && extension != ".mhd") return {};
  std::ifstream stream(path, std::ios::binary);
  std::string header(kLongestHeader, '\0');
  stream.read(header.data(), std::streamsize(header.size()));
  header.resize(std::size_t(std::max<std::streamsize>(0, stream.gcount())));

  std::istringstream lines(header);
  std::string data_file;
  for (std::string line; data_file.empty() && std::getline(lines, line);) {
    if (nrrd && trimmed(line).empty()) break;
    const auto mark = line.find(nrrd ? ':' : '=');
    if (mark == std::string::npos) continue;
    const std::string key = trimmed(line.substr(0, mark));
    if (nrrd ? lower(key) == "data file" || lower(key) == "datafile" : key == "ElementDataFile")
      data_file = trimmed(line.substr(mark + 1));
  }
  std::vector<std::string> names;
  if (data_file.starts_with("LIST")) {
    for (std::string line; names.size() < kMostFiles && std::getline(lines, line);)
      if (!trimmed(line).empty()) names.push_back(trimmed(line));
  } else if (data_file.find('%') != std::string::npos) {
    names = numbered_names(data_file);
  } else if (!data_file.empty() && (nrrd || lower(data_file) != "local")) {
    names = {data_file};
  }
  for (std::string& name : names)
    if (!fs::path(name).is_absolute()) name = (fs::path(path).parent_path() / name).string();
  return names;
}

}  // namespace volpipe::io
