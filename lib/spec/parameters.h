// Parameters declared once: from a declaration come parsing, range checks, `volpipe stages`, the JSON Schema and the
// README's table.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "volume/data_type.h"
#include "volume/matrix.h"

namespace volpipe {

using Json = nlohmann::ordered_json;

/// One fault of a spec, placed by JSON pointer; the line is filled in where the text is known.
struct Fault {
  std::string pointer;
  std::string message;
  int line = 0;
};

/// Collects every fault instead of stopping at the first.
class Faults {
 public:
  void add(std::string pointer, std::string message) { list_.push_back({std::move(pointer), std::move(message), 0}); }
  const std::vector<Fault>& list() const { return list_; }
  std::vector<Fault>& list() { return list_; }
  bool empty() const { return list_.empty(); }

 private:
  std::vector<Fault> list_;
};

/// "; did you mean 'spacing'?" for the candidate nearest to `word`, or "" when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// "'a', 'b' or 'c'"
std::string quoted_list(const std::vector<std::string>& words);

/// What is allowed beyond the type; `unit` and the limits are shown in help.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool exclusive_min = false;
  std::string unit{};
  bool required = false;
  bool of_world = false;  ///< three values are for the axes of the world, not for those of the voxels
};

/// What a text parameter refers to, if to anything: the spec's reader checks that it is there.
enum class Reference : std::uint8_t { none, file, image, image_or_file, new_images, stage, output, expression };

/// What the outside sees of a parameter.
struct ParameterInfo {
  std::string name;
  std::string type;  ///< in words: "number", "number or 3 numbers", "one of 'a', 'b'"
  Limits limits;
  std::string help;
  Json default_value;  ///< null: none
  Json schema;         ///< JSON Schema of the value, distributions not included
  Reference reference = Reference::none;
  bool per_axis = false;  ///< may be a list of values for the voxel axes x, y, z
};

/// A value for every axis, given as one number or as three.
template <class T>
struct PerAxis {
  std::array<T, 3> value{};
};

/// Voxel axes, given as "x", "xz", ["x", "z"] or [0, 2].
struct AxisList {
  std::vector<int> axes;
};

/// Value of voxels outside the image: a number, or "min" for the image's minimum.
struct Fill {
  double value = 0;
  bool minimum = false;
  bool operator==(const Fill&) const = default;
};

/// Which voxels count: all, the nonzero, the foreground (Otsu), those above a value, or where another image is nonzero.
struct Mask {
  enum class Kind : std::uint8_t { all, nonzero, foreground, above, image } kind = Kind::all;
  double threshold = 0;
  std::string image{};
};

/// A file: absolute once the spec is read (relative to the spec's folder there); may hold {dir}, {stem} and {id} of the
/// item.
struct FileName {
  std::string path;
};
/// An image of the item, by name, or else a file.
struct ImageOrFile {
  std::string name;
};
/// An image of the item, by name.
struct ImageName {
  std::string name;
};
/// Other names for images of the item, in the spec's order.
struct ImageAliases {
  std::vector<std::pair<std::string, std::string>> images;  ///< alias, image
};
/// Image arithmetic, and what its names can mean where it stands: the spec's reader fills that in.
struct ExpressionText {
  std::string text;
  std::optional<std::vector<std::string>> images{};  ///< of the item; absent: any name may be one
  std::vector<std::string> on{};                     ///< images that the stage acts on
  std::map<std::string, double> variables{};
  std::map<std::string, std::string> unusable{};  ///< variable -> why an expression cannot use it: "is a text"
};
/// Names of images that a stage makes.
struct NewImages {
  std::vector<std::string> names;
};
/// A file to write, as the paths of "outputs".
struct OutputName {
  std::string path;
};

/// An earlier stage, by its name.
struct StageName {
  std::string name;
};

/// Row-major 4x4 with last row 0 0 0 1.
struct AffineMatrix {
  Affine affine;
};

/// Names of an enumeration in spec order: specialise with `static constexpr std::array names{"a", "b"}`; the
/// enumerators count from 0 in the same order.
template <class E>
struct EnumNames;
/// What lengths of a stage are given in.
enum class Units : std::uint8_t { mm, voxel };
template <>
struct EnumNames<Units> {
  static constexpr std::array names{"mm", "voxel"};
};
template <>
struct EnumNames<DataType> {
  static constexpr std::array names{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"};
};

/// How a C++ type is written in a spec. read() returns "" or what was expected.
template <class T, class = void>
struct ParameterType;

namespace detail {
std::string check_number(const Json& json, const Limits& limits, double& value);
std::string check_integer(const Json& json, const Limits& limits, std::int64_t& value);
std::string range_in_words(const Limits& limits);
Json number_schema(const char* type, const Limits& limits);
}  // namespace detail

template <>
struct ParameterType<double> {
  static std::string name() { return "number"; }
  static Json schema(const Limits& limits) { return detail::number_schema("number", limits); }
  static std::string read(const Json& json, const Limits& limits, double& value) {
    return detail::check_number(json, limits, value);
  }
  static Json write(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? Json(std::int64_t(value)) : Json(value);
  }
};

template <>
struct ParameterType<std::int64_t> {
  static std::string name() { return "integer"; }
  static Json schema(const Limits& limits) { return detail::number_schema("integer", limits); }
  static std::string read(const Json& json, const Limits& limits, std::int64_t& value) {
    return detail::check_integer(json, limits, value);
  }
  static Json write(std::int64_t value) { return value; }
};

template <>
struct ParameterType<bool> {
  static std::string name() { return "true or false"; }
  static Json schema(const Limits&) { return {{"type", "boolean"}}; }
  static std::string read(const Json& json, const Limits&, bool& value) {
    if (!json.is_boolean()) return "true or false";
    value = json.get<bool>();
    return "";
  }
  static Json write(bool value) { return value; }
};

template <>
struct ParameterType<std::string> {
  static std::string name() { return "text"; }
  static Json schema(const Limits&) { return {{"type", "string"}}; }
  static std::string read(const Json& json, const Limits&, std::string& value) {
    if (!json.is_string()) return "a text";
    value = json.get<std::string>();
    return "";
  }
  static Json write(const std::string& value) { return value; }
};

namespace detail {
template <class T, std::string T::*text>
struct TextType {
  static Json schema(const Limits&) { return {{"type", "string"}}; }
  static std::string read(const Json& json, const Limits&, T& value) {
    if (!json.is_string() || json.get<std::string>().empty()) return ParameterType<T>::name();
    value.*text = json.get<std::string>();
    return "";
  }
  static Json write(const T& value) { return (value.*text).empty() ? Json(nullptr) : Json(value.*text); }
};
}  // namespace detail

template <>
struct ParameterType<FileName> : detail::TextType<FileName, &FileName::path> {
  static constexpr Reference reference = Reference::file;
  static std::string name() { return "a file's name"; }
};
template <>
struct ParameterType<ImageOrFile> : detail::TextType<ImageOrFile, &ImageOrFile::name> {
  static constexpr Reference reference = Reference::image_or_file;
  static std::string name() { return "an image's name or a file's"; }
};
template <>
struct ParameterType<ImageName> : detail::TextType<ImageName, &ImageName::name> {
  static constexpr Reference reference = Reference::image;
  static std::string name() { return "an image's name"; }
};
template <>
struct ParameterType<StageName> : detail::TextType<StageName, &StageName::name> {
  static constexpr Reference reference = Reference::stage;
  static std::string name() { return "an earlier stage's name"; }
};

template <>
struct ParameterType<OutputName> : detail::TextType<OutputName, &OutputName::path> {
  static constexpr Reference reference = Reference::output;
  static std::string name() { return "an output's path"; }
};

template <>
struct ParameterType<ImageAliases> {
  static constexpr Reference reference = Reference::image;
  static std::string name() { return "an object of names and images, such as {\"mask\": \"brain_mask\"}"; }
  static Json schema(const Limits&) { return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}}; }
  static std::string read(const Json& json, const Limits&, ImageAliases& value);
  static Json write(const ImageAliases& value) {
    Json object = value.images.empty() ? Json(nullptr) : Json::object();
    for (const auto& [alias, image] : value.images) object[alias] = image;
    return object;
  }
};

template <>
struct ParameterType<ExpressionText> {
  static constexpr Reference reference = Reference::expression;
  static std::string name() { return "an expression, such as \"image * 2\""; }
  static Json schema(const Limits&) { return {{"type", "string"}}; }
  static std::string read(const Json& json, const Limits&, ExpressionText& value);
  /// What read() takes besides a bare text. Variables that are no numbers become unusable.
  static Json with_names(const std::string& text, const std::vector<std::string>& images,
                         const std::vector<std::string>& on, const Json& variables);
  static Json write(const ExpressionText& value) { return value.text.empty() ? Json(nullptr) : Json(value.text); }
};

template <>
struct ParameterType<NewImages> {
  static constexpr Reference reference = Reference::new_images;
  static std::string name() { return "a new image's name, or a list of them"; }
  static Json schema(const Limits&) {
    const Json text = {{"type", "string"}};
    return {{"anyOf", {text, {{"type", "array"}, {"items", text}, {"minItems", 1}}}}};
  }
  static std::string read(const Json& json, const Limits&, NewImages& value);
  static Json write(const NewImages& value) { return value.names.empty() ? Json(nullptr) : Json(value.names); }
};

template <>
struct ParameterType<AffineMatrix> {
  static std::string name() { return "4 rows of 4 numbers, the last 0 0 0 1"; }
  static Json schema(const Limits&) {
    const Json row = {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 4}, {"maxItems", 4}};
    return {{"type", "array"}, {"items", row}, {"minItems", 4}, {"maxItems", 4}};
  }
  static std::string read(const Json& json, const Limits&, AffineMatrix& value);
  static Json write(const AffineMatrix& value);
};

template <class E>
struct ParameterType<E, std::enable_if_t<std::is_enum_v<E>>> {
  static std::vector<std::string> words() { return {EnumNames<E>::names.begin(), EnumNames<E>::names.end()}; }
  static std::string name() { return "one of " + quoted_list(words()); }
  static Json schema(const Limits&) { return {{"enum", words()}}; }
  static std::string read(const Json& json, const Limits&, E& value) {
    const auto all = words();
    const auto found = json.is_string() ? std::find(all.begin(), all.end(), json.get<std::string>()) : all.end();
    if (found == all.end())
      return "one of " + quoted_list(all) + (json.is_string() ? did_you_mean(json.get<std::string>(), all) : "");
    value = static_cast<E>(found - all.begin());
    return "";
  }
  static Json write(E value) { return std::string(EnumNames<E>::names[static_cast<std::size_t>(value)]); }
};

template <class T>
constexpr Reference reference_of() {
  if constexpr (requires { ParameterType<T>::reference; }) return ParameterType<T>::reference;
  else return Reference::none;
}

template <class T>
constexpr bool is_per_axis() {
  if constexpr (requires { ParameterType<T>::per_axis; }) return ParameterType<T>::per_axis;
  else return false;
}

/// A list of values, at least one.
template <class T>
struct ParameterType<std::vector<T>> {
  static constexpr Reference reference = reference_of<T>();
  static std::string name() { return "a list, each " + ParameterType<T>::name(); }
  static Json schema(const Limits& limits) {
    return {{"type", "array"}, {"items", ParameterType<T>::schema(limits)}, {"minItems", 1}};
  }
  static std::string read(const Json& json, const Limits& limits, std::vector<T>& value) {
    if (!json.is_array() || json.empty()) return name();
    value.clear();
    for (const Json& entry : json) {
      T given{};
      if (std::string expected = ParameterType<T>::read(entry, limits, given); !expected.empty()) return expected;
      value.push_back(std::move(given));
    }
    return "";
  }
  static Json write(const std::vector<T>& value) {
    if (value.empty()) return nullptr;
    Json list = Json::array();
    for (const T& entry : value) list.push_back(ParameterType<T>::write(entry));
    return list;
  }
};

/// Absent by default; null is the same as absent.
template <class T>
struct ParameterType<std::optional<T>> {
  static constexpr Reference reference = reference_of<T>();
  static constexpr bool per_axis = is_per_axis<T>();
  static std::string name() { return ParameterType<T>::name(); }
  static Json schema(const Limits& limits) { return ParameterType<T>::schema(limits); }
  static std::string read(const Json& json, const Limits& limits, std::optional<T>& value) {
    if (json.is_null()) return "";
    T given{};
    const std::string expected = ParameterType<T>::read(json, limits, given);
    if (expected.empty()) value = std::move(given);
    return expected;
  }
  static Json write(const std::optional<T>& value) { return value ? ParameterType<T>::write(*value) : Json(nullptr); }
};

template <class T, std::size_t N>
struct ParameterType<std::array<T, N>> {
  static std::string name() { return std::to_string(N) + " of " + ParameterType<T>::name(); }
  static Json schema(const Limits& limits) {
    return {{"type", "array"}, {"items", ParameterType<T>::schema(limits)}, {"minItems", N}, {"maxItems", N}};
  }
  static std::string read(const Json& json, const Limits& limits, std::array<T, N>& value) {
    if (!json.is_array() || json.size() != N) return "a list of " + std::to_string(N) + " values";
    for (std::size_t i = 0; i < N; ++i)
      if (std::string expected = ParameterType<T>::read(json[i], limits, value[i]); !expected.empty()) return expected;
    return "";
  }
  static Json write(const std::array<T, N>& value) {
    Json list = Json::array();
    for (const T& entry : value) list.push_back(ParameterType<T>::write(entry));
    return list;
  }
};

template <class T>
struct ParameterType<PerAxis<T>> {
  using List = ParameterType<std::array<T, 3>>;
  static constexpr bool per_axis = true;
  static std::string name() { return ParameterType<T>::name() + ", or 3 (x, y, z)"; }
  static Json schema(const Limits& limits) {
    return {{"anyOf", {ParameterType<T>::schema(limits), List::schema(limits)}}};
  }
  static std::string read(const Json& json, const Limits& limits, PerAxis<T>& value) {
    if (json.is_array() && json.size() != 3) return "one value, or a list of 3 (x, y, z)";
    if (json.is_array()) return List::read(json, limits, value.value);
    T one{};
    std::string expected = ParameterType<T>::read(json, limits, one);
    value.value = {one, one, one};
    return expected.empty() ? "" : expected + ", or a list of 3 (x, y, z)";
  }
  static Json write(const PerAxis<T>& value) {
    const bool same = value.value[0] == value.value[1] && value.value[1] == value.value[2];
    return same ? ParameterType<T>::write(value.value[0]) : List::write(value.value);
  }
};

template <>
struct ParameterType<AxisList> {
  static std::string name() { return "axes, such as \"x\" or [\"x\", \"z\"]"; }
  static Json schema(const Limits&);
  static std::string read(const Json& json, const Limits&, AxisList& value);
  static Json write(const AxisList& value);
};

template <>
struct ParameterType<Fill> {
  static std::string name() { return "number or \"min\""; }
  static Json schema(const Limits&) { return {{"anyOf", {{{"type", "number"}}, {{"const", "min"}}}}}; }
  static std::string read(const Json& json, const Limits&, Fill& value);
  static Json write(const Fill& value) {
    return value.minimum ? Json("min") : ParameterType<double>::write(value.value);
  }
};

template <>
struct ParameterType<Mask> {
  static std::string name() { return "\"nonzero\", \"foreground\", {\"above\": t} or an image's name"; }
  static Json schema(const Limits&);
  static std::string read(const Json& json, const Limits&, Mask& value);
  static Json write(const Mask& value);
};

/// The parameters of a stage: P is a plain struct whose member initialisers are the defaults.
template <class P>
class Parameters {
 public:
  template <class T>
  Parameters& add(std::string name, T P::*member, Limits limits, std::string help) {
    using Type = ParameterType<T>;
    const P defaults{};
    infos_.push_back({name, Type::name(), limits, std::move(help),
                      limits.required ? Json(nullptr) : Type::write(defaults.*member), Type::schema(limits),
                      reference_of<T>(), is_per_axis<T>() && !limits.of_world});
    readers_.push_back(
        [member, limits](const Json& json, P& parameters) { return Type::read(json, limits, parameters.*member); });
    return *this;
  }

  const std::vector<ParameterInfo>& infos() const { return infos_; }

  /// Reads `object` (keys already known to be allowed); a wrong value is a fault at pointer/name.
  P read(const Json& object, const std::string& pointer, Faults& faults) const {
    P parameters{};
    for (std::size_t i = 0; i < infos_.size(); ++i) {
      const auto found = object.find(infos_[i].name);
      if (found == object.end()) {
        if (infos_[i].limits.required) faults.add(pointer, "'" + infos_[i].name + "' is missing: " + infos_[i].help);
        continue;
      }
      const std::string expected = readers_[i](*found, parameters);
      if (!expected.empty())
        faults.add(pointer + "/" + infos_[i].name,
                   "'" + infos_[i].name + "' must be " + expected + ", got " + found->dump());
    }
    return parameters;
  }

 private:
  std::vector<ParameterInfo> infos_;
  std::vector<std::function<std::string(const Json&, P&)>> readers_;
};

}  // namespace volpipe
