#include "weft/fixed_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/policies.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

constexpr std::int64_t kEnough = std::numeric_limits<std::int64_t>::max() / 4;

Schedule schedule_of(Problem const& problem, RunRules const& rules, LowerBound const& bound) {
  Run const run = run_tasks(problem, rules);
  Schedule schedule;
  schedule.makespan_s = run.makespan_s;
  schedule.bound = bound;
  schedule.peak_bytes = schedule.capacity = run.peak_bytes;
  schedule.resident_bytes = problem.resident_bytes();
  for (TaskId const id : run.started) {
    Task const& task = problem.task(id);
    TaskRun const& ran = run.tasks[at(id)];
    schedule.launches.push_back({task.ops, task.resource, ran.start_s, ran.end_s, ran.live_bytes});
    schedule.busy_s[static_cast<std::size_t>(task.resource)] += ran.end_s - ran.start_s;
  }
  return schedule;
}

/// The buckets, in the order in which a trainer would send them.
std::vector<std::vector<OpId>> buckets_of(Problem const& problem, std::int64_t bytes) {
  struct Bucket {
    std::vector<OpId> ops;
    std::int64_t bytes = 0;
  };
  std::map<std::pair<CollectiveKind, GroupId>, Bucket> open;
  std::vector<std::vector<OpId>> buckets;
  auto const close = [&](Bucket& bucket) {
    if (bucket.ops.size() > 1) buckets.push_back(std::move(bucket.ops));
    bucket = {};
  };
  for (TaskId const task : problem.order()) {
    OpNode const& op = problem.graph().ops[at(problem.task(task).ops.front())];
    if (op.kind == OpKind::update) continue;  // an update can wait for all buckets
    // A task that waits for a member of an open bucket runs after that bucket was sent.
    for (TaskId const earlier : problem.before(task)) {
      OpId const needed = problem.task(earlier).ops.front();
      bool const by_update = problem.graph().ops[at(needed)].kind == OpKind::update;
      for (auto& [kind, bucket] : open) {
        if (by_update || std::find(bucket.ops.begin(), bucket.ops.end(), needed) != bucket.ops.end()) close(bucket);
      }
    }
    if (op.kind != OpKind::collective) continue;
    Bucket& bucket = open[{op.collective.kind, op.collective.group}];
    bucket.ops.push_back(problem.task(task).ops.front());
    bucket.bytes += op.collective.bytes;
    if (bucket.bytes >= bytes) close(bucket);
  }
  for (auto& [kind, bucket] : open) close(bucket);
  return buckets;
}

}  // namespace

Schedule program_schedule(OpGraph const& graph, CostModel const& model) {
  check_graph(graph);
  Problem const problem(graph, model);
  RunRules rules;
  rules.serial = problem.order();
  rules.urgency = urgency_by_order(rules.serial);
  rules.capacity = kEnough;
  rules.blocking = true;
  Schedule schedule = schedule_of(problem, rules, lower_bound(problem, 0, kEnough));
  schedule.policy = "program";
  return schedule;
}

Schedule bucket_schedule(OpGraph const& graph, CostModel const& model, std::int64_t bytes) {
  check_graph(graph);
  if (bytes < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket_schedule: buckets of {} bytes; give 1 or more", bytes));
  Problem const unmerged(graph, model);
  Problem const problem(graph, model, buckets_of(unmerged, bytes));
  RunRules rules;
  rules.serial = problem.order();
  rules.urgency = urgency_by_order(rules.serial);
  rules.capacity = kEnough;
  Schedule schedule = schedule_of(problem, rules, lower_bound(unmerged, 0, kEnough));
  schedule.policy = fmt::format("buckets of {} bytes", bytes);
  return schedule;
}

}  // namespace weft
