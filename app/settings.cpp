#include "settings.h"

#include <charconv>
#include <cmath>

#include "io/atomic_file.h"
#include "volume/error.h"

namespace volpipe::app {

std::map<std::string, Json> parse_settings(const std::vector<std::string>& settings) {
  std::map<std::string, Json> result;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorCode::usage, "--set '" + setting + "' must be NAME=VALUE");
    const std::string value = setting.substr(equals + 1);
    Json parsed = Json::parse(value, nullptr, false);
    try {
      Json(value).dump();
    } catch (const Json::exception&) {
      throw Error(ErrorCode::usage, "--set " + setting.substr(0, equals) + ": the value is not UTF-8");
    }
    result[setting.substr(0, equals)] = parsed.is_discarded() ? Json(value) : std::move(parsed);
  }
  return result;
}

std::size_t parse_bytes(const std::string& option, const std::string& text) {
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  if (unit.size() > 1 && (unit.ends_with("B") || unit.ends_with("b"))) unit.pop_back();
  if (unit.size() > 1 && (unit.ends_with("i"))) unit.pop_back();
  const std::string_view units = "KMGTkmgt";
  const std::size_t at = unit.size() == 1 ? units.find(unit[0]) : std::string_view::npos;
  if (fault != std::errc{} || !(number > 0) || (!unit.empty() && at == std::string_view::npos))
    throw Error(ErrorCode::usage, option + " '" + text + "' must be a size such as 8G or 512M");
  const double bytes = unit.empty() ? number : number * std::pow(1024.0, double(at % 4 + 1));
  if (unit.empty() && bytes < 4096)
    throw Error(ErrorCode::usage, option + " '" + text + "' is that many bytes: did you mean " + text + "G?");
  if (bytes > 0x1p62) throw Error(ErrorCode::usage, option + " '" + text + "' is more than any machine has");
  return std::size_t(bytes);
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (fault != std::errc{} || end != text.data() + text.size() || text.empty())
    throw Error(ErrorCode::usage, "--seed '" + text + "' must be a whole number from 0 to 2^64 - 1");
  return seed;
}

void write_json(const Json& json, const std::string& path) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  io::AtomicFile file(path, true);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace volpipe::app
