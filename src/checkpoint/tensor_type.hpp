#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "weft/data_type.hpp"

namespace weft {

/// The name that safetensors has for a type ("F32", "BF16" …); empty where it has none.
[[nodiscard]] std::string_view safetensors_name(DataType dtype) noexcept;
[[nodiscard]] std::optional<DataType> parse_safetensors_name(std::string_view name) noexcept;

/// The number of elements of `shape`; nothing when that is more than a file can hold at `element_bytes` each.
[[nodiscard]] std::optional<std::size_t> count_of(std::span<std::size_t const> shape,
                                                  std::size_t element_bytes) noexcept;

}  // namespace weft
