#pragma once

#include <vector>

#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/plan_maker.hpp"

namespace weft {

using Launches = std::vector<std::vector<OpId>>;

/// A launch, and the launches of its kind and group that start right before and after it; empty where there is none.
struct Neighbours {
  std::vector<OpId> before{};
  std::vector<OpId> launch{};
  std::vector<OpId> after{};
};

/// All launches of collectives of a plan, grouped by kind and group, by start within each.
[[nodiscard]] std::vector<Neighbours> launches_of(Plan const& plan);

/// Other ways to send a launch and its neighbours: together, or cut at other places. Each way has all their
/// collectives.
[[nodiscard]] std::vector<Launches> moves_of(Neighbours const& here);

/// The plan's launches, and the order in which its tasks start.
[[nodiscard]] Merged arrangement_of(Plan const& plan);

/// Returns `merged` with the launches `instead` in place of those that held their collectives. A launch of gathers
/// stands where the first of its collectives was sent, any other where the last one was.
[[nodiscard]] Merged rearranged(Merged merged, OpGraph const& graph, Launches const& instead);

/// The seconds by which plans are compared while they are changed: the makespan, and a little for late computing and
/// for sending. Of plans that take equally long, one that sends less and computes earlier is nearer to shorter ones.
[[nodiscard]] double score_of(Plan const& plan);

}  // namespace weft
