#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

/// The place of what has this id (OpId, TensorId, TaskId, …) in a vector by id. Pre: it is not kNone.
[[nodiscard]] constexpr std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace weft
