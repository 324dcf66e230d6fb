#include "io/file_identity.h"

#include <isa-l/crc.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "io/input_file.h"
#include "volume/error.h"

namespace volpipe::io {

FileIdentity identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw Error(ErrorCode::input, std::generic_category().message(errno)).with_path(path);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::input, "it is no regular file").with_path(path);
  return {path, std::uint64_t(status.st_size),
          std::int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::uint32_t crc32_of_file(const std::string& path) {
  InputFile file(path);
  std::vector<unsigned char> piece(std::size_t(1) << 20);
  std::uint32_t crc = 0;
  for (std::uint64_t offset = 0;;) {
    const std::size_t count = file.read_at(offset, piece.data(), piece.size());
    if (count == 0) return crc;
    crc = crc32_gzip_refl(crc, piece.data(), count);
    offset += count;
  }
}

}  // namespace volpipe::io
