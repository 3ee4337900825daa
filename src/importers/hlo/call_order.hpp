#pragma once

#include <vector>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// The computations whose instructions run when this instruction does: those of calls, loops' bodies, branches and
/// fusions.
[[nodiscard]] std::vector<int> callees(Module const& module, Instruction const& instruction);

/// The computations that the entry reaches through callees(), each after those that it calls.
/// @throws Error{invalid_argument} with line and column where a computation calls itself, or nests deeper than 64.
[[nodiscard]] std::vector<int> call_order(Module const& module);

}  // namespace weft::hlo
