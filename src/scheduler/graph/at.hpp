#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

/// The index that an id (OpId, TensorId, TaskId, …) stands for in a vector by id. Pre: the id is not kNone.
[[nodiscard]] constexpr std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace weft
