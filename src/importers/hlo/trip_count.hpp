#pragma once

#include <cstdint>
#include <optional>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// What a while loop counts its iterations by.
struct Counter {
  int element = -1;  ///< of the loop's tuple
  std::int64_t step = 0;
};

/// Finds the element that the condition compares with a constant and to which the body adds a constant.
[[nodiscard]] std::optional<Counter> find_counter(Module const& module, Instruction const& loop);

/// How often a loop in `computation` runs its body: as backend_config says, or else as condition, body and the
/// counter's first value say; empty where neither does.
[[nodiscard]] std::optional<std::int64_t> trip_count(Module const& module, Computation const& computation,
                                                     Instruction const& loop);

/// The counter's first value.
[[nodiscard]] std::optional<std::int64_t> first_count(Module const& module, Computation const& computation,
                                                      Instruction const& loop, Counter const& counter);

}  // namespace weft::hlo
