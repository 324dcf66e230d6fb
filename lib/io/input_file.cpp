#include "io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "volume/error.h"

namespace volpipe::io {

namespace {

Error input_error(const std::string& action, const std::string& path, int system_error) {
  return Error(ErrorCode::input,
               "cannot " + action + " '" + path + "': " + std::generic_category().message(system_error))
      .with_path(path);
}

Error changed_error(const std::string& change, const std::string& path) {
  return Error(ErrorCode::input,
               "'" + path + "' " + change + " while it was read: run again once nothing else writes or removes it")
      .with_path(path);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block here
  if (descriptor_ < 0) throw input_error("open", path_, errno);
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw Error(ErrorCode::input, "'" + path_ + "' is not a regular file").with_path(path_);
  }
  size_ = std::uint64_t(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

std::size_t InputFile::read_at(std::uint64_t offset, void* out, std::size_t bytes) {
  const auto start = std::chrono::steady_clock::now();
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pread(descriptor_, static_cast<char*>(out) + done,
                                  std::min(bytes - done, std::size_t(1) << 30), off_t(offset + done));
    if (count < 0 && errno == ESTALE) throw changed_error("was removed or replaced", path_);
    if (count < 0 && errno != EINTR) throw input_error("read", path_, errno);
    if (count == 0) break;
    if (count > 0) done += std::size_t(count);
  }
  if (done < bytes && offset + done < size_) {
    struct stat status {};
    ::fstat(descriptor_, &status);
    throw changed_error("shrank from " + std::to_string(size_) + " to " + std::to_string(status.st_size) + " bytes",
                        path_);
  }
  read_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return done;
}

void InputFile::expect_sequential_reads() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL); }

}  // namespace volpipe::io
