#include "pipeline/file_cache.h"

#include <filesystem>
#include <fstream>

#include "io/io.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::size_t kLargestSmallFile = std::size_t(64) << 20;

io::Source source_of(const std::string& path, const io::ReadOptions& reading) {
  io::Found found = io::find_sources(path, reading);
  if (!found.faults.empty())
    throw Error(ErrorCode::input, found.faults.front().message).with_path(found.faults.front().path);
  if (found.sources.size() != 1)
    throw Error(ErrorCode::input, "is not one volume but " + std::to_string(found.sources.size())).with_path(path);
  return std::move(found.sources.front());
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kLargestSmallFile + 1, '\0');
  file.read(bytes.data(), std::streamsize(bytes.size()));
  if (std::error_code ignored; !file.is_open() && !std::filesystem::exists(path, ignored))
    throw Error(ErrorCode::input, "there is no such file").with_path(path);
  if (!file.is_open() || file.bad()) throw Error(ErrorCode::input, "the file cannot be read").with_path(path);
  bytes.resize(std::size_t(file.gcount()));
  if (bytes.size() > kLargestSmallFile)
    throw Error(ErrorCode::input, "the file is larger than 64 MiB and no transform").with_path(path);
  return bytes;
}

template <class Map, class Read>
auto& cached(Map& map, const std::string& path, Read&& read) {
  const auto found = map.find(path);
  return found != map.end() ? found->second : map.emplace(path, read()).first->second;
}

}  // namespace

const VolumeInfo& FileCache::info(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return cached(infos_, path, [&] {
    Notices ignored;
    return io::read_info(source_of(path, reading_), ignored, reading_);
  });
}

std::shared_ptr<const Volume> FileCache::volume(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return cached(volumes_, path, [&] {
    Notices ignored;
    return std::make_shared<const Volume>(io::read(
        source_of(path, reading_), [](std::size_t bytes) { return Buffer::host(bytes); }, ignored, nullptr, reading_));
  });
}

const std::string& FileCache::bytes(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return cached(bytes_, path, [&] { return read_bytes(path); });
}

VolumeInfo ItemFiles::info(const std::string& path) { return of(path).info(resolved(path)); }
std::shared_ptr<const Volume> ItemFiles::volume(const std::string& path) { return of(path).volume(resolved(path)); }
std::string ItemFiles::bytes(const std::string& path) { return of(path).bytes(resolved(path)); }
std::string ItemFiles::resolved(const std::string& path) { return filled_in(path, "", item_); }

}  // namespace volpipe
