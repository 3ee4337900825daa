#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Element type of a buffer. The numeric values are part of the contract ranks exchange.
enum class DataType : std::uint8_t {
  i8,
  u8,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  f8e4m3,   ///< OCP 8-bit float, the variant without infinity (torch.float8_e4m3fn)
  f8e5m2,   ///< OCP 8-bit float, a binary16 cut short (torch.float8_e5m2)
  c64,      ///< two f32: real part, imaginary part
  c128,     ///< two f64
  boolean,  ///< one byte; any value but 0 is true, results are 0 or 1
  i16,
  u16,
};

/// IEEE binary16, storage only: arithmetic is done in float.
struct Half {
  std::uint16_t bits = 0;
};

/// bfloat16 (the upper half of an IEEE binary32), storage only: arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// OCP E4M3, storage only: largest value 448, no infinity, NaN is 0x7f and 0xff.
struct Float8E4M3 {
  std::uint8_t bits = 0;
};

/// OCP E5M2, storage only: the upper half of an IEEE binary16, with its infinities and NaN.
struct Float8E5M2 {
  std::uint8_t bits = 0;
};

/// Size of one element in bytes.
[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
    case DataType::boolean: return 1;
    case DataType::i16:
    case DataType::u16:
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::i32:
    case DataType::u32:
    case DataType::f32: return 4;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64:
    case DataType::c64: return 8;
    case DataType::c128: return 16;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_valid(DataType type) noexcept {
  return type <= DataType::u16;
}

/// Real floating-point types, of any width.
[[nodiscard]] constexpr bool is_floating_point(DataType type) noexcept {
  return type >= DataType::f16 && type <= DataType::f8e5m2;
}

[[nodiscard]] constexpr bool is_complex(DataType type) noexcept {
  return type == DataType::c64 || type == DataType::c128;
}

/// Integers, signed or not; not boolean.
[[nodiscard]] constexpr bool is_integer(DataType type) noexcept {
  return type <= DataType::u64 || type == DataType::i16 || type == DataType::u16;
}

/// Whether a type holds values below zero.
[[nodiscard]] constexpr bool is_signed(DataType type) noexcept {
  switch (type) {
    case DataType::u8:
    case DataType::u16:
    case DataType::u32:
    case DataType::u64:
    case DataType::boolean: return false;
    default: return true;
  }
}

/// Short name: "f32", "bf16", "f8e4m3", "c64", "bool", …
[[nodiscard]] std::string_view to_string(DataType type) noexcept;

/// Inverse of to_string(); also accepts nccl-tests' and PyTorch's names (float, half, bfloat16, int8, fp8_e4m3,
/// float8_e4m3fn, complex64, …). Empty when unknown.
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name) noexcept;

/// Round-to-nearest-even conversions; NaN stays NaN, overflow goes to infinity, or to NaN where there is none (E4M3:
/// magnitudes above 464, and infinity), as in PyTorch and ml_dtypes.
[[nodiscard]] float to_float(Half value) noexcept;
[[nodiscard]] float to_float(BFloat16 value) noexcept;
[[nodiscard]] float to_float(Float8E4M3 value) noexcept;
[[nodiscard]] float to_float(Float8E5M2 value) noexcept;
[[nodiscard]] Half to_half(float value) noexcept;
[[nodiscard]] BFloat16 to_bfloat16(float value) noexcept;
[[nodiscard]] Float8E4M3 to_float8_e4m3(float value) noexcept;
[[nodiscard]] Float8E5M2 to_float8_e5m2(float value) noexcept;

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
template <>
struct DataTypeOf<std::int16_t> {
  static constexpr DataType value = DataType::i16;
};
template <>
struct DataTypeOf<std::uint16_t> {
  static constexpr DataType value = DataType::u16;
};
template <>
struct DataTypeOf<Float8E4M3> {
  static constexpr DataType value = DataType::f8e4m3;
};
template <>
struct DataTypeOf<Float8E5M2> {
  static constexpr DataType value = DataType::f8e5m2;
};
template <>
struct DataTypeOf<std::complex<float>> {
  static constexpr DataType value = DataType::c64;
};
template <>
struct DataTypeOf<std::complex<double>> {
  static constexpr DataType value = DataType::c128;
};
template <>
struct DataTypeOf<bool> {
  static constexpr DataType value = DataType::boolean;
};

static_assert(sizeof(bool) == size_of(DataType::boolean));

/// DataType of a C++ element type.
template <typename T>
inline constexpr DataType data_type_of = DataTypeOf<T>::value;

}  // namespace weft
