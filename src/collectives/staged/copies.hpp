#pragma once

#include <cstddef>
#include <vector>

namespace weft::staged {

/// `rows` rows of `width` bytes, whose starts are a pitch apart.
struct Copy {
  std::byte* to = nullptr;
  std::byte const* from = nullptr;
  std::size_t width = 0;
  std::size_t rows = 1;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};
using Copies = std::vector<Copy>;

/// Adds a row, to the last copy where it continues that one. None of no bytes.
void add_row(Copies& copies, std::byte* to, std::byte const* from, std::size_t width);

}  // namespace weft::staged
