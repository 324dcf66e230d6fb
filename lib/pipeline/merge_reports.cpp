#include "pipeline/merge_reports.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "volume/error.h"

namespace volpipe {

namespace {

Error fault(const std::string& path, const std::string& message) {
  return Error(ErrorCode::usage, message).with_path(path);
}

void check_is_report(const NamedReport& report) {
  const auto& [path, content] = report;
  if (!content.is_object() || !content.contains("volpipe_report"))
    throw fault(path, "this is no report of 'volpipe run'");
  const auto has = [&content = content](const char* key, bool (Json::*is_right)() const noexcept) {
    const auto found = content.find(key);
    return found != content.end() && ((*found).*is_right)();
  };
  for (const char* key : {"items", "warnings"})
    if (!has(key, &Json::is_array)) throw fault(path, std::string("the report lacks '") + key + "': was it edited?");
  for (const char* key : {"totals", "throughput"})
    if (!has(key, &Json::is_object)) throw fault(path, std::string("the report lacks '") + key + "': was it edited?");
  for (const char* key : {"run_key", "all_items"})
    if (!has(key, &Json::is_string)) throw fault(path, std::string("the report lacks '") + key + "': was it edited?");
}

/// What all shards of one run share: version, spec, variables, seed, decisions about inputs.
std::string origin_of(const Json& report) { return report.at("run_key").get<std::string>(); }

int shards_of(const Json& report) { return report.contains("shard") ? report["shard"].at("count").get<int>() : 1; }

void check_belongs(const NamedReport& first, const NamedReport& other) {
  if (other.second.contains("shards")) throw fault(other.first, "this is a merged report already: leave it out");
  if (origin_of(first.second) != origin_of(other.second))
    throw fault(other.first, "it comes of another spec, variable, seed, option or version than " + first.first +
                                 ": merge the reports of one run");
  if (first.second.at("all_items") != other.second.at("all_items"))
    throw fault(other.first, "its run found other items than that of " + first.first +
                                 ": give all shards the same inputs, and run them again");
  if (shards_of(first.second) != shards_of(other.second))
    throw fault(other.first, "it is one of " + std::to_string(shards_of(other.second)) + " shards, " + first.first +
                                 " one of " + std::to_string(shards_of(first.second)));
}

Json items_of(const std::vector<NamedReport>& reports) {
  std::map<std::tuple<std::string, std::int64_t>, std::string> owners;
  std::vector<Json> items;
  for (const auto& [path, report] : reports)
    for (const Json& item : report.at("items")) {
      const auto [owner, added] =
          owners.emplace(std::tuple{item.at("id").get<std::string>(), item.at("repeat").get<std::int64_t>()}, path);
      if (!added) throw fault(path, "item '" + item.at("id").get<std::string>() + "' is in " + owner->second + " too");
      items.push_back(item);
    }
  std::stable_sort(items.begin(), items.end(), [](const Json& a, const Json& b) {
    return std::tuple{a["id"].get<std::string>(), a["repeat"].get<std::int64_t>()} <
           std::tuple{b["id"].get<std::string>(), b["repeat"].get<std::int64_t>()};
  });
  return Json(items);
}

Json sums(const std::vector<NamedReport>& reports, const char* key) {
  Json total = reports.front().second.at(key);
  for (auto& [name, value] : total.items()) {
    value = 0;
    for (const NamedReport& report : reports)
      value = value.get<std::int64_t>() + report.second.at(key).at(name).get<std::int64_t>();
  }
  return total;
}

Json largest(const std::vector<NamedReport>& reports, const char* key) {
  Json most = reports.front().second.at(key);
  for (const NamedReport& report : reports)
    if (report.second.at(key) > most) most = report.second.at(key);
  return most;
}

/// What all did, over the time of the slowest.
Json throughput_of(const std::vector<NamedReport>& reports, double wall_ms) {
  Json rates = reports.front().second.at("throughput");
  for (auto& [name, rate] : rates.items()) {
    double done = 0;
    for (const NamedReport& report : reports)
      done += report.second.at("throughput").at(name).get<double>() * report.second.at("wall_ms").get<double>();
    rate = wall_ms > 0 ? done / wall_ms : 0.0;
  }
  return rates;
}

Json shards_of(const std::vector<NamedReport>& reports) {
  Json list = Json::array();
  for (const auto& [path, report] : reports) {
    Json shard = {{"path", path}};
    for (const char* key : {"shard", "host", "device_used", "fallback_reason", "wall_ms", "totals", "interrupted"})
      if (report.contains(key)) shard[key] = report[key];
    list.push_back(std::move(shard));
  }
  return list;
}

Json warnings_of(const std::vector<NamedReport>& reports) {
  Json list = Json::array();
  std::set<int> found;
  for (const auto& [path, report] : reports) {
    for (const Json& warning : report.at("warnings"))
      if (std::find(list.begin(), list.end(), warning) == list.end()) list.push_back(warning);
    found.insert(report.contains("shard") ? report["shard"].at("index").get<int>() : 1);
  }
  const int count = shards_of(reports.front().second);
  for (int index = 1; index <= count; ++index)
    if (!found.contains(index))
      list.push_back({{"code", "missing_shard"},
                      {"message", "the report of shard " + std::to_string(index) + " of " + std::to_string(count) +
                                      " is missing"}});
  return list;
}

}  // namespace

Json merge_reports(const std::vector<NamedReport>& reports) {
  try {
    for (const NamedReport& report : reports) {
      check_is_report(report);
      check_belongs(reports.front(), report);
    }
    Json merged = reports.front().second;
    merged.erase("shard");
    merged["finished"] = largest(reports, "finished");
    merged["interrupted"] = largest(reports, "interrupted");
    merged["wall_ms"] = largest(reports, "wall_ms");
    merged["totals"] = sums(reports, "totals");
    merged["throughput"] = throughput_of(reports, merged["wall_ms"].get<double>());
    merged["peak_host_bytes"] = largest(reports, "peak_host_bytes");
    merged["peak_device_bytes"] = largest(reports, "peak_device_bytes");
    merged["warnings"] = warnings_of(reports);
    merged["items"] = items_of(reports);
    merged["shards"] = shards_of(reports);
    return merged;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::usage, std::string("a report lacks what this version writes: ") + error.what());
  }
}

}  // namespace volpipe
