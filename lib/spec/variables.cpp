#include "spec/variables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/philox.h"
#include "spec/json_text.h"

namespace volpipe {

namespace {

/// Rebuilds a tree of JSON with `replace` applied to each node first; empty optional: descend.
template <class Replace>
Json transform(const Json& value, const std::string& pointer, Replace&& replace) {
  if (std::optional<Json> replaced = replace(value, pointer)) return *replaced;
  if (value.is_object()) {
    Json result = Json::object();
    for (const auto& [key, child] : value.items())
      result[key] = transform(child, pointer + "/" + pointer_token(key), replace);
    return result;
  }
  if (value.is_array()) {
    Json result = Json::array();
    for (std::size_t i = 0; i < value.size(); ++i)
      result.push_back(transform(value[i], pointer + "/" + std::to_string(i), replace));
    return result;
  }
  return value;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

const std::vector<std::string>& distribution_names() {
  static const std::vector<std::string> names{"uniform", "normal", "choice"};
  return names;
}

}  // namespace

namespace {

/// The next "${name}" of a text from `from` on: where it begins and the name; begin npos when there is none.
struct VariableUse {
  std::size_t begin, end;
  std::string name;
};

VariableUse next_use(const std::string& text, std::size_t from) {
  const std::size_t begin = text.find("${", from);
  const std::size_t close = begin == std::string::npos ? begin : text.find('}', begin);
  if (close == std::string::npos) return {close, close, ""};
  return {begin, close + 1, text.substr(begin + 2, close - begin - 2)};
}

std::string no_such_variable(const std::string& name, const Json& variables) {
  std::vector<std::string> names;
  for (const auto& entry : variables.items()) names.push_back(entry.key());
  return "there is no variable '" + name + "'" + did_you_mean(name, names) +
         (names.empty() ? "; declare it under \"variables\"" : "");
}

}  // namespace

Json substitute_variables(const Json& value, const Json& variables, const std::string& pointer, Faults& faults) {
  return transform(value, pointer, [&](const Json& node, const std::string& place) -> std::optional<Json> {
    if (!node.is_string()) return std::nullopt;
    const auto text = node.get<std::string>();
    std::string result;
    std::size_t end = 0;
    for (VariableUse found = next_use(text, 0); found.begin != std::string::npos; found = next_use(text, end)) {
      if (!variables.contains(found.name)) {
        faults.add(place, no_such_variable(found.name, variables));
        return node;
      }
      if (found.begin == 0 && found.end == text.size()) return variables[found.name];
      result += text.substr(end, found.begin - end) + text_of(variables[found.name]);
      end = found.end;
    }
    return Json(result + text.substr(end));
  });
}

bool is_distribution(const Json& value) {
  if (!value.is_object() || value.size() != 1) return false;
  const auto& names = distribution_names();
  return std::find(names.begin(), names.end(), value.begin().key()) != names.end();
}

bool has_distribution(const Json& value) {
  if (is_distribution(value)) return true;
  if (value.is_structured())
    for (const Json& child : value)
      if (has_distribution(child)) return true;
  return false;
}

void check_distributions(const Json& value, const std::string& pointer, Faults& faults) {
  transform(value, pointer, [&](const Json& node, const std::string& place) -> std::optional<Json> {
    if (!is_distribution(node)) return std::nullopt;
    const std::string kind = node.begin().key();
    const Json& list = node.begin().value();
    const bool numbers = list.is_array() && list.size() == 2 && list[0].is_number() && list[1].is_number();
    if (kind == "choice" && !(list.is_array() && !list.empty()))
      faults.add(place, "'choice' must be a list of at least one value");
    if (kind == "uniform" && !(numbers && list[0] <= list[1]))
      faults.add(place, "'uniform' must be [low, high] with low <= high");
    if (kind == "normal" && !(numbers && list[1] >= 0))
      faults.add(place, "'normal' must be [mean, standard deviation >= 0]");
    return node;
  });
}

Json distribution_extreme(const Json& value, std::size_t k) {
  return transform(value, "", [k](const Json& node, const std::string&) -> std::optional<Json> {
    if (!is_distribution(node)) return std::nullopt;
    const Json& list = node.begin().value();
    if (node.begin().key() == "normal") return list[0];
    return list[std::min(k, list.size() - 1)];
  });
}

std::size_t distribution_extremes(const Json& value) {
  std::size_t most = 1;
  transform(value, "", [&most](const Json& node, const std::string&) -> std::optional<Json> {
    if (!is_distribution(node)) return std::nullopt;
    most = std::max(most, node.begin().value().size());
    return node;
  });
  return most;
}

DrawStream::DrawStream(std::uint64_t seed, const std::string& item_id, std::uint32_t repeat, std::uint32_t stage_index)
    : repeat_(repeat), stage_index_(stage_index) {
  const std::uint64_t item = fnv1a(item_id);
  key_ = seed ^ (item & 0xffffffff00000000u);
  item_word_ = std::uint32_t(item);
}

double DrawStream::uniform() {
  const PhiloxWords words = philox4x32({{drawn_++, stage_index_, repeat_, item_word_}}, key_);
  return uniform_from(words.word[0], words.word[1]);
}

std::uint64_t DrawStream::bits() {
  const PhiloxWords words = philox4x32({{drawn_++, stage_index_, repeat_, item_word_}}, key_);
  return std::uint64_t(words.word[0]) << 32 | words.word[1];
}

double DrawStream::normal() {
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Json DrawStream::draw(const Json& value) {
  return transform(value, "", [this](const Json& node, const std::string&) -> std::optional<Json> {
    if (!is_distribution(node)) return std::nullopt;
    const Json& list = node.begin().value();
    const std::string kind = node.begin().key();
    if (kind == "choice") return list[std::size_t(uniform() * double(list.size()))];
    const double a = list[0].get<double>(), b = list[1].get<double>();
    if (kind == "uniform" && list[0].is_number_integer() && list[1].is_number_integer())
      return Json(std::int64_t(std::min(a + std::floor((b - a + 1) * uniform()), b)));
    return Json(kind == "uniform" ? a + (b - a) * uniform() : a + b * normal());
  });
}

}  // namespace volpipe
