#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// What is known about the values that a scalar is computed from.
struct Known {
  std::optional<std::int64_t> rank{};  ///< the value of partition-id
  int bound = -1;                      ///< an element of the computation's parameter, which is a tuple, …
  std::int64_t value = 0;              ///< … and its value
};

/// The integer that an instruction computes from constants and what is known. Empty where other values matter, or where
/// more than a few instructions are needed.
[[nodiscard]] std::optional<std::int64_t> evaluate(Module const& module, Computation const& computation,
                                                   int instruction, Known const& known);

/// The same for each rank below `ranks`, up to the first one for which it is not known.
[[nodiscard]] std::vector<std::int64_t> evaluate_by_rank(Module const& module, Computation const& computation,
                                                         int instruction, int ranks);

}  // namespace weft::hlo
