#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// "{0,2,1}" as numbers; nothing where there is no such attribute.
/// @throws Error{invalid_argument} where it says something else.
[[nodiscard]] std::vector<std::int64_t> integers(Module const& module, Instruction const& instruction,
                                                 std::string_view name);

/// "3" as a number.
[[nodiscard]] std::optional<std::int64_t> integer(Module const& module, Instruction const& instruction,
                                                  std::string_view name);

/// The computations that an attribute names, one or, in braces, several; none where there is no such attribute.
/// @throws Error{invalid_argument} where the module has none of that name.
[[nodiscard]] std::vector<int> computations(Module const& module, Instruction const& instruction,
                                            std::string_view name);

/// A collective's ranks in sets: listed, "{{0,1},{2,3}}", or by a formula, "[2,4]<=[4,2]T(1,0)": the numbers from 0 in
/// an array of shape [4,2], its dimensions permuted to (1,0), read as 2 sets of 4. One set of `ranks` ranks where no
/// groups are named.
/// @throws Error{invalid_argument}: numbers that are no ranks or come twice, counts that do not fit.
[[nodiscard]] std::vector<std::vector<int>> replica_groups(Module const& module, Instruction const& instruction,
                                                           int ranks);

/// The pairs of a collective-permute.
[[nodiscard]] std::vector<std::pair<int, int>> source_target_pairs(Module const& module,
                                                                   Instruction const& instruction);

}  // namespace weft::hlo
