#pragma once

#include <cstddef>

#include "weft/wire_format.hpp"

namespace weft::kernels {

/// Elements that share a scale; where a range is cut there, its pieces are packed as the whole is.
inline constexpr std::size_t kWireBlock = 32;

/// Bytes that `count` f32 elements take in `format`.
[[nodiscard]] std::size_t wire_bytes(WireFormat format, std::size_t count) noexcept;

// Both of formats other than f32. Arrays do not overlap. Any alignment. Thread-safe, do not allocate.

/// wire ← c, rounded to nearest even; c = values + residual, residual ← c − what is on the wire, 0 where either is not
/// finite. Without residual (null) c = values. What unpack() gave packs to the same again.
void pack(WireFormat format, float const* values, float* residual, void* wire, std::size_t count);
void unpack(WireFormat format, void const* wire, float* values, std::size_t count);

}  // namespace weft::kernels
