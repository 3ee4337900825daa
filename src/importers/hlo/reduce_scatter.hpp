#pragma once

#include <unordered_map>
#include <vector>

#include "importers/hlo/flow.hpp"
#include "importers/hlo/groups.hpp"
#include "importers/hlo/module.hpp"

namespace weft::hlo {

/// Finds all-reduces of which each rank keeps only a slice of its own. Returns, by instruction, the all-reduce that a
/// dynamic-slice (through views and conversions in between) turns into a reduce-scatter.
///
/// The slice's place is worked out for every rank of the group: within a set no two may be the same, and each takes
/// one part in as many as there are ranks in the set.
[[nodiscard]] std::unordered_map<int, int> find_reduce_scatters(Module const& module, Computation const& computation,
                                                                Flow const& flow, Groups& groups);

}  // namespace weft::hlo
