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
  double below_s = 0;            ///< nothing is looked for that takes as long
  std::size_t most_orders = 24;  ///< of computing, that are looked at
};

/// Launches, and starts as an order.
struct SequencePlan {
  Merged merged{};
  double seconds = 0;  ///< that a step takes with them
};

/// The best sequence of launches (launch_sequence.hpp) for several orders of computing: `order`, the same with
/// gradients first, and, from the best of those, others in which what can be sent is computed first where the link was
/// idle. `problem`, where nothing is merged; `order` has all its tasks, each behind what it waits for. Deterministic.
/// None where the step is no chain of launches (send_chain.hpp) or nothing shorter than rules.below_s was found.
[[nodiscard]] std::optional<SequencePlan> search_sequence(Problem const& problem, std::vector<TaskId> const& order,
                                                          SequenceSearchRules const& rules);

}  // namespace weft
