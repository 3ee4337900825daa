#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace weft {

/// A fingerprint of a sequence of values (FNV-1a). It is never 0: 0 stands for no fingerprint.
class Digest {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> Digest& add(T value) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      return word(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    } else {
      return word(static_cast<std::uint64_t>(value));
    }
  }
  Digest& add(std::string_view text) noexcept {
    for (char const c : text) byte(static_cast<unsigned char>(c));
    return word(text.size());
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_ == 0 ? 1 : state_; }

 private:
  Digest& word(std::uint64_t value) noexcept {
    for (int shift = 0; shift < 64; shift += 8) byte((value >> shift) & 0xffU);
    return *this;
  }
  void byte(std::uint64_t value) noexcept { state_ = (state_ ^ value) * 0x100000001b3U; }

  std::uint64_t state_ = 0xcbf29ce484222325U;
};

}  // namespace weft
