#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "weft/buffer.hpp"

namespace weft {

/// The numbers of two parameters that share memory, the lower one first; nothing where all are apart. A parameter that
/// is empty or has no memory shares none.
[[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<BufferView const> parameters);

}  // namespace weft
