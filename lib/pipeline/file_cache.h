// The files that stages name, read once a run.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "pipeline/items.h"
#include "stages/stage_context.h"

namespace volpipe {

/// Keeps what was read for as long as it lives. Several threads that want one file wait for one reading of it.
class FileCache {
 public:
  explicit FileCache(const io::ReadOptions& reading = {}) : reading_(reading) {}

  const VolumeInfo& info(const std::string& path);
  std::shared_ptr<const Volume> volume(const std::string& path);
  const std::string& bytes(const std::string& path);
  const io::ReadOptions& reading() const { return reading_; }

 private:
  const io::ReadOptions reading_;
  std::mutex mutex_;
  std::map<std::string, VolumeInfo> infos_;
  std::map<std::string, std::shared_ptr<const Volume>> volumes_;
  std::map<std::string, std::string> bytes_;
};

/// The files of one item: names with fields are read for it alone, the others come from the cache.
class ItemFiles final : public StageFiles {
 public:
  ItemFiles(FileCache& cache, const Item& item) : cache_(cache), own_(cache.reading()), item_(item) {}
  VolumeInfo info(const std::string& path) override;
  std::shared_ptr<const Volume> volume(const std::string& path) override;
  std::string bytes(const std::string& path) override;
  std::string resolved(const std::string& path) override;

 private:
  FileCache& of(const std::string& path) { return path.find('{') == std::string::npos ? cache_ : own_; }

  FileCache& cache_;
  FileCache own_;
  const Item& item_;
};

}  // namespace volpipe
