// From what was named on the command line to the items of a run: which files belong together, and where results go.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/io.h"
#include "pipeline/pipeline.h"
#include "pipeline/shard.h"

namespace volpipe {

/// One unit of work: the named images that are transformed together.
struct Item {
  std::string id;         ///< directory/stem: unique in a run, stable across runs
  std::string directory;  ///< {dir}
  std::string stem;       ///< {stem}, the suffix of the image's name removed
  std::map<std::string, io::Source> images;
  std::uint32_t repeat = 0;  ///< {repeat}: which of its versions ("repeat" of the spec), from 0
};

/// An item that cannot even be formed.
struct ItemFault {
  std::string id;
  std::string path;
  std::string message;
};

struct Items {
  std::vector<Item> items;  ///< sorted by id, bytewise, the versions of an item one after another
  std::vector<ItemFault> faults;
  Notices notices;
};

/// `inputs`: files, folders, @LIST (one path a line), "-" (paths on standard input). `manifest`: a JSON list of objects
/// or a CSV with a header row, one item a row, columns named after images (and optionally "id"); relative paths are
/// relative to the manifest. Throws Error(usage) when an input does not exist or nothing was found.
Items collect_items(const Pipeline& pipeline, const std::vector<std::string>& inputs, const std::string& manifest,
                    const io::ReadOptions& reading = {});

/// The shard's part: every count-th of the items and faults together in the order of their paths, so that a file which
/// is mended stays in its shard.
void take_shard(Items& items, const Shard& shard);

/// Tells sets of items apart by their paths, whether they can be read or not: 64 hexadecimal digits.
std::string fingerprint(const Items& items);

/// Path of an output below `output_directory`. Throws Error(usage) when it would leave it.
std::string output_path(const OutputSpec& output, const Item& item, const std::string& output_directory);
/// The same for a path by itself; `image` fills {name}.
std::string output_path(const std::string& path, const std::string& image, const Item& item,
                        const std::string& output_directory);
/// {dir}, {stem}, {id}, {repeat} and {name} of `text` filled in.
std::string filled_in(const std::string& text, const std::string& image, const Item& item);

/// Files that must not be written, found before any work: two items with one path; an output, or one of `own_files`
/// (the report, the log; "" is none), that is also an input, the spec or another output. One line each.
std::vector<std::string> check_output_paths(const Pipeline& pipeline, const Items& items,
                                            const std::string& output_directory,
                                            const std::vector<std::string>& own_files = {});

/// Outputs that are there already, one line each.
std::vector<std::string> existing_outputs(const Pipeline& pipeline, const Items& items,
                                          const std::string& output_directory);

}  // namespace volpipe
