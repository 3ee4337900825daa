#pragma once

#include <cstddef>

#include "weft/wire_format.hpp"

namespace weft::kernels {

/// Elements that share a scale. If a range is cut between blocks, its pieces pack to the same bytes as the whole.
inline constexpr std::size_t kWireBlock = 32;

/// Bytes that `count` f32 elements take in `format`.
[[nodiscard]] std::size_t wire_bytes(WireFormat format, std::size_t count) noexcept;

// Both functions are for formats other than f32. Arrays do not overlap. Any alignment. Thread-safe, do not allocate.

/// wire ← c, rounded to nearest even, where c = values + residual; residual ← c − the wire's value, or 0 if either is
/// not finite. With a null residual c = values. Packing what unpack() gave returns the same bytes.
void pack(WireFormat format, float const* values, float* residual, void* wire, std::size_t count);
void unpack(WireFormat format, void const* wire, float* values, std::size_t count);

}  // namespace weft::kernels
