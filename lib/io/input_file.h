// Input files: opened, sized and read with every result checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace volpipe::io {

/// A regular file open for reading. All functions throw Error(input) with the path.
class InputFile {
 public:
  explicit InputFile(std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< bytes, when it was opened

  /// Reads at `offset`; the result is less than `bytes` only behind size(). A file that lost bytes or was replaced
  /// since it was opened is an error that says so.
  std::size_t read_at(std::uint64_t offset, void* out, std::size_t bytes);
  /// Tells the system that the file will be read from front to back.
  void expect_sequential_reads() const;
  /// Time spent in read_at() so far.
  double read_ms() const { return read_ms_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  double read_ms_ = 0;
};

}  // namespace volpipe::io
