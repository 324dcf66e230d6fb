// One input of the DICOM fuzzer: a byte of options and the files of a folder, kFileMark between them. The folder is
// sorted into volumes and faults, and every volume is read or refused in words.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "io/load_module.h"

namespace volpipe::fuzz {

inline constexpr std::string_view kFileMark = "|FILE|";
inline constexpr std::size_t kMostFiles = 8;

inline std::vector<std::string> write_files(std::string_view input) {
  std::vector<std::string> paths;
  while (paths.size() < kMostFiles) {
    const std::size_t end = std::min(input.find(kFileMark), input.size());
    paths.push_back(scratch() / (std::to_string(paths.size()) + ".dcm"));
    test::write_bytes(paths.back(), input.substr(0, end));
    if (end == input.size()) break;
    input.remove_prefix(end + kFileMark.size());
  }
  return paths;
}

inline void check_folder(const io::DicomFolder& folder, const std::vector<std::string>& paths) {
  for (const auto& fault : folder.faults) require(!fault.path.empty() && !fault.message.empty());
  for (const Notice& notice : folder.notices.list()) require(!notice.code.empty() && !notice.message.empty());
  require(folder.volumes >= folder.groups.size() && folder.volumes + folder.not_images <= paths.size());
  require(folder.groups.size() + folder.faults.size() + folder.not_images > 0);
  std::set<std::string> seen;
  for (const io::DicomGroup& group : folder.groups) {
    require(!group.files.empty());
    for (const std::string& file : group.files) {
      require(std::find(paths.begin(), paths.end(), file) != paths.end());
      require(seen.insert(file).second);
    }
  }
}

/// Values are at most eight times as wide as they lie in the file, and RLE packs up to 64 into one; the other packed
/// syntaxes know no such bound.
inline std::size_t most_bytes(std::string_view input) {
  if (input.find("1.2.840.10008.1.2.4") != input.npos) return std::size_t(1) << 24;
  return input.size() * 8 * (input.find("1.2.840.10008.1.2.5") != input.npos ? 64 : 1);
}

inline void check_volume(const io::DicomGroup& group, const io::ReadOptions& options, std::string_view input) try {
  io::Source source = source_of(scratch().path());
  source.files = group.files;
  source.series_uid = group.series_uid;
  Notices notices;
  const auto opened = io::open(source, notices, options);
  check_info(opened->info());
  bool too_large = false;
  const auto allocate = [&](std::size_t bytes) {
    too_large = bytes > most_bytes(input);
    return at_most(most_bytes(input))(bytes);
  };
  try {
    const Volume volume = opened->read(allocate, notices, nullptr);
    require(volume.info() == opened->info());
    check_whole(volume);
  } catch (const Error&) {
    require(!too_large || input.find("1.2.840.10008.1.2.4") != input.npos);
    throw;
  }
} catch (const Error& error) { check_refusal(error); }

inline void run_dicom(std::string_view input) {
  if (input.empty()) return;
  io::ReadOptions options;
  options.allow_gaps = input[0] & 1;
  options.allow_duplicates = input[0] & 2;
  options.allow_no_geometry = input[0] & 4;
  const std::vector<std::string> paths = write_files(input.substr(1));
  const io::DicomFolder folder = io::load_module().group_dicom(paths, options);
  check_folder(folder, paths);
  for (const io::DicomGroup& group : folder.groups) check_volume(group, options, input);
}

}  // namespace volpipe::fuzz
