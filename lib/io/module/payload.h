// Where the voxels of a NRRD or MetaImage file lie, and reading them with every byte accounted for: ITK's readers leave
// zeros where a file is short.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace volpipe::io {

/// Keys of a text header, for NRRD in lower case, for MetaImage (where case matters) as written; with their values.
using HeaderFields = std::map<std::string, std::string>;

/// Millimetres a unit of length, by its usual names in either case; nothing for another word.
std::optional<double> millimetres_of(const std::string& unit);

struct Payload {
  enum class Encoding { raw, deflate, other };  ///< deflate: a gzip or zlib stream

  std::string path;          ///< file that holds the voxels
  std::uint64_t offset = 0;  ///< of their first byte
  std::uint64_t length = 0;  ///< bytes stored, 0: up to the end of the file
  bool from_end = false;     ///< raw: the last bytes of the file, whatever precedes them
  Encoding encoding = Encoding::raw;
  bool big_endian = false;
};

struct TextHeader {
  HeaderFields fields;
  Payload payload;
};

/// Read the text part of a file and find its voxels. Throw Error(input | unsupported) with the path when the header is
/// not one or the data file is missing.
TextHeader read_nrrd_header(const std::string& path);
TextHeader read_meta_header(const std::string& path);

/// Cheap checks without reading voxels: a raw payload is at least `bytes` long, a packed one is not empty and cannot be
/// too short for `bytes`. Returns how many bytes of a raw payload follow those. Throws Error(input) with the path.
std::uint64_t check_payload(const Payload& payload, std::uint64_t bytes);

/// Exactly `bytes` bytes of voxels as stored, `value_bytes` each, in the byte order of this machine. A short, damaged
/// or longer stream throws Error(input) with the path. Returns how many bytes of the file follow a packed stream. Not
/// for Encoding::other.
std::uint64_t read_payload(const Payload& payload, void* out, std::uint64_t bytes, std::size_t value_bytes);

}  // namespace volpipe::io
