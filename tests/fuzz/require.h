// What every fuzzer needs: properties that end it, a folder in memory, memory that is bounded by the input.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/io.h"
#include "support/temporary_folder.h"
#include "volume/error.h"

namespace volpipe::fuzz {

inline void require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: a property does not hold\n", file, line);
  std::abort();
}

/// In memory where the system has such a folder; goes with the program.
inline const test::TemporaryFolder& scratch() {
  static const test::TemporaryFolder folder(::access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm")
                                                                            : std::filesystem::temp_directory_path());
  return folder;
}

/// A refusal of bytes from outside: said in words, and no fault of the program.
inline void check_refusal(const Error& error) {
  require(error.code() == ErrorCode::input || error.code() == ErrorCode::unsupported ||
          error.code() == ErrorCode::out_of_memory);
  require(std::string_view(error.what()).size() > 0);
}

inline void check_info(const VolumeInfo& info) {
  const Index3 size = info.geometry.size();
  require(size[0] > 0 && size[1] > 0 && size[2] > 0 && info.components > 0);
  const std::int64_t most = std::int64_t(1) << 60;
  std::int64_t values = info.components;
  for (const std::int64_t n : size) require(!__builtin_mul_overflow(values, n, &values) && values <= most);
  require(info.value_count() == values && std::isfinite(info.frame_spacing));
  const Affine there = info.geometry.index_to_world(), back = info.geometry.world_to_index();
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      require(std::isfinite(there.linear[row][column]) && std::isfinite(back.linear[row][column]));
  for (int axis = 0; axis < 3; ++axis) {
    require(std::isfinite(there.offset[axis]) && std::isfinite(back.offset[axis]));
    require(info.geometry.spacing()[axis] > 0);
  }
}

/// Gives at most `most` bytes; a file that promises more than that is refused.
inline io::HostAllocator at_most(std::size_t most) {
  return [most](std::size_t bytes) {
    if (bytes > most) throw Error(ErrorCode::out_of_memory, "more than a fuzzer gives");
    return Buffer::host(bytes);
  };
}

inline io::Source source_of(const std::string& path) {
  io::Source source;
  source.path = path;
  return source;
}

/// Reads every byte of a volume.
inline void check_whole(const Volume& volume) {
  check_info(volume.info());
  const auto* bytes = static_cast<const volatile unsigned char*>(volume.data());
  unsigned sum = 0;
  for (std::size_t i = 0; i < volume.info().bytes(); ++i) sum += bytes[i];
  require(sum < ~0u || volume.info().bytes() > 0);
}

}  // namespace volpipe::fuzz
