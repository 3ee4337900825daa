#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/op_graph.hpp"
#include "weft/recompute.hpp"

namespace weft {

/// Why an operator may not be run a second time.
enum class Obstacle : std::uint8_t {
  none,
  update,      ///< it changes weights
  collective,  ///< and those are not allowed
  random,      ///< by its name, and not marked as repeatable
  forbidden,   ///< marked as not repeatable
};

[[nodiscard]] Obstacle obstacle_to_repeating(OpNode const& op, RecomputeOptions const& options);

/// The reason as words that follow the operator's name: "is an update of weights".
[[nodiscard]] std::string_view words_for(Obstacle obstacle) noexcept;

/// Whether one of the name's words (runs of letters) is one that operators with random results have.
[[nodiscard]] bool sounds_random(std::string_view name);

}  // namespace weft
