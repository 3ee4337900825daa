#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/op_graph.hpp"
#include "weft/recompute.hpp"

namespace weft {

/// Why an operator is not run a second time.
enum class Obstacle : std::uint8_t {
  none,
  update,      ///< it changes weights
  collective,  ///< and those are not allowed
  random,      ///< by its name, and not marked as repeatable
  forbidden,   ///< marked as not repeatable
};

[[nodiscard]] Obstacle obstacle_to_repeating(OpNode const& op, RecomputeOptions const& options);

/// "is an update of weights": behind the operator's name.
[[nodiscard]] std::string_view words_for(Obstacle obstacle) noexcept;

/// Whether a word of the name (between all that are no letters) is one that operators with random results have.
[[nodiscard]] bool sounds_random(std::string_view name);

}  // namespace weft
