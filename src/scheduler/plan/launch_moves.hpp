#pragma once

#include <vector>

#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/plan_maker.hpp"

namespace weft {

using Launches = std::vector<std::vector<OpId>>;

/// A launch and those of its kind and group that start before and after it; none there: empty.
struct Neighbours {
  std::vector<OpId> before{};
  std::vector<OpId> launch{};
  std::vector<OpId> after{};
};

/// All launches of collectives of a plan, by kind and group and then by start.
[[nodiscard]] std::vector<Neighbours> launches_of(Plan const& plan);

/// Ways to send a launch and its neighbours otherwise: together, or with other ends. Each has all their collectives.
[[nodiscard]] std::vector<Launches> moves_of(Neighbours const& here);

/// The plan's launches, and its starts as an order.
[[nodiscard]] Merged arrangement_of(Plan const& plan);

/// With some launches instead of those that had their collectives: gathers where the first of them was sent, others
/// where the last one was.
[[nodiscard]] Merged rearranged(Merged merged, OpGraph const& graph, Launches const& instead);

/// Seconds by which plans are compared while they are changed. Of those that take equally long the one that sends less
/// and computes earlier is nearer to shorter ones.
[[nodiscard]] double score_of(Plan const& plan);

}  // namespace weft
