#pragma once

#include "kernels/reduce_reference.hpp"

namespace weft::test {

/// Calls `body` with a value of the C++ type of `dtype`, which has the same bytes.
template <typename Body>
auto with_element(DataType dtype, Body&& body) {
  switch (dtype) {
    case DataType::i8: return body(std::int8_t{});
    case DataType::u8: return body(std::uint8_t{});
    case DataType::i16: return body(std::int16_t{});
    case DataType::u16: return body(std::uint16_t{});
    case DataType::i32: return body(std::int32_t{});
    case DataType::u32: return body(std::uint32_t{});
    case DataType::i64: return body(std::int64_t{});
    case DataType::u64: return body(std::uint64_t{});
    case DataType::f16: return body(Half{});
    case DataType::bf16: return body(BFloat16{});
    case DataType::f32: return body(float{});
    case DataType::f8e4m3: return body(Float8E4M3{});
    case DataType::f8e5m2: return body(Float8E5M2{});
    case DataType::c64: return body(std::complex<float>{});
    case DataType::c128: return body(std::complex<double>{});
    case DataType::boolean: return body(Boolean{});
    default: return body(double{});
  }
}

}  // namespace weft::test
