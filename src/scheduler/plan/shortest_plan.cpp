#include "scheduler/plan/shortest_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/exhaustive_search.hpp"
#include "scheduler/plan/policies.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

/// The most starts of tasks that are tried, over all problems: about a second.
constexpr std::size_t kMostStarts = 1'000'000;
/// Making one problem takes about as long as this many starts.
constexpr std::size_t kStartsOfAProblem = 20;
/// A gain of no more than this share is rounding, and does not count.
constexpr double kRounding = 1e-9;

class AllPlans {
 public:
  AllPlans(PlanMaker const& planner, Plan& plan) : planner_(planner), plan_(plan) {
    for (Task const& task : planner.unmerged().tasks()) {
      // A collective without latency gains nothing by being merged: it could as well be sent by itself in the launch's
      // place.
      if (op_of(task).kind == OpKind::collective && task.latency_s > 0) mergeable_.push_back(task.ops.front());
    }
  }

  bool run() {
    merge_from(0);
    return complete_;
  }

 private:
  [[nodiscard]] OpNode const& op_of(Task const& task) const { return op(task.ops.front()); }
  [[nodiscard]] OpNode const& op(OpId id) const { return planner_.unmerged().graph().ops[at(id)]; }

  [[nodiscard]] bool alike(OpId a, OpId b) const {
    return op(a).collective.kind == op(b).collective.kind && op(a).collective.group == op(b).collective.group &&
           op(a).seconds.has_value() == op(b).seconds.has_value();
  }

  /// Tries all ways to send mergeable_[i] and the ones behind it, each with some before it or by itself.
  void merge_from(std::size_t i) {
    if (i == mergeable_.size()) return try_merged();
    OpId const id = mergeable_[i];
    for (std::size_t launch = 0; launch < launches_.size() && complete_; ++launch) {
      if (!alike(launches_[launch].front(), id)) continue;
      launches_[launch].push_back(id);
      merge_from(i + 1);
      launches_[launch].pop_back();
    }
    if (!complete_) return;
    launches_.push_back({id});
    merge_from(i + 1);
    launches_.pop_back();
  }

  void try_merged() {
    starts_ += kStartsOfAProblem;
    if (starts_ >= kMostStarts) {
      complete_ = false;
      return;
    }
    auto problem = problem_with(launches_);
    if (!problem) return;
    auto const shortest = try_all_orders(*problem, {.capacity = planner_.capacity(),
                                                    .below_s = plan_.run.makespan_s * (1 - kRounding),
                                                    .most_starts = kMostStarts - starts_});
    starts_ += shortest.starts;
    complete_ = shortest.complete;
    if (shortest.order.empty()) return;
    Run run = run_tasks(*problem, {.serial = shortest.order,
                                   .urgency = urgency_by_order(shortest.order),
                                   .capacity = planner_.capacity(),
                                   .in_order = true});
    if (run.makespan_s < plan_.run.makespan_s) plan_ = {std::move(problem), std::move(run)};
  }

  /// Null where that makes a cycle.
  [[nodiscard]] std::unique_ptr<Problem> problem_with(std::vector<std::vector<OpId>> launches) const {
    launches.erase(std::remove_if(launches.begin(), launches.end(), [](auto const& ops) { return ops.size() < 2; }),
                   launches.end());
    try {
      return std::make_unique<Problem>(planner_.unmerged().graph(), planner_.unmerged().model(), launches);
    } catch (Error const& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      return nullptr;
    }
  }

  PlanMaker const& planner_;
  Plan& plan_;
  std::vector<OpId> mergeable_;
  std::vector<std::vector<OpId>> launches_;  ///< launches of the collectives that were looked at so far
  std::size_t starts_ = 0;
  bool complete_ = true;
};

}  // namespace

bool make_shortest(PlanMaker const& planner, Plan& plan) {
  if (plan.run.makespan_s <= planner.bound().within_memory_s() * (1 + kRounding)) return true;
  if (planner.contention() > 0 || planner.unmerged().tasks().size() > kMostExhaustiveTasks) return false;
  return AllPlans(planner, plan).run();
}

}  // namespace weft
