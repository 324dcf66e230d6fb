#include "pipeline/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "io/atomic_file.h"
#include "volume/error.h"
#include "volume/sha256.h"

namespace volpipe {

namespace {

namespace fs = std::filesystem;

constexpr int kJournalVersion = 1;
constexpr char kStart[] = "volpipe-journal", kExtension[] = ".jsonl";

std::string absolute(const std::string& path) {
  std::error_code failure;
  const fs::path result = fs::weakly_canonical(path, failure);
  return failure ? path : result.string();
}

Json to_json(const io::FileIdentity& file) {
  return {{"path", absolute(file.path)}, {"bytes", file.bytes}, {"modified_ns", file.modified_ns}};
}

/// The file and what belongs to it; of a folder, such as a DICOM series, all files.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return io::input_files({path, {}, {}, {}, {}});
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator file(path, failure), end; !failure && file != end; file.increment(failure))
    if (std::error_code ignored; file->is_regular_file(ignored)) files.push_back(file->path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// Paths are kept relative to the output folder, which may move.
Json outputs_of(const ItemRecord& record, const std::string& output_directory) {
  Json list = Json::array();
  const auto add = [&](const std::string& path) {
    Json entry = to_json(io::identity_of(path));
    entry["path"] = fs::path(path).lexically_relative(output_directory).string();
    entry["crc32"] = io::crc32_of_file(path);
    list.push_back(std::move(entry));
  };
  for (const ImageRecord& image : record.outputs)
    for (const std::string& path : io::output_files(image.path)) add(path);
  for (const std::string& path : record.saved_maps) add(path);
  return list;
}

bool unchanged(const Json& file, const std::string& path) {
  try {
    const io::FileIdentity now = io::identity_of(path);
    if (now.bytes != file.at("bytes").get<std::uint64_t>()) return false;
    return now.modified_ns == file.at("modified_ns").get<std::int64_t>() ||
           io::crc32_of_file(path) == file.at("crc32").get<std::uint32_t>();
  } catch (const Error&) { return false; }
}

std::string plain_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string run_key(const Pipeline& pipeline, std::uint64_t seed, const Json& decisions) {
  return sha256_of(
      plain_text(Json{{"version", version()}, {"spec", pipeline.spec}, {"seed", seed}, {"decisions", decisions}}));
}

std::string journal_name(const Shard& shard) { return kStart + shard.suffix() + kExtension; }

FinishedItems::FinishedItems(const std::string& output_directory) : output_directory_(output_directory) {
  std::error_code failure;
  std::set<std::string> journals;
  for (fs::directory_iterator file(output_directory, failure), end; !failure && file != end; file.increment(failure)) {
    const std::string name = file->path().filename().string();
    if (name.starts_with(kStart) && name.ends_with(kExtension)) journals.insert(name);
  }
  for (const std::string& name : journals) read(name);
}

void FinishedItems::read(const std::string& name) {
  std::ifstream file(fs::path(output_directory_) / name, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const Json entry = Json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    try {
      if (entry.contains("volpipe_journal")) processes_[name].push_back(entry.at("process").get<std::string>());
      else if (entry.at("status") == "ok")
        entries_[{entry.at("item").get<std::string>(), entry.at("repeat").get<std::uint32_t>()}].push_back(
            std::make_shared<const Json>(entry));
    } catch (const Json::exception&) {}
  }
}

const std::vector<std::string>& FinishedItems::processes(const std::string& journal) const {
  static const std::vector<std::string> none;
  const auto found = processes_.find(journal);
  return found == processes_.end() ? none : found->second;
}

bool FinishedItems::outputs_are_there(const Json& entry) const {
  const Json& outputs = entry.at("outputs");
  return outputs.is_array() && !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [this](const Json& file) {
           return unchanged(file, (fs::path(output_directory_) / file.at("path").get<std::string>()).string());
         });
}

std::shared_ptr<const Json> FinishedItems::find(const Pipeline& pipeline, const Item& item,
                                                const std::string& key) const {
  const auto found = entries_.find({item.id, item.repeat});
  if (found == entries_.end()) return nullptr;
  try {
    const Json origins = origins_of(pipeline, item);
    for (auto entry = found->second.rbegin(); entry != found->second.rend(); ++entry) {
      const Json& line = **entry;
      if (line.at("key") == key && line.at("origins") == origins && line.at("record").at("id") == item.id &&
          outputs_are_there(line))
        return {*entry, &line.at("record")};
    }
  } catch (const Json::exception&) {  // an entry that was tampered with vouches for nothing
  } catch (const Error&) {}           // what is missing is found again, and said, when it is read
  return nullptr;
}

std::size_t FinishedItems::made_otherwise(const Items& items, const std::string& key) const {
  return std::size_t(std::count_if(items.items.begin(), items.items.end(), [&](const Item& item) {
    const auto found = entries_.find({item.id, item.repeat});
    return found != entries_.end() && std::none_of(found->second.begin(), found->second.end(), [&](const auto& entry) {
             return entry->value("key", Json()) == key;
           });
  }));
}

std::vector<ItemRecord> take_finished(const Pipeline& pipeline, Items& items, const FinishedItems& finished,
                                      const std::string& key) {
  std::vector<ItemRecord> records;
  std::vector<Item> left;
  for (Item& item : items.items) {
    auto earlier = finished.find(pipeline, item, key);
    if (!earlier) {
      left.push_back(std::move(item));
      continue;
    }
    ItemRecord record;
    record.id = item.id;
    record.repeat = item.repeat;
    record.status = ItemStatus::resumed;
    record.earlier = std::move(earlier);
    records.push_back(std::move(record));
  }
  items.items = std::move(left);
  return records;
}

Journal::Journal(const std::string& output_directory, const std::string& name, const std::string& key, bool resume)
    : output_directory_(output_directory), path_((fs::path(output_directory) / name).string()), key_(key) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw Error(ErrorCode::output, io::explain_output_failure(errno, path_)).with_path(path_);
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(ErrorCode::usage, "another run writes into '" + output_directory +
                                        "' now: wait for it, or choose another output folder")
          .with_path(path_);
    if (!resume && ::ftruncate(descriptor_, 0) != 0)
      throw Error(ErrorCode::output, io::explain_output_failure(errno, path_)).with_path(path_);
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    char last = '\n';
    const bool torn = end > 0 && ::pread(descriptor_, &last, 1, end - 1) == 1 && last != '\n';
    if (torn && ::write(descriptor_, "\n", 1) != 1)
      throw Error(ErrorCode::output, io::explain_output_failure(errno, path_)).with_path(path_);
    write_line({{"volpipe_journal", kJournalVersion}, {"process", io::process_mark()}, {"key", key}});
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Journal::~Journal() { ::close(descriptor_); }

void Journal::append(const ItemRecord& record, const Json& origins) {
  Json line = {{"item", record.id}, {"repeat", record.repeat}, {"status", to_string(record.status)}, {"key", key_}};
  line["origins"] = origins;
  line["outputs"] = outputs_of(record, output_directory_);
  line["record"] = to_json(record);
  write_line(line);
}

void Journal::write_line(const Json& json) {
  const std::string line = plain_text(json) + "\n";
  const std::lock_guard lock(mutex_);
  const ssize_t count = ::write(descriptor_, line.data(), line.size());
  if (count != ssize_t(line.size()) || (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != ENOSYS))
    throw Error(ErrorCode::output, io::explain_output_failure(count < 0 ? errno : ENOSPC, path_)).with_path(path_);
}

Json origins_of(const Pipeline& pipeline, const Item& item) {
  Json origins = Json::array();
  const auto add = [&origins](const std::string& role, const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      Json entry = to_json(io::identity_of(file));
      entry["role"] = role;
      origins.push_back(std::move(entry));
    }
  };
  for (const auto& [name, source] : item.images) add(name, io::input_files(source));
  for (const std::string& file : pipeline.files) add("", files_of(filled_in(file, "", item)));
  return origins;
}

void remove_partial_files(const Pipeline& pipeline, const Items& items, const std::string& output_directory,
                          const std::vector<std::string>& processes) {
  std::set<fs::path> folders{output_directory};  // of the report
  for (const Item& item : items.items)
    for (const OutputSpec& output : pipeline.outputs)
      folders.insert(fs::path(output_path(output, item, output_directory)).parent_path());
  for (const fs::path& folder : folders) {
    std::error_code failure;
    for (fs::directory_iterator file(folder, failure), end; !failure && file != end; file.increment(failure)) {
      const std::string name = file->path().filename().string();
      for (const std::string& process : processes)
        if (io::is_partial_file_of(name, process)) {
          std::error_code ignored;
          fs::remove(file->path(), ignored);
        }
    }
  }
}

}  // namespace volpipe
