// What tells one state of a file from another.
#pragma once

#include <cstdint>
#include <string>

namespace volpipe::io {

struct FileIdentity {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< time of the last change, since 1970
  bool operator==(const FileIdentity&) const = default;
};

/// Throws Error(input) with the path where there is no regular file.
FileIdentity identity_of(const std::string& path);

/// CRC-32 (of gzip) of the file's bytes. Throws Error(input) with the path.
std::uint32_t crc32_of_file(const std::string& path);

}  // namespace volpipe::io
