#pragma once

#include <cstdint>
#include <optional>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// A while loop that counts.
struct Counter {
  int element = -1;  ///< of the loop's tuple
  std::int64_t step = 0;
};

/// The element that the condition compares with a constant and the body adds a constant to.
[[nodiscard]] std::optional<Counter> find_counter(Module const& module, Instruction const& loop);

/// How often a loop in `computation` runs its body: what backend_config knows, or what the condition, the body and the
/// counter's first value say; nothing where they do not.
[[nodiscard]] std::optional<std::int64_t> trip_count(Module const& module, Computation const& computation,
                                                     Instruction const& loop);

/// The counter's first value.
[[nodiscard]] std::optional<std::int64_t> first_count(Module const& module, Computation const& computation,
                                                      Instruction const& loop, Counter const& counter);

}  // namespace weft::hlo
