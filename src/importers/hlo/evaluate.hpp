#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// What is known of a scalar's inputs.
struct Known {
  std::optional<std::int64_t> rank{};  ///< what partition-id is
  int bound = -1;                      ///< an element of the computation's parameter, a tuple, …
  std::int64_t value = 0;              ///< … and what it is
};

/// An integer that an instruction computes from constants and what is known, or nothing: where other values matter, or
/// more than a few instructions.
[[nodiscard]] std::optional<std::int64_t> evaluate(Module const& module, Computation const& computation,
                                                   int instruction, Known const& known);

/// The same for each rank below `ranks`, up to the first for which it is not known.
[[nodiscard]] std::vector<std::int64_t> evaluate_by_rank(Module const& module, Computation const& computation,
                                                         int instruction, int ranks);

}  // namespace weft::hlo
