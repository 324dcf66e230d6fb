#include "pipeline/items.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "volume/error.h"
#include "volume/sha256.h"

namespace volpipe {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string joined(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

std::vector<std::string> path_lines(std::istream& stream) {
  std::vector<std::string> paths;
  for (std::string line; std::getline(stream, line);) {
    if (paths.empty() && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) paths.push_back(line);
  }
  return paths;
}

std::vector<std::string> expand_lists(const std::vector<std::string>& inputs) {
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    std::vector<std::string> lines{input};
    if (input == "-") {
      lines = path_lines(std::cin);
    } else if (input.starts_with("@")) {
      std::ifstream list(input.substr(1));
      if (!list) throw Error(ErrorCode::usage, "cannot read the list of inputs '" + input.substr(1) + "'");
      lines = path_lines(list);
    }
    paths.insert(paths.end(), lines.begin(), lines.end());
  }
  return paths;
}

std::string canonical(const std::string& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path, ignored).string();
}

/// The input whose suffix ends the stem; the longest suffix wins, null when none fits.
const InputSpec* match_suffix(const Pipeline& pipeline, const std::string& stem) {
  const InputSpec* best = nullptr;
  for (const InputSpec& input : pipeline.inputs)
    if (stem.ends_with(input.suffix) && (!best || input.suffix.size() > best->suffix.size())) best = &input;
  return best;
}

void report_missing(const Pipeline& pipeline, Items& result) {
  std::erase_if(result.items, [&](const Item& item) {
    for (const InputSpec& input : pipeline.inputs)
      if (!input.optional && !item.images.contains(input.name)) {
        result.faults.push_back({item.id, item.images.begin()->second.path,
                                 "image '" + input.name + "' is missing: no file '" + item.stem + input.suffix +
                                     ".*' was found beside it"});
        return true;
      }
    return false;
  });
}

void group_by_suffix(const Pipeline& pipeline, std::vector<io::Source> sources, Items& result) {
  std::map<std::string, Item> by_id;
  std::set<std::string> ambiguous;
  std::size_t foreign = 0;
  for (io::Source& source : sources) {
    const InputSpec* input = match_suffix(pipeline, source.stem);
    if (!input) {
      ++foreign;
      continue;
    }
    const std::string stem = source.stem.substr(0, source.stem.size() - input->suffix.size());
    const std::string id = joined(source.directory, stem);
    Item& item = by_id[id];
    item.id = id;
    item.directory = source.directory;
    item.stem = stem;
    const auto [place, added] = item.images.emplace(input->name, source);
    if (!added && ambiguous.insert(id).second)
      result.faults.push_back(
          {id, source.path,
           "two files give image '" + input->name + "' of one item: also '" + place->second.path + "'"});
  }
  for (auto& [id, item] : by_id)
    if (!ambiguous.contains(id)) result.items.push_back(std::move(item));
  if (foreign)
    result.notices.add("no_suffix",
                       std::to_string(foreign) + " files fit no suffix of the spec's inputs and were passed over");
  report_missing(pipeline, result);
}

void one_item_each(const Pipeline& pipeline, std::vector<io::Source> sources, Items& result) {
  for (io::Source& source : sources) {
    Item item{joined(source.directory, source.stem), source.directory, source.stem, {}};
    item.images.emplace(pipeline.inputs.front().name, std::move(source));
    result.items.push_back(std::move(item));
  }
}

using Row = std::map<std::string, std::string>;

std::vector<std::string> split_csv(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') cells.back() += line[++i];
    else if (line[i] == '"') quoted = !quoted;
    else if (line[i] == ',' && !quoted) cells.emplace_back();
    else cells.back() += line[i];
  }
  return cells;
}

std::vector<Row> manifest_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::usage, "cannot read the manifest '" + path + "'");
  std::vector<Row> rows;
  if (path.ends_with(".json")) {
    const Json list = Json::parse(file, nullptr, false, true);
    if (!list.is_array())
      throw Error(ErrorCode::usage, "the manifest '" + path + "' must be a JSON list of objects {\"image\": \"path\"}");
    for (const Json& entry : list) {
      Row row;
      if (!entry.is_object())
        throw Error(ErrorCode::usage,
                    "the manifest '" + path + "' must be a JSON list of objects {\"image\": \"path\"}");
      for (const auto& [key, value] : entry.items())
        row[key] = value.is_string() ? value.get<std::string>() : value.dump();
      rows.push_back(std::move(row));
    }
    return rows;
  }
  const std::vector<std::string> lines = path_lines(file);
  if (lines.empty())
    throw Error(ErrorCode::usage, "the manifest '" + path + "' is empty: its first row names the columns");
  const std::vector<std::string> header = split_csv(lines[0]);
  if (std::set<std::string>(header.begin(), header.end()).size() != header.size())
    throw Error(ErrorCode::usage, path + ":1: a column is named twice");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = split_csv(lines[i]);
    if (cells.size() != header.size())
      throw Error(ErrorCode::usage, path + ":" + std::to_string(i + 1) + ": the row has " +
                                        std::to_string(cells.size()) + " cells, the header " +
                                        std::to_string(header.size()));
    Row row;
    for (std::size_t j = 0; j < header.size(); ++j) row[header[j]] = cells[j];
    rows.push_back(std::move(row));
  }
  return rows;
}

void items_of_manifest(const Pipeline& pipeline, const std::string& manifest, const io::ReadOptions& reading,
                       Items& result) {
  for (const Row& row : manifest_rows(manifest)) {
    Item item;
    for (const auto& [column, value] : row) {
      if (column == "id") item.stem = value;
      else if (!pipeline.find_input(column))
        throw Error(ErrorCode::usage,
                    "the manifest '" + manifest + "' has a column '" + column + "' that is no image of the spec");
    }
    for (const InputSpec& input : pipeline.inputs) {
      const auto cell = row.find(input.name);
      if (cell == row.end() || cell->second.empty()) {
        if (!input.optional)
          throw Error(ErrorCode::usage, "the manifest '" + manifest + "' has a row without image '" + input.name + "'");
        continue;
      }
      const std::string path = (fs::path(manifest).parent_path() / cell->second).string();
      io::Found found;
      try {
        found = io::find_sources(path, reading);
      } catch (const Error& error) {
        result.faults.push_back({cell->second, path, error.what()});
        continue;
      }
      for (auto& fault : found.faults) result.faults.push_back({fault.path, fault.path, fault.message});
      if (found.sources.size() != 1) {
        if (found.faults.empty())
          result.faults.push_back(
              {cell->second, path, "is not one volume but " + std::to_string(found.sources.size())});
        continue;
      }
      if (item.stem.empty()) item.stem = found.sources[0].stem;
      item.images.emplace(input.name, std::move(found.sources[0]));
    }
    item.id = item.stem;
    if (!item.images.empty()) result.items.push_back(std::move(item));
  }
  report_missing(pipeline, result);
}

/// visit(item, path) for every output the items have an image for.
template <class Visit>
void for_each_output(const Pipeline& pipeline, const Items& items, const std::string& output_directory, Visit&& visit) {
  for (const Item& item : items.items) {
    for (const OutputSpec& output : pipeline.outputs)
      if (item.images.contains(output.image) || !pipeline.find_input(output.image))
        visit(item, output_path(output, item, output_directory));
    for (const SavedMap& saved : pipeline.saved_maps) visit(item, output_path(saved.path, "", item, output_directory));
  }
}

void number_equal_ids(Items& result) {
  std::sort(result.items.begin(), result.items.end(), [](const Item& a, const Item& b) { return a.id < b.id; });
  // Files that differ only in extension, or come from different roots, keep their own ids: the later gain a number.
  std::set<std::string> seen;
  for (Item& item : result.items) {
    std::string id = item.id;
    for (int k = 2; !seen.insert(id).second; ++k) id = item.id + "~" + std::to_string(k);
    item.id = id;
  }
}

/// Each item as many times as the spec says.
void repeat_items(std::int64_t repeat, std::vector<Item>& items) {
  if (repeat == 1) return;
  std::vector<Item> repeated;
  for (const Item& item : items)
    for (std::int64_t r = 0; r < repeat; ++r) {
      repeated.push_back(item);
      repeated.back().repeat = std::uint32_t(r);
    }
  items = std::move(repeated);
}

}  // namespace

Items collect_items(const Pipeline& pipeline, const std::vector<std::string>& inputs, const std::string& manifest,
                    const io::ReadOptions& reading) {
  Items result;
  std::vector<io::Source> sources;
  std::set<std::string> seen;
  for (const std::string& input : expand_lists(inputs)) {
    io::Found found = [&] {
      try {
        return io::find_sources(input, reading);
      } catch (const Error& error) {
        const std::string reason = error.what();
        throw Error(ErrorCode::usage,
                    reason.find(input) == std::string::npos ? "input '" + input + "': " + reason : reason);
      }
    }();
    for (io::Source& source : found.sources)
      if (seen.insert(canonical(source.path) + '\n' + source.series_uid + '\n' + source.stem).second)
        sources.push_back(std::move(source));
    for (auto& fault : found.faults) result.faults.push_back({fault.path, fault.path, fault.message});
    for (const Notice& notice : found.notices.list()) result.notices.add(notice.code, notice.message);
  }
  if (pipeline.has_input_rules) group_by_suffix(pipeline, std::move(sources), result);
  else one_item_each(pipeline, std::move(sources), result);
  if (!manifest.empty()) items_of_manifest(pipeline, manifest, reading, result);
  number_equal_ids(result);
  repeat_items(pipeline.repeat, result.items);
  if (result.items.empty() && result.faults.empty())
    throw Error(ErrorCode::usage,
                "no volume was found in the inputs (known: .nii .nii.gz .hdr/.img .nrrd .nhdr .mha .mhd and DICOM)");
  return result;
}

namespace {

/// What an item is known by whether it can be read or not.
const std::string& path_of(const Item& item) {
  return item.images.empty() ? item.id : item.images.begin()->second.path;
}

}  // namespace

void take_shard(Items& items, const Shard& shard) {
  struct Place {
    std::string path;
    std::uint32_t repeat;
    std::optional<std::size_t> item, fault;
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < items.items.size(); ++i)
    places.push_back({path_of(items.items[i]), items.items[i].repeat, i, {}});
  for (std::size_t i = 0; i < items.faults.size(); ++i) places.push_back({items.faults[i].path, 0, {}, i});
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.path, a.repeat) < std::tie(b.path, b.repeat);
  });
  std::vector<bool> mine(items.items.size()), my_fault(items.faults.size());
  for (std::size_t i = std::size_t(shard.index - 1); i < places.size(); i += std::size_t(shard.count)) {
    if (places[i].item) mine[*places[i].item] = true;
    else my_fault[*places[i].fault] = true;
  }
  std::size_t item = 0, fault = 0;
  std::erase_if(items.items, [&](const Item&) { return !mine[item++]; });
  std::erase_if(items.faults, [&](const ItemFault&) { return !my_fault[fault++]; });
}

std::string fingerprint(const Items& items) {
  std::set<std::string> paths;
  for (const Item& item : items.items) paths.insert(path_of(item));
  for (const ItemFault& fault : items.faults) paths.insert(fault.path);
  std::string text;
  for (const std::string& path : paths) text += path + '\n';
  return sha256_of(text);
}

std::string filled_in(const std::string& text, const std::string& image, const Item& item) {
  const std::map<std::string, std::string> fields = {{"dir", item.directory},
                                                     {"stem", item.stem},
                                                     {"name", image},
                                                     {"id", item.id},
                                                     {"repeat", std::to_string(item.repeat)}};
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t close = text[at] == '{' ? text.find('}', at) : std::string::npos;
    const auto field = close == std::string::npos ? fields.end() : fields.find(text.substr(at + 1, close - at - 1));
    if (field == fields.end()) {
      result += text[at++];
    } else {
      result += field->second;
      at = close + 1;
    }
  }
  return result;
}

std::string output_path(const OutputSpec& output, const Item& item, const std::string& output_directory) {
  return output_path(output.path, output.image, item, output_directory);
}

std::string output_path(const std::string& wanted, const std::string& image, const Item& item,
                        const std::string& output_directory) {
  std::string path = filled_in(wanted, image, item);
  while (path.starts_with("/")) path.erase(0, 1);
  const fs::path normal = fs::path(path).lexically_normal();
  if (normal.empty() || *normal.begin() == "..")
    throw Error(ErrorCode::usage, "the output path '" + path + "' of item '" + item.id + "' leaves the output folder");
  return (fs::path(output_directory) / normal).string();
}

std::vector<std::string> check_output_paths(const Pipeline& pipeline, const Items& items,
                                            const std::string& output_directory,
                                            const std::vector<std::string>& own_files) {
  std::set<std::string> named{pipeline.origin};  // each is looked up once, however many items name it
  for (const Item& item : items.items) {
    for (const std::string& file : pipeline.files) named.insert(filled_in(file, "", item));
    if (item.repeat > 0) continue;
    for (const auto& [name, source] : item.images)
      for (const std::string& file : io::input_files(source)) named.insert(file);
  }
  std::set<std::string> inputs;
  for (const std::string& file : named) inputs.insert(canonical(file));

  std::vector<std::string> faults;
  std::map<std::string, std::string> owner;
  const auto check_file = [&](const std::string& file, const std::string& id) {
    const auto [place, added] = owner.emplace(canonical(file), id);
    if (inputs.contains(place->first))
      faults.push_back(file + ": is also an input; choose another output folder or name");
    else if (!added && place->second == id)
      faults.push_back(file + ": two images of item '" + id +
                       "' would both write it; put {name} into the output paths");
    else if (!added)
      faults.push_back(file + ": items '" + place->second + "' and '" + id +
                       "' would both write it; put {dir}, {stem} or {id} into the output path");
  };
  for_each_output(pipeline, items, output_directory, [&](const Item& item, const std::string& path) {
    for (const std::string& file : io::output_files(path)) check_file(file, item.id);
  });
  for (const std::string& file : own_files) {
    if (file.empty()) continue;
    if (inputs.contains(canonical(file)))
      faults.push_back(file + ": the report or log cannot be written over an input");
    else if (owner.contains(canonical(file)))
      faults.push_back(file + ": the report or log cannot be written over an output");
  }
  return faults;
}

std::vector<std::string> existing_outputs(const Pipeline& pipeline, const Items& items,
                                          const std::string& output_directory) {
  std::vector<std::string> faults;
  for_each_output(pipeline, items, output_directory, [&](const Item&, const std::string& path) {
    std::error_code ignored;
    for (const std::string& file : io::output_files(path))
      if (fs::exists(fs::symlink_status(file, ignored)))
        faults.push_back(file + ": exists already: --resume goes on with an earlier run, --overwrite replaces it");
  });
  return faults;
}

}  // namespace volpipe
