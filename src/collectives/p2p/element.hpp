#pragma once

#include <cstring>
#include <type_traits>

#include "weft/data_type.hpp"

namespace weft::p2p {

template <typename T>
[[nodiscard]] T load(void const* from) noexcept {  // of any alignment
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
[[nodiscard]] T from_float(float value) noexcept {
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(value);
  if constexpr (std::is_same_v<T, Float8E4M3>) return to_float8_e4m3(value);
  if constexpr (std::is_same_v<T, Float8E5M2>) return to_float8_e5m2(value);
}

/// Calls `body` with a value of the C++ type of an 8-bit or 16-bit float.
template <typename Body>
void with_narrow_float(DataType dtype, Body const& body) {
  if (dtype == DataType::f16) body(Half{});
  if (dtype == DataType::bf16) body(BFloat16{});
  if (dtype == DataType::f8e4m3) body(Float8E4M3{});
  if (dtype == DataType::f8e5m2) body(Float8E5M2{});
}

}  // namespace weft::p2p
