#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::kernels {

inline constexpr std::size_t kShortBytes = 64;

/// memcpy() of up to kShortBytes, in line: the library's takes longer to find out how few there are than to copy them.
inline void copy_short(void* to, void const* from, std::size_t bytes) noexcept {
  using Vector = std::array<std::uint64_t, 2>;
  auto* const target = static_cast<std::byte*>(to);
  auto const* const source = static_cast<std::byte const*>(from);
  // Two words of a kind, which overlap where there are fewer than two.
  auto const copy_ends = [&]<typename Word>(Word first, std::size_t length, std::size_t offset) {
    Word last;
    std::memcpy(&first, source + offset, sizeof first);
    std::memcpy(&last, source + offset + length - sizeof last, sizeof last);
    std::memcpy(target + offset, &first, sizeof first);
    std::memcpy(target + offset + length - sizeof last, &last, sizeof last);
  };
  if (bytes > 32) {
    copy_ends(Vector{}, 32, 0);
    return copy_ends(Vector{}, 32, bytes - 32);
  }
  if (bytes >= 16) return copy_ends(Vector{}, bytes, 0);
  if (bytes >= 8) return copy_ends(std::uint64_t{}, bytes, 0);
  if (bytes >= 4) return copy_ends(std::uint32_t{}, bytes, 0);
  if (bytes >= 2) return copy_ends(std::uint16_t{}, bytes, 0);
  if (bytes == 1) *target = *source;
}

}  // namespace weft::kernels
