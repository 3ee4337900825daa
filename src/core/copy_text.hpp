#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace weft {

/// Copies as much of `text` as there is room for, and a NUL behind it. Characters of UTF-8 stay whole: Python refuses
/// to read errors that end within one.
template <std::size_t kBytes>
void copy_text(std::string_view text, char (&to)[kBytes]) noexcept {
  auto length = std::min(text.size(), kBytes - 1);
  auto const continues = [&] { return (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U; };
  while (length > 0 && length < text.size() && continues()) --length;
  text.copy(to, length);
  to[length] = '\0';
}

}  // namespace weft
