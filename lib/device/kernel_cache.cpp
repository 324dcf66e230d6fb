#include "device/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "volume/sha256.h"

namespace volpipe {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashLength = 64;
constexpr auto kAbandoned = std::chrono::hours(1);  // an unfinished file of this age has no writer left

std::string folder_of_user() {
  const auto value = [](const char* variable) {
    const char* text = std::getenv(variable);
    return std::string(text ? text : "");
  };
  if (const std::string own = value("VOLPIPE_CACHE_DIR"); !own.empty()) return own;
  if (const std::string caches = value("XDG_CACHE_HOME"); caches.starts_with("/")) return caches + "/volpipe";
  const std::string home = value("HOME");
  return home.empty() ? "" : home + "/.cache/volpipe";
}

std::string text_of(int system_error) { return std::generic_category().message(system_error); }

/// Writes all of `content` to a new file and gives it its name; the system's error number, or 0.
int write_whole(const std::string& path, std::string_view content) {
  std::string unfinished = (fs::path(path).parent_path() / ".XXXXXX").string();
  const int descriptor = ::mkstemp(unfinished.data());
  if (descriptor < 0) return errno;
  int failure = 0;
  while (!content.empty() && !failure) {
    const ssize_t count = ::write(descriptor, content.data(), content.size());
    if (count >= 0) content.remove_prefix(std::size_t(count));
    else if (errno != EINTR) failure = errno;
  }
  if (::close(descriptor) != 0 && !failure) failure = errno;
  if (!failure && ::rename(unfinished.c_str(), path.c_str()) != 0) failure = errno;
  if (failure) ::unlink(unfinished.c_str());
  return failure;
}

}  // namespace

KernelCache::KernelCache(std::string folder, std::uint64_t most_bytes)
    : folder_(folder.empty() ? "" : folder + "/kernels"), most_bytes_(most_bytes) {}

KernelCache KernelCache::of_user() { return KernelCache(folder_of_user()); }

std::optional<std::string> KernelCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = folder_ + "/" + key;
  std::ifstream file(path, std::ios::binary);
  std::string entry{std::istreambuf_iterator<char>(file), {}};
  if (entry.size() < kHashLength ||
      sha256_of(std::string_view(entry).substr(kHashLength)) != entry.substr(0, kHashLength))
    return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return entry.substr(kHashLength);
}

std::string KernelCache::store(const std::string& key, std::string_view content) const {
  if (folder_.empty()) return "none of VOLPIPE_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) return "'" + folder_ + "': " + failure.message();
  const int error = write_whole(folder_ + "/" + key, sha256_of(content).append(content));
  if (error) return "'" + folder_ + "': " + text_of(error);
  remove_oldest(key);
  return "";
}

void KernelCache::remove_oldest(const std::string& kept) const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  std::error_code ignored;
  for (fs::directory_iterator file(folder_, ignored), end; file != end && !ignored; file.increment(ignored)) {
    std::error_code gone;  // another process may have removed it
    const Entry entry{file->last_write_time(gone), file->file_size(gone), file->path()};
    if (gone || !file->is_regular_file(gone)) continue;
    if (entry.path.filename().string().starts_with(".")) {
      if (fs::file_time_type::clock::now() - entry.used > kAbandoned) fs::remove(entry.path, gone);
      continue;
    }
    total += entry.bytes;
    if (entry.path.filename() != kept) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= most_bytes_) return;
    fs::remove(entry.path, ignored);
    total -= entry.bytes;
  }
}

}  // namespace volpipe
