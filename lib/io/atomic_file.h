// Output files that appear under their name only when they are whole and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace volpipe::io {

/// What tells this process's unfinished files from those of every other, here and on other machines: 16 hexadecimal
/// digits, drawn once.
const std::string& process_mark();

/// A file on its way to `path()`. Everything goes into a hidden neighbour `.<stem>.<process mark>.partial<extension>`
/// (with a number after the mark when that name is taken); commit() gives it its name in one step, and an object that dies
/// uncommitted removes it. Two ways to fill it:
///  - write(): every byte checked;
///  - a library that opens files by name: let it write to partial_path(), whose extension is the target's, then
///  commit().
/// The process should ignore SIGXFSZ, so that a file size limit is an error and not the end of the process.
class AtomicFile {
 public:
  /// Makes missing folders and opens the partial file. Throws Error(exists) when `path` is there and not `overwrite` or
  /// something other than a regular file, Error(unsupported) for a name that the file system does not take, and
  /// Error(output) when the folder cannot be written, which other outputs would meet too.
  explicit AtomicFile(std::string path, bool overwrite = false);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  const std::string& partial_path() const { return partial_path_; }

  /// Appends; unbuffered, so a reader of partial_path() sees it at once. Throws Error(output), or
  /// Error(unsupported) beyond the size that a file may have.
  void write(const void* data, std::size_t bytes);
  std::uint64_t bytes_written() const { return bytes_written_; }

  /// Checks that the partial file is a regular file of bytes_written() bytes (of any but zero bytes when write() was
  /// not used), brings it to the disk, renames it and syncs the folder. An existing file is replaced only when
  /// `overwrite` was given, without a race. Throws Error(output | exists); the partial file is then removed with the
  /// object.
  void commit();

 private:
  void open_partial();
  void open_what_was_written_by_name();
  void rename_without_replacing() const;

  std::string path_;
  std::string partial_path_;
  bool overwrite_;
  int descriptor_ = -1;
  std::uint64_t bytes_written_ = 0;
};

/// True for the name of an unfinished file of the process with this mark.
bool is_partial_file_of(const std::string& name, const std::string& mark);

/// Why an output operation failed, in plain words with the folder or file concerned and what to do.
std::string explain_output_failure(int system_error, const std::string& path);

}  // namespace volpipe::io
