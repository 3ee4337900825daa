#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "importers/hlo/module.hpp"
#include "importers/hlo/opcodes.hpp"

namespace weft::hlo {

/// A slot: one array that a computation is given or computes. A view shares the slot of the array it looks at; a tuple
/// has the slots of its parts.
struct Slot {
  int made_by = -1;  ///< the instruction; -1: a parameter
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  bool fixed = false;  ///< it depends on constants, ranks and loop counters alone: nothing is computed for it
};

/// Where the values of a computation go: which slots each instruction reads and makes.
struct Flow {
  std::vector<Role> roles{};  ///< of each instruction; a view, a repeated constant and the like have Role::nothing
  std::vector<Slot> slots{};
  std::vector<int> parameters{};  ///< slots of all parameters' leaves, in order
  std::int64_t views = 0;         ///< instructions that run nothing and are neither parameters nor tuples

  /// The slots of an instruction's leaves.
  [[nodiscard]] std::span<int const> of(int instruction) const {
    auto const& range = ranges[static_cast<std::size_t>(instruction)];
    return {pool.data() + range.first, static_cast<std::size_t>(range.count)};
  }

  struct Range {
    std::size_t first = 0;
    int count = 0;
  };
  std::vector<int> pool{};
  std::vector<Range> ranges{};
};

/// Traces a computation. `counter`: the element of the first parameter's tuple that counts a loop's iterations, or -1.
/// @throws Error{invalid_argument} with line and column: operands whose number or shapes do not fit.
[[nodiscard]] Flow trace_flow(Module const& module, Computation const& computation, int counter);

}  // namespace weft::hlo
