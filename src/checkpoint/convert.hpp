#pragma once

#include <cstddef>

#include "weft/data_type.hpp"

namespace weft {

/// Whether values of one type can be read as another: equal types, and real floating-point ones.
[[nodiscard]] bool is_convertible(DataType from, DataType to) noexcept;

/// Copies `count` elements, converted through f32 where types differ (to f64: exactly, from f32 and narrower).
void convert_elements(void const* from, DataType from_type, void* to, DataType to_type, std::size_t count);

}  // namespace weft
