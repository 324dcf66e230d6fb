#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestStem = 180;  // a name has at most 255 bytes; the rest is for pid, mark and extension

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// Error(output) says that no other output will do better; names concern one output.
ErrorCode code_of(int system_error) {
  switch (system_error) {
    case ENAMETOOLONG:
    case EILSEQ:
    case EINVAL:
      return ErrorCode::unsupported;
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
      return ErrorCode::exists;
    default:
      return ErrorCode::output;
  }
}

Error output_error(int system_error, const std::string& path) {
  return Error(code_of(system_error), explain_output_failure(system_error, path)).with_path(path);
}

Error exists_error(const std::string& path) {
  return Error(ErrorCode::exists, "'" + path + "' exists already: choose another place, or allow it to be overwritten")
      .with_path(path);
}

std::pair<std::string, std::string> split_extension(const fs::path& name) {
  fs::path stem = name.stem();
  std::string extension = name.extension().string();
  if (extension == ".gz") {
    extension = stem.extension().string() + extension;
    stem = stem.stem();
  }
  return {stem.string(), extension};
}

std::string shortened(std::string stem) {
  if (stem.size() <= kLongestStem) return stem;
  std::size_t end = kLongestStem;
  while (end > 0 && (static_cast<unsigned char>(stem[end]) & 0xC0) == 0x80) --end;
  return stem.substr(0, end);
}

void make_folder(const std::string& path) {
  std::error_code failure;
  fs::create_directories(folder_of(path), failure);
  if (failure) throw output_error(failure.value(), path);
}

void check_target(const std::string& path, bool overwrite) {
  if (fs::path(path).filename().empty())
    throw Error(ErrorCode::unsupported, "'" + path + "' names a folder where the output needs a file name")
        .with_path(path);
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    throw output_error(errno, path);
  }
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorCode::exists, "'" + path + "' is there and is not a regular file: choose another output name")
        .with_path(path);
  if (!overwrite) throw exists_error(path);
}

// Some network and user-space file systems cannot sync; what they hold is as safe as they make it.
bool cannot_sync(int system_error) {
  return system_error == EINVAL || system_error == ENOTSUP || system_error == ENOSYS;
}

void sync(int descriptor, const std::string& path) {
  while (::fsync(descriptor) != 0) {
    if (errno == EINTR) continue;
    if (cannot_sync(errno)) return;
    throw output_error(errno, path);
  }
}

void sync_folder(const std::string& path) {
  const int descriptor = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder may be writable and not readable
  const int result = ::fsync(descriptor);
  const int failure = errno;
  ::close(descriptor);
  if (result != 0 && !cannot_sync(failure) && failure != EBADF) throw output_error(failure, path);
}

}  // namespace

const std::string& process_mark() {
  static const std::string mark = [] {
    std::random_device random;
    char text[20];
    std::snprintf(text, sizeof text, "%08x%08x", unsigned(random()), unsigned(random()));
    return std::string(text);
  }();
  return mark;
}

bool is_partial_file_of(const std::string& name, const std::string& mark) {
  const std::size_t end = name.rfind(".partial");
  const std::size_t dot = end == std::string::npos || end == 0 ? std::string::npos : name.rfind('.', end - 1);
  if (!name.starts_with('.') || dot == std::string::npos || dot == 0) return false;
  const std::string held = name.substr(dot + 1, end - dot - 1);
  return held == mark || held.starts_with(mark + "-");
}

std::string explain_output_failure(int system_error, const std::string& path) {
  const std::string folder = std::string("'").append(folder_of(path)).append("'");
  switch (system_error) {
    case ENOSPC:
      return "no space left on the device that holds " + folder + ": free some, or choose another output folder";
    case EDQUOT:
      return "the disk quota is used up where " + folder + " lies: free some, or choose another output folder";
    case EACCES:
    case EPERM:
      return "no permission to write in " + folder + ": change its permissions, or choose another output folder";
    case EROFS:
      return folder + " is on a read-only file system: choose another output folder";
    case EFBIG:
      return "'" + path +
             "' exceeds the size that a file may have here: raise the limit (ulimit -f), or use another file system";
    case ENAMETOOLONG:
      return "the name '" + path + "' is too long for the file system: choose a shorter one";
    case ENOTDIR:
    case EEXIST:
      return "a part of " + folder + " is a file where a folder is needed: choose another output folder";
    case EMFILE:
    case ENFILE:
      return "too many files are open to write '" + path + "': raise the limit (ulimit -n), or use fewer threads";
    default:
      return "cannot write '" + path + "': " + std::generic_category().message(system_error);
  }
}

AtomicFile::AtomicFile(std::string path, bool overwrite) : path_(std::move(path)), overwrite_(overwrite) {
  check_target(path_, overwrite_);
  make_folder(path_);
  open_partial();
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::exchange(other.partial_path_, {})),
      overwrite_(other.overwrite_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_written_(other.bytes_written_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!partial_path_.empty()) ::unlink(partial_path_.c_str());
}

void AtomicFile::open_partial() {
  const auto [stem, extension] = split_extension(fs::path(path_).filename());
  const std::string start = std::string(".").append(shortened(stem)).append(".").append(process_mark());
  for (int attempt = 0;; ++attempt) {
    const std::string number = attempt ? std::to_string(-attempt) : std::string();
    const std::string name = start + number + ".partial" + extension;
    const std::string candidate = (fs::path(path_).parent_path() / name).string();
    descriptor_ = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) {
      partial_path_ = candidate;
      return;
    }
    if (errno != EEXIST && errno != EINTR) throw output_error(errno, path_);
  }
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(descriptor_, next, std::min(bytes, std::size_t(1) << 30));
    if (count < 0) {
      if (errno == EINTR) continue;
      throw output_error(errno, path_);
    }
    next += count;
    bytes -= std::size_t(count);
    bytes_written_ += std::uint64_t(count);
  }
}

void AtomicFile::commit() {
  struct stat status;
  if (::lstat(partial_path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Error(ErrorCode::output, "the unfinished output '" + partial_path_ +
                                       "' was removed or replaced while it was written: "
                                       "run again, and let nothing else clean the folder")
        .with_path(path_);
  const auto size = std::uint64_t(status.st_size);
  if (bytes_written_ ? size != bytes_written_ : size == 0)
    throw Error(ErrorCode::output, "'" + path_ + "' came out as " + std::to_string(size) + " bytes" +
                                       (bytes_written_ ? " instead of " + std::to_string(bytes_written_) : "") +
                                       ": check the disk and run again")
        .with_path(path_);
  if (!bytes_written_) open_what_was_written_by_name();
  sync(descriptor_, path_);
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw output_error(errno, path_);
  if (overwrite_) {
    if (::rename(partial_path_.c_str(), path_.c_str()) != 0) throw output_error(errno, path_);
  } else {
    rename_without_replacing();
  }
  partial_path_.clear();
  sync_folder(path_);
}

// A library may have replaced the file under the partial name, so the descriptor may lead to another one.
void AtomicFile::open_what_was_written_by_name() {
  ::close(std::exchange(descriptor_, -1));
  descriptor_ = ::open(partial_path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw output_error(errno, path_);
}

void AtomicFile::rename_without_replacing() const {
  const char* from = partial_path_.c_str();
  const char* to = path_.c_str();
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) throw exists_error(path_);
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw output_error(errno, path_);

  if (::link(from, to) == 0) {
    ::unlink(from);
    return;
  }
  if (errno == EEXIST) throw exists_error(path_);

  // Neither is known to this file system: what is left is to look and to rename, never with partial data.
  if (::access(to, F_OK) == 0) throw exists_error(path_);
  if (::rename(from, to) != 0) throw output_error(errno, path_);
}

}  // namespace volpipe::io
