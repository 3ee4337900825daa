#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Element type of a buffer. The numeric values are part of the contract ranks exchange.
enum class DataType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64 };

/// IEEE binary16, storage only: arithmetic is done in float.
struct Half {
  std::uint16_t bits = 0;
};

/// bfloat16 (the upper half of an IEEE binary32), storage only: arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Size of one element in bytes.
[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::i8:
    case DataType::u8: return 1;
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::i32:
    case DataType::u32:
    case DataType::f32: return 4;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64: return 8;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_valid(DataType type) noexcept {
  return type <= DataType::f64;
}

/// Short name: "f32", "bf16", …
[[nodiscard]] std::string_view to_string(DataType type) noexcept;

/// Inverse of to_string(); also accepts nccl-tests' names (float, half, bfloat16, double, int8, …). Empty when unknown.
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name) noexcept;

/// Round-to-nearest-even conversions; NaN stays NaN, overflow goes to infinity.
[[nodiscard]] float to_float(Half value) noexcept;
[[nodiscard]] float to_float(BFloat16 value) noexcept;
[[nodiscard]] Half to_half(float value) noexcept;
[[nodiscard]] BFloat16 to_bfloat16(float value) noexcept;

template <typename T>
struct DataTypeOf;  // undefined for types Weft does not move
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr DataType value = DataType::i8;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType value = DataType::u8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType value = DataType::i32;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr DataType value = DataType::u32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr DataType value = DataType::i64;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr DataType value = DataType::u64;
};
template <>
struct DataTypeOf<Half> {
  static constexpr DataType value = DataType::f16;
};
template <>
struct DataTypeOf<BFloat16> {
  static constexpr DataType value = DataType::bf16;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::f32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::f64;
};

/// DataType of a C++ element type.
template <typename T>
inline constexpr DataType data_type_of = DataTypeOf<T>::value;

}  // namespace weft
