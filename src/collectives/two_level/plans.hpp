#pragma once

#include <memory>

#include "collectives/staged/plan.hpp"
#include "collectives/two_level/levels.hpp"

namespace weft::two_level {

// Plans of the collectives that gain from two levels. `levels` outlives the plan.
[[nodiscard]] std::unique_ptr<staged::Plan> all_reduce(Call const& call, Levels const& levels);
[[nodiscard]] std::unique_ptr<staged::Plan> reduce(Call const& call, Levels const& levels);
[[nodiscard]] std::unique_ptr<staged::Plan> broadcast(Call const& call, Levels const& levels);
/// The pieces of this and of reduce_scatter() may be unequal.
[[nodiscard]] std::unique_ptr<staged::Plan> all_gather(Call const& call, Levels const& levels);
[[nodiscard]] std::unique_ptr<staged::Plan> reduce_scatter(Call const& call, Levels const& levels);

/// The plan of any call that NCCL does among all ranks.
[[nodiscard]] std::unique_ptr<staged::Plan> direct(Call const& call);

}  // namespace weft::two_level
