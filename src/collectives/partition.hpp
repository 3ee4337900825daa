#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/call.hpp"

namespace weft {

/// A range of elements.
struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `count` elements divided into `parts`, cut at whole cache lines so that no two parts share one.
[[nodiscard]] inline Range part_of(std::size_t count, std::size_t index, std::size_t parts,
                                   std::size_t element_bytes) noexcept {
  auto const per_line = std::max<std::size_t>(1, 64 / element_bytes);
  auto const lines = (count + per_line - 1) / per_line;
  auto const begin = std::min(count, lines / parts * index * per_line + std::min(index, lines % parts) * per_line);
  auto const next = index + 1;
  auto const end = std::min(count, lines / parts * next * per_line + std::min(next, lines % parts) * per_line);
  return {begin, end - begin};
}

/// The most elements for which each part that part_of() cuts has at most `part_bytes` bytes. Pre: `part_bytes` is at
/// least a cache line and an element.
[[nodiscard]] inline std::size_t most_for_parts(std::size_t part_bytes, std::size_t parts,
                                                std::size_t element_bytes) noexcept {
  auto const per_line = std::max<std::size_t>(1, 64 / element_bytes);
  return part_bytes / (per_line * element_bytes) * per_line * parts;
}

/// Block `index` of `count` elements cut into blocks of at most `block` elements.
[[nodiscard]] inline Range block_of(std::size_t count, std::size_t index, std::size_t block) noexcept {
  auto const first = std::min(count, index * block);
  return {first, std::min(block, count - first)};
}

/// How many of the bytes [first, first + length), counted from the part's beginning, lie in the part.
[[nodiscard]] inline std::size_t overlap(ByteRange part, std::size_t first, std::size_t length) noexcept {
  return part.length > first ? std::min(length, part.length - first) : 0;
}

[[nodiscard]] inline std::byte* at(void* base, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(base) + bytes;
}
[[nodiscard]] inline std::byte const* at(void const* base, std::size_t bytes) noexcept {
  return static_cast<std::byte const*>(base) + bytes;
}

[[nodiscard]] constexpr std::size_t ceil_div(std::size_t a, std::size_t b) noexcept {
  return (a + b - 1) / b;
}

}  // namespace weft
