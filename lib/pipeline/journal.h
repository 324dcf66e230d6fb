// What a run has finished, line by line, so that it can go on where it was stopped.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/file_identity.h"
#include "pipeline/items.h"
#include "pipeline/report.h"

namespace volpipe {

/// What must be the same for a result to be taken over: version, spec with its variables, seed, and what else decides.
/// 64 hexadecimal digits.
std::string run_key(const Pipeline& pipeline, std::uint64_t seed, const Json& decisions);

/// Name of the journal below the output folder: of a whole run, or of a shard.
std::string journal_name(const Shard& shard);

/// Finished items of earlier runs into one folder. A line that is torn or says something else is passed over.
class FinishedItems {
 public:
  /// From all journals of the folder.
  explicit FinishedItems(const std::string& output_directory);

  /// The report's entry of an item whose inputs, stage files, spec, version and outputs are all as they were; else
  /// nothing. Outputs whose time has changed are compared by their bytes.
  std::shared_ptr<const Json> find(const Pipeline& pipeline, const Item& item, const std::string& key) const;

  /// How many of the items were finished under other keys only.
  std::size_t made_otherwise(const Items& items, const std::string& key) const;

  /// Marks of the processes that wrote the journal of this name.
  const std::vector<std::string>& processes(const std::string& journal) const;

 private:
  void read(const std::string& path);
  bool outputs_are_there(const Json& entry) const;

  std::string output_directory_;
  std::map<std::pair<std::string, std::uint32_t>, std::vector<std::shared_ptr<const Json>>> entries_;
  std::map<std::string, std::vector<std::string>> processes_;
};

/// Takes the items that are finished out of `items`; their records, with status resumed.
std::vector<ItemRecord> take_finished(const Pipeline& pipeline, Items& items, const FinishedItems& finished,
                                      const std::string& key);

/// The journal of a run: one JSON object a line, on the disk before append() returns. Any thread may append.
class Journal {
 public:
  /// Opens output_directory/name, emptied unless `resume`. Throws Error(usage) when another run is writing it and
  /// Error(output) when it cannot be written.
  Journal(const std::string& output_directory, const std::string& name, const std::string& key, bool resume);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// `origins`: origins_of() the item, before it was read. Throws Error(output).
  void append(const ItemRecord& record, const Json& origins);

 private:
  void write_line(const Json& line);

  std::string output_directory_, path_, key_;
  std::mutex mutex_;
  int descriptor_ = -1;
};

/// All files that an item is made from, in which role and in which state: those of its images, those that stages name
/// (with their companions, or all files of a folder). Throws Error(input) where one is missing.
Json origins_of(const Pipeline& pipeline, const Item& item);

/// Removes the unfinished files that processes which are no more left in the folders of the items' outputs.
void remove_partial_files(const Pipeline& pipeline, const Items& items, const std::string& output_directory,
                          const std::vector<std::string>& processes);

}  // namespace volpipe
