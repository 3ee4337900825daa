#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/merge_collectives.hpp"

namespace weft {

struct SequenceSearchRules {
  std::int64_t capacity = 0;
  double contention = 0;
  double below_s = 0;            ///< only sequences shorter than this are looked for
  std::size_t most_orders = 24;  ///< orders of computing that are looked at
};

/// A plan: its launches, and the order in which tasks start.
struct SequencePlan {
  Merged merged{};
  double seconds = 0;  ///< seconds that a step takes with these launches
};

/// Looks for the best sequence of launches (launch_sequence.hpp) over several orders of computing: `order`; the same
/// with gradients first; and variations of the best of those, in which computing is moved forward that leads to sends
/// for the times when the link was idle. Nothing is merged in `problem`; `order` has all its tasks, each behind what it
/// waits for. Deterministic.
///
/// None where the step is no chain of launches (send_chain.hpp) or nothing shorter than rules.below_s was found.
[[nodiscard]] std::optional<SequencePlan> search_sequence(Problem const& problem, std::vector<TaskId> const& order,
                                                          SequenceSearchRules const& rules);

}  // namespace weft
