#pragma once

#include <cstddef>
#include <vector>

namespace weft::staged {

/// A copy of `rows` rows of `width` bytes each. On either side the rows start a pitch apart, at most kMostPitch.
struct Copy {
  static constexpr std::size_t kMostPitch = 0x7fff'ffff;  ///< CUDA's cudaDevAttrMaxPitch

  std::byte* to = nullptr;
  std::byte const* from = nullptr;
  std::size_t width = 0;
  std::size_t rows = 1;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};
using Copies = std::vector<Copy>;

/// Adds a row of `width` bytes; extends the last copy where the row continues it. Adds nothing for 0 bytes.
void add_row(Copies& copies, std::byte* to, std::byte const* from, std::size_t width);

}  // namespace weft::staged
