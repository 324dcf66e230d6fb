// The parameters that only a custom kernel has: code, named numbers, a launch size.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/loaded_kernels.h"
#include "spec/parameters.h"
#include "stages/custom/kernel_code.h"

namespace volpipe {

template <>
struct EnumNames<KernelKind> {
  static constexpr std::array names{"elementwise", "reduction", "raw"};
};

/// Code in a spec: JSON has no line breaks in a text, so that several lines may be a list.
struct CodeText {
  std::string text;
};

/// Numbers by name, in the spec's order.
struct NamedNumbers {
  std::vector<std::pair<std::string, double>> numbers;
};

/// One number: along x alone; three: along x, y, z.
struct LaunchExtent {
  std::array<std::int64_t, 3> count{};
  bool one_axis = true;
};

template <>
struct ParameterType<CodeText> {
  static std::string name() { return "CUDA C++ as a text, or as a list of its lines"; }
  static Json schema(const Limits&) {
    const Json text = {{"type", "string"}};
    return {{"anyOf", {text, {{"type", "array"}, {"items", text}}}}};
  }
  static std::string read(const Json& json, const Limits&, CodeText& value) {
    if (!json.is_string() && !json.is_array()) return name();
    for (const Json& line : json.is_array() ? json : Json::array({json})) {
      if (!line.is_string()) return name();
      value.text += (value.text.empty() ? "" : "\n") + line.get<std::string>();
    }
    return "";
  }
  static Json write(const CodeText& value) { return value.text.empty() ? Json(nullptr) : Json(value.text); }
};

template <>
struct ParameterType<NamedNumbers> {
  static std::string name() { return "an object of names and numbers, such as {\"gain\": 1.5}"; }
  static Json schema(const Limits&) { return {{"type", "object"}, {"additionalProperties", {{"type", "number"}}}}; }
  static std::string read(const Json& json, const Limits& limits, NamedNumbers& value) {
    if (!json.is_object()) return name();
    for (const auto& [key, number] : json.items()) {
      value.numbers.emplace_back(key, 0.0);
      if (!detail::check_number(number, limits, value.numbers.back().second).empty()) return name();
    }
    return "";
  }
  static Json write(const NamedNumbers& value) {
    if (value.numbers.empty()) return nullptr;
    Json object = Json::object();
    for (const auto& [key, number] : value.numbers) object[key] = number;
    return object;
  }
};

template <>
struct ParameterType<LaunchExtent> {
  using List = ParameterType<std::array<std::int64_t, 3>>;
  static std::string name() { return "integer, or 3 (x, y, z)"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<std::int64_t>::schema(limits), List::schema(limits)}}};
  }
  static std::string read(const Json& json, const Limits& limits, LaunchExtent& value) {
    value.one_axis = !json.is_array();
    if (json.is_array()) return List::read(json, limits, value.count);
    value.count = {1, 1, 1};
    const std::string expected = ParameterType<std::int64_t>::read(json, limits, value.count[0]);
    return expected.empty() ? "" : expected + ", or a list of 3 (x, y, z)";
  }
  static Json write(const LaunchExtent& value) {
    return value.one_axis ? Json(value.count[0]) : List::write(value.count);
  }
};

struct KernelParams {
  KernelKind kind = KernelKind::elementwise;
  CodeText source{};
  FileName file{};
  CodeText reduce{}, identity{}, post{};
  ImageAliases inputs{};
  NamedNumbers constants{};
  std::optional<std::string> output{};  ///< an image's name
  std::optional<DataType> dtype{};
  ExpressionText cpu{};
  std::optional<std::string> entry{};
  std::optional<LaunchExtent> threads{}, blocks{};
};

/// Faults of parameters that do not go together.
void check_kernel_parameters(const KernelParams& params, const std::string& pointer, Faults& faults);

/// The kernel of raw code that is launched: `wanted`, or the only one. Throws Error(usage) when the code does not say.
std::string entry_of(const std::string& source, const std::optional<std::string>& wanted);

/// How a raw kernel is launched over a grid of so many voxels: blocks of `threads` that cover it, unless `blocks` says
/// how many. Threads along one axis cover the voxels in their order.
LaunchSize launch_size(const KernelParams& params, const std::array<std::int64_t, 3>& size);

}  // namespace volpipe
