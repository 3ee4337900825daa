#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"

namespace weft {

struct RecomputeProgress {
  std::chrono::duration<double> elapsed;
  std::int64_t peak_bytes;  ///< the least so far
  double seconds;           ///< that what fits costs so far; infinity where nothing does
};

struct RecomputeOptions {
  /// Bytes that may be live while operators run one after another, resident ones included.
  std::int64_t budget = 0;
  /// Collectives may be run a second time. A gather whose input is gathered a second time anyway is read from there
  /// without this.
  bool collectives = false;
  std::chrono::milliseconds time_limit{60'000};              ///< past it the best selection so far is taken
  std::function<bool()> stop{};                              ///< asked between selections; true: as past time_limit
  std::function<void(RecomputeProgress const&)> progress{};  ///< after each selection tried, by the caller's thread
};

struct Recompute {
  /// The step with them: operators stand in an order in which they can run within peak_bytes. What is run again has
  /// the name of the first run with ".again", its tensors likewise, and stands right before what needs it.
  OpGraph graph{};
  std::vector<OpId> again{};  ///< operators of the graph that was given, rising
  double seconds = 0;         ///< that they take
  std::int64_t peak_bytes = 0;
  std::int64_t peak_before = 0;  ///< of the order of least memory that is known of the graph as given
};

/// What to compute a second time rather than keep, so that a step fits a budget at the least cost: no order of the
/// graph as given need be known that does. Forward and backward are not told apart: a tensor that lies idle while more
/// than the budget is live may be made again by running its operator, and what that needs, a second time.
///
/// Never run again: updates; collectives, unless allowed; OpNode::repeatable == false; what draws random numbers, which
/// is known by a word of its name (dropout, bernoulli, rand, rng, ...), unless `repeatable` is true; what would read a
/// memory that has been written over by then. An operator that works in place gets memory of its own in its second run.
///
/// For a price of memory over time the cheapest selection is a minimum cut (as in AOTAutograd's partitioner, but with
/// costs on both sides); prices are searched over, what is too much taken back, and what is missing added by bytes
/// freed at the peak per second. Deterministic but for the time limit. docs/scheduler.md has the details.
///
/// @throws Error{invalid_argument} as check_graph(), and for a negative budget. Error{out_of_memory} where no selection
/// was found: with the least budget that one was found for, and what is live then and why it cannot be dropped.
[[nodiscard]] Recompute plan_recompute(OpGraph const& graph, CostModel const& model, RecomputeOptions const& options);

/// `graph` with the operators run again, each right before what uses its results after the most live time of `graph`'s
/// order of least memory, or for another one that is run again. Those of `again` that nothing would use are left out.
/// @throws Error{invalid_argument} as check_graph(), and for an operator that may not be run again, saying why.
[[nodiscard]] Recompute recompute_operators(OpGraph const& graph, CostModel const& model,
                                            std::vector<OpId> const& again, RecomputeOptions const& options = {});

}  // namespace weft
