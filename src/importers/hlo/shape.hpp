#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::hlo {

/// The shape of an array, or of a tuple of shapes. A token has no bytes.
struct Shape {
  std::string_view type{};             ///< "bf16"; nothing for a tuple
  std::vector<std::int64_t> dims{};    ///< of an array
  std::vector<std::int64_t> layout{};  ///< dimensions from the fastest to the slowest; none: the last is the fastest
  std::vector<Shape> parts{};          ///< of a tuple
  bool is_tuple = false;
  std::int64_t elements = 1;  ///< of an array
  std::int64_t bytes = 0;     ///< of an array, or of all arrays within a tuple
  int leaves = 1;             ///< arrays within, in the order of the text; nested tuples count with theirs
  int first_leaf = 0;         ///< how many leaves come before it in the tuple it is a part of
};

/// Bits of an element; 0 for tokens, -1 if the name is no type.
[[nodiscard]] int bits_of_type(std::string_view type) noexcept;

/// The dimensions of an array from the fastest to the slowest, written out.
[[nodiscard]] std::vector<std::int64_t> layout_of(Shape const& array);

}  // namespace weft::hlo
