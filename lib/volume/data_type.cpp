#include "volume/data_type.h"

#include <array>
#include <limits>
#include <type_traits>

namespace volpipe {

namespace {
constexpr std::array<std::string_view, 8> kNames = {"uint8",  "int8",  "uint16",  "int16",
                                                    "uint32", "int32", "float32", "float64"};
}

std::size_t size_of(DataType type) {
  return visit(type, [](auto tag) { return sizeof(typename decltype(tag)::type); });
}

std::string_view to_string(DataType type) { return kNames[static_cast<std::size_t>(type)]; }

std::optional<DataType> parse_data_type(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<DataType>(i);
  return std::nullopt;
}

IntegerRange integer_range(DataType type) {
  return visit(type, [](auto tag) -> IntegerRange {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      return {double(std::numeric_limits<T>::lowest()), double(std::numeric_limits<T>::max())};
    else return {0, 0};
  });
}

}  // namespace volpipe
