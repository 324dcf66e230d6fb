#include "io/module/nrrd_geometry.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <sstream>
#include <vector>

#include "io/header_text.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

std::string field_of(const HeaderFields& fields, const std::string& key) {
  const auto field = fields.find(key);
  return field == fields.end() ? "" : field->second;
}

[[noreturn]] void refuse(const HeaderFields& fields, const std::string& key, const std::string& expected) {
  throw Error(ErrorCode::input, "the header field '" + key + "' is '" + field_of(fields, key) + "' where " + expected +
                                    ": repair the header");
}

/// Signs that take coordinates of the header's space to RAS.
Vec3 ras_signs(const HeaderFields& fields, Notices& notices) {
  std::string space = lower(field_of(fields, "space"));
  std::erase_if(space, [](char c) { return c == '-' || c == ' ' || c == '_'; });
  if (space.ends_with("time")) space.resize(space.size() - 4);
  else if (space == "rast" || space == "last" || space == "lpst") space.pop_back();
  if (space == "rightanteriorsuperior" || space == "ras") return {1, 1, 1};
  if (space == "leftanteriorsuperior" || space == "las") return {-1, 1, 1};
  if (!space.empty() && space != "leftposteriorsuperior" && space != "lps")
    notices.add("space_not_anatomical", "the space '" + field_of(fields, "space") +
                                            "' does not say how its axes lie in the patient: they were taken to be "
                                            "left, posterior, superior, as ITK does");
  return {-1, -1, 1};
}

/// "none" and vectors "(x,y,z)".
std::vector<std::optional<Vec3>> vectors_of(const HeaderFields& fields, const std::string& key) {
  const std::string expected = "vectors such as (1,0,0) are expected";
  std::vector<std::optional<Vec3>> vectors;
  std::istringstream text(field_of(fields, key));
  for (char c; text >> c;) {
    if (c != '(') {
      std::string word(1, c), rest;
      while (text.peek() != EOF && !std::isspace(text.peek())) word += char(text.get());
      if (lower(word) != "none") refuse(fields, key, expected);
      vectors.emplace_back();
      continue;
    }
    std::string inside, number;
    if (!std::getline(text, inside, ')') || text.eof()) refuse(fields, key, expected);
    Vec3 vector{0, 0, 0};
    std::istringstream numbers(inside);
    for (std::size_t i = 0; std::getline(numbers, number, ','); ++i) {
      char* end = nullptr;
      const double value = std::strtod(number.c_str(), &end);
      while (std::isspace(static_cast<unsigned char>(*end))) ++end;
      if (end == number.c_str() || *end || !std::isfinite(value)) refuse(fields, key, "finite numbers are expected");
      if (i < 3) vector[i] = value;
    }
    vectors.push_back(vector);
  }
  return vectors;
}

/// Positions of the grid's axes among those of the file.
std::vector<std::size_t> domain_axes(const HeaderFields& fields, std::size_t dimension) {
  const auto kinds = words_of(fields, "kinds");
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < dimension; ++axis)
    if (axis >= kinds.size() || is_domain_kind(kinds[axis])) axes.push_back(axis);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, axes.size()); ++i)
    if (axes[i] < kinds.size() && lower(kinds[axes[i]]) == "time")
      throw Error(ErrorCode::unsupported,
                  "the header field 'kinds' is '" + field_of(fields, "kinds") +
                      "' where time is expected after three axes of space: permute the axes of the file first");
  return axes;
}

/// The quoted words of a field, "um" "um" "um".
std::vector<std::string> quoted_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
    const auto end = std::min(text.find('"', at + 1), text.size());
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return words;
}

/// Millimetres a unit of each of three axes; units that are not of length count as mm, with a notice.
Vec3 units_of(const HeaderFields& fields, const std::string& key, const std::vector<std::size_t>& axes,
              Notices& notices) {
  const auto words = quoted_words(field_of(fields, key));
  Vec3 units{1, 1, 1};
  for (std::size_t i = 0; i < std::min<std::size_t>(3, axes.size()); ++i) {
    if (axes[i] >= words.size()) continue;
    const std::string unit = words[axes[i]];
    if (unit.empty() || unit == "???") continue;
    if (const auto length = millimetres_of(unit)) units[i] = *length;
    else
      notices.add("unknown_unit",
                  "the header field '" + key + "' says '" + unit + "', no known unit of length: mm are assumed");
  }
  return units;
}

}  // namespace

bool is_domain_kind(const std::string& kind) {
  const std::string name = lower(kind);
  return name == "domain" || name == "space" || name == "time" || name == "???" || name == "none";
}

std::vector<std::string> words_of(const HeaderFields& fields, const std::string& key) {
  std::istringstream stream(field_of(fields, key));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Affine nrrd_affine(const HeaderFields& fields, std::size_t axes, const Affine& by_itk, Notices& notices) {
  const bool directed = fields.contains("space directions");
  const std::vector<std::size_t> domain = domain_axes(fields, words_of(fields, "sizes").size());
  const Vec3 lps{-1, -1, 1}, signs = ras_signs(fields, notices);
  Affine map = by_itk;
  if (directed) {
    const auto directions = vectors_of(fields, "space directions");
    for (std::size_t i = 0; i < std::min<std::size_t>(axes, 3); ++i) {
      if (i >= domain.size() || domain[i] >= directions.size() || !directions[domain[i]])
        refuse(fields, "space directions",
               "a vector is expected for each axis of space ('none' is for axes that 'kinds' calls vector or list)");
      for (int world = 0; world < 3; ++world) map.linear[world][int(i)] = (*directions[domain[i]])[world];
    }
  } else {
    const auto spacings = words_of(fields, "spacings");
    for (std::size_t i = 0; i < std::min<std::size_t>({axes, 3, domain.size()}); ++i)
      if (domain[i] < spacings.size() && !(std::abs(std::strtod(spacings[domain[i]].c_str(), nullptr)) < HUGE_VAL))
        refuse(fields, "spacings", "a finite number is expected for each axis of space");
  }
  const bool placed = fields.contains("space origin");
  if (placed) {
    const auto origin = vectors_of(fields, "space origin");
    if (origin.size() != 1 || !origin[0]) refuse(fields, "space origin", "one vector such as (0,0,0) is expected");
    map.offset = *origin[0];
  } else if (directed) {
    map.offset = {0, 0, 0};
  }
  const Vec3 world_units = units_of(fields, "space units", {0, 1, 2}, notices);
  const Vec3 axis_units = directed ? Vec3{1, 1, 1} : units_of(fields, "units", domain, notices);
  for (int world = 0; world < 3; ++world) {
    for (int axis = 0; axis < 3; ++axis)
      map.linear[world][axis] =
          map.linear[world][axis] * (directed ? signs[world] * world_units[world] : lps[world] * axis_units[axis]) +
          0.0;
    map.offset[world] =
        map.offset[world] * (placed ? signs[world] * world_units[world] : lps[world] * axis_units[world]) + 0.0;
  }
  return map;
}

}  // namespace volpipe::io
