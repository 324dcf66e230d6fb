#include "spec/parameters.h"

#include <cstdio>

namespace volpipe {

namespace {

constexpr std::string_view kAxisLetters = "xyz";

/// Letters to put in, leave out, replace or exchange with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  return rows[a.size()][b.size()];
}

std::string number_in_words(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  std::size_t best = (word.size() <= 4 ? 1 : std::max<std::size_t>(2, word.size() / 3)) + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t distance = edit_distance(word, candidate);
        distance < best && distance < std::min(word.size(), candidate.size())) {
      best = distance;
      nearest = &candidate;
    }
  return nearest ? "; did you mean '" + *nearest + "'?" : "";
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + ("'" + words[i] + "'");
  return text;
}

namespace detail {

std::string range_in_words(const Limits& limits) {
  const bool low = std::isfinite(limits.min), high = std::isfinite(limits.max);
  const std::string least = number_in_words(limits.min), most = number_in_words(limits.max);
  if (low && high)
    return limits.exclusive_min ? "above " + least + " and at most " + most : "from " + least + " to " + most;
  if (low) return (limits.exclusive_min ? "above " : "at least ") + least;
  if (high) return "at most " + most;
  return "";
}

std::string check_number(const Json& json, const Limits& limits, double& value) {
  const std::string range = range_in_words(limits);
  const std::string expected = range.empty() ? "a number" : "a number " + range;
  if (!json.is_number()) return expected;
  value = json.get<double>();
  const bool above = limits.exclusive_min ? value > limits.min : value >= limits.min;
  return std::isfinite(value) && above && value <= limits.max ? "" : expected;
}

std::string check_integer(const Json& json, const Limits& limits, std::int64_t& value) {
  double number = 0;
  const std::string range = range_in_words(limits);
  const std::string expected = range.empty() ? "a whole number" : "a whole number " + range;
  if (!check_number(json, limits, number).empty() || number != std::floor(number) || std::abs(number) > 9e15)
    return expected;
  value = std::int64_t(number);
  return "";
}

Json number_schema(const char* type, const Limits& limits) {
  Json schema = {{"type", type}};
  if (std::isfinite(limits.min)) schema[limits.exclusive_min ? "exclusiveMinimum" : "minimum"] = limits.min;
  if (std::isfinite(limits.max)) schema["maximum"] = limits.max;
  return schema;
}

}  // namespace detail

std::string ParameterType<ImageAliases>::read(const Json& json, const Limits&, ImageAliases& value) {
  if (!json.is_object()) return name();
  for (const auto& [alias, image] : json.items()) {
    if (!image.is_string() || image.get<std::string>().empty()) return name();
    value.images.emplace_back(alias, image.get<std::string>());
  }
  return "";
}

std::string ParameterType<ExpressionText>::read(const Json& json, const Limits&, ExpressionText& value) {
  if (json.is_object()) try {
      value.images = json.at("images").get<std::vector<std::string>>();
      value.on = json.at("on").get<std::vector<std::string>>();
      for (const auto& [variable, given] : json.at("variables").items())
        if (given.is_number()) value.variables[variable] = given.get<double>();
        else value.unusable[variable] = given.get<std::string>();
      value.text = json.at("text").get<std::string>();
      return "";
    } catch (const Json::exception&) { return name(); }
  if (!json.is_string()) return name();
  value.text = json.get<std::string>();
  return "";
}

Json ParameterType<ExpressionText>::with_names(const std::string& text, const std::vector<std::string>& images,
                                               const std::vector<std::string>& on, const Json& variables) {
  Json usable = Json::object();
  for (const auto& [name, value] : variables.items())
    usable[name] = value.is_number()    ? value
                   : value.is_string()  ? Json("is a text")
                   : value.is_boolean() ? Json("is true or false")
                   : value.is_object()  ? Json("is random")
                                        : Json("is a list");
  return {{"text", text}, {"images", images}, {"on", on}, {"variables", usable}};
}

std::string ParameterType<NewImages>::read(const Json& json, const Limits&, NewImages& value) {
  const Json list = json.is_array() ? json : Json::array({json});
  for (const Json& entry : list) {
    if (!entry.is_string() || entry.get<std::string>().empty()) return name();
    value.names.push_back(entry.get<std::string>());
  }
  return value.names.empty() ? name() : "";
}

std::string ParameterType<AffineMatrix>::read(const Json& json, const Limits&, AffineMatrix& value) {
  if (!json.is_array() || json.size() != 4) return name();
  for (std::size_t row = 0; row < 4; ++row) {
    if (!json[row].is_array() || json[row].size() != 4) return name();
    for (std::size_t column = 0; column < 4; ++column) {
      double number = 0;
      if (!detail::check_number(json[row][column], {}, number).empty()) return name();
      if (row == 3) {
        if (number != (column == 3 ? 1 : 0)) return name();
      } else if (column == 3) {
        value.affine.offset[row] = number;
      } else {
        value.affine.linear[int(row)][column] = number;
      }
    }
  }
  return "";
}

Json ParameterType<AffineMatrix>::write(const AffineMatrix& value) {
  Json rows = Json::array();
  for (int row = 0; row < 3; ++row)
    rows.push_back({value.affine.linear[row][0], value.affine.linear[row][1], value.affine.linear[row][2],
                    value.affine.offset[std::size_t(row)]});
  rows.push_back({0, 0, 0, 1});
  return rows;
}

Json ParameterType<AxisList>::schema(const Limits&) {
  return {{"anyOf",
           {{{"type", "string"}, {"pattern", "^[xyz]{1,3}$"}},
            {{"type", "array"}, {"items", {{"enum", {"x", "y", "z", 0, 1, 2}}}}, {"minItems", 1}, {"maxItems", 3}}}}};
}

std::string ParameterType<AxisList>::read(const Json& json, const Limits&, AxisList& value) {
  const std::string expected = "axes, each once, such as \"x\", \"xz\", [\"x\", \"z\"] or [0, 2]";
  Json list = json;
  if (json.is_string()) {
    list = Json::array();
    for (char letter : json.get<std::string>()) list.push_back(std::string(1, letter));
  } else if (json.is_number_integer()) {
    list = Json::array({json});
  }
  if (!list.is_array() || list.empty()) return expected;
  std::vector<int> axes;
  for (const Json& entry : list) {
    std::size_t axis = 3;
    if (entry.is_string() && entry.get<std::string>().size() == 1)
      axis = kAxisLetters.find(entry.get<std::string>()[0]);
    if (entry.is_number_integer() && entry.get<std::int64_t>() >= 0) axis = std::size_t(entry.get<std::int64_t>());
    if (axis > 2 || std::find(axes.begin(), axes.end(), int(axis)) != axes.end()) return expected;
    axes.push_back(int(axis));
  }
  value.axes = std::move(axes);
  return "";
}

Json ParameterType<AxisList>::write(const AxisList& value) {
  std::string text;
  for (int axis : value.axes) text += kAxisLetters[std::size_t(axis)];
  return text.empty() ? Json(nullptr) : Json(text);
}

std::string ParameterType<Fill>::read(const Json& json, const Limits&, Fill& value) {
  if (json.is_number()) {
    value = {json.get<double>(), false};
    return "";
  }
  if (json.is_string() && json.get<std::string>() == "min") {
    value = {0, true};
    return "";
  }
  return "a number or \"min\"";
}

Json ParameterType<Mask>::schema(const Limits&) {
  return {{"anyOf",
           {{{"type", "string"}},
            {{"type", "object"},
             {"properties", {{"above", {{"type", "number"}}}}},
             {"required", {"above"}},
             {"additionalProperties", false}}}}};
}

std::string ParameterType<Mask>::read(const Json& json, const Limits&, Mask& value) {
  const std::string expected =
      "\"nonzero\", \"foreground\", {\"above\": number} or the name of another image of the item";
  if (json.is_object()) {
    if (json.size() != 1 || !json.contains("above") || !json["above"].is_number()) return expected;
    value = {Mask::Kind::above, json["above"].get<double>(), ""};
    return "";
  }
  if (!json.is_string() || json.get<std::string>().empty()) return expected;
  const auto word = json.get<std::string>();
  if (word == "nonzero") value = {Mask::Kind::nonzero, 0, ""};
  else if (word == "foreground") value = {Mask::Kind::foreground, 0, ""};
  else value = {Mask::Kind::image, 0, word};
  return "";
}

Json ParameterType<Mask>::write(const Mask& value) {
  switch (value.kind) {
    case Mask::Kind::all:
      return nullptr;
    case Mask::Kind::nonzero:
      return "nonzero";
    case Mask::Kind::foreground:
      return "foreground";
    case Mask::Kind::above:
      return {{"above", value.threshold}};
    case Mask::Kind::image:
      return value.image;
  }
  return nullptr;
}

}  // namespace volpipe
