#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace train_gpt {

inline constexpr std::uint64_t kChecksumStart = 0xCBF29CE484222325ULL;

/// FNV-1a's recurrence over 8-byte words (the last one padded with zeros), continued from `state`: finds damage, not
/// forgery.
[[nodiscard]] inline std::uint64_t checksum(std::uint64_t state, void const* data, std::size_t bytes) noexcept {
  auto const* at = static_cast<unsigned char const*>(data);
  while (bytes > 0) {
    std::size_t const part = bytes < sizeof(std::uint64_t) ? bytes : sizeof(std::uint64_t);
    std::uint64_t word = 0;
    std::memcpy(&word, at, part);
    state = (state ^ word) * 0x100000001B3ULL;
    state ^= state >> 29U;
    at += part;
    bytes -= part;
  }
  return state;
}

}  // namespace train_gpt
