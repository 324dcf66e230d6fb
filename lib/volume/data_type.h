// Pixel types of a volume and the one switch over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace volpipe {

/// 64-bit integer files are narrowed to 32 bits when their values fit (lib/io), so they do not appear here.
enum class DataType : std::uint8_t { uint8, int8, uint16, int16, uint32, int32, float32, float64 };

std::size_t size_of(DataType type);
std::string_view to_string(DataType type);
std::optional<DataType> parse_data_type(std::string_view name);  ///< "uint8" .. "float64"

constexpr bool is_floating(DataType type) { return type >= DataType::float32; }
/// True when every value of the type is a float32 exactly.
constexpr bool fits_float32(DataType type) { return type <= DataType::int16 || type == DataType::float32; }

struct IntegerRange {
  double lowest, highest;
};
/// Representable range of an integer type; {0, 0} for floating types.
IntegerRange integer_range(DataType type);

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls visitor(TypeTag<T>{}) with the C++ type of `type`.
template <class Visitor>
constexpr decltype(auto) visit(DataType type, Visitor&& visitor) {
  switch (type) {
    case DataType::uint8:
      return visitor(TypeTag<std::uint8_t>{});
    case DataType::int8:
      return visitor(TypeTag<std::int8_t>{});
    case DataType::uint16:
      return visitor(TypeTag<std::uint16_t>{});
    case DataType::int16:
      return visitor(TypeTag<std::int16_t>{});
    case DataType::uint32:
      return visitor(TypeTag<std::uint32_t>{});
    case DataType::int32:
      return visitor(TypeTag<std::int32_t>{});
    case DataType::float32:
      return visitor(TypeTag<float>{});
    case DataType::float64:
      break;
  }
  return visitor(TypeTag<double>{});
}

template <class T>
constexpr DataType data_type_of();
template <>
constexpr DataType data_type_of<std::uint8_t>() {
  return DataType::uint8;
}
template <>
constexpr DataType data_type_of<std::int8_t>() {
  return DataType::int8;
}
template <>
constexpr DataType data_type_of<std::uint16_t>() {
  return DataType::uint16;
}
template <>
constexpr DataType data_type_of<std::int16_t>() {
  return DataType::int16;
}
template <>
constexpr DataType data_type_of<std::uint32_t>() {
  return DataType::uint32;
}
template <>
constexpr DataType data_type_of<std::int32_t>() {
  return DataType::int32;
}
template <>
constexpr DataType data_type_of<float>() {
  return DataType::float32;
}
template <>
constexpr DataType data_type_of<double>() {
  return DataType::float64;
}

}  // namespace volpipe
