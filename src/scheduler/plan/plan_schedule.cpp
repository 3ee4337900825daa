#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/plan_maker.hpp"
#include "scheduler/plan/plan_search.hpp"
#include "scheduler/plan/shortest_plan.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"

namespace weft {

namespace {

constexpr std::array<std::string_view, kSchedulePolicies + 1> kPolicyNames = {
    "weft", "blocking", "asap", "alap", "prefetch1", "prefetch2", "xla", "inductor", "random", "settings"};

/// Seconds in which something is sent and nothing is computed.
double exposed(std::vector<Launch> const& launches) {
  std::vector<std::pair<double, std::array<int, 2>>> events;
  for (auto const& launch : launches) {
    if (launch.end_s <= launch.start_s || launch.resource == Resource::copy) continue;
    bool const computes = launch.resource == Resource::compute;
    std::array<int, 2> const begins = {computes ? 0 : 1, computes ? 1 : 0};
    events.push_back({launch.start_s, begins});
    events.push_back({launch.end_s, {-begins[0], -begins[1]}});
  }
  std::sort(events.begin(), events.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
  double total = 0;
  double since = 0;
  int sending = 0;
  int computing = 0;
  for (auto const& [time, change] : events) {
    if (sending > 0 && computing == 0) total += time - since;
    since = time;
    sending += change[0];
    computing += change[1];
  }
  return total;
}

Schedule schedule_of(PlanMaker const& planner, Plan const& plan, SchedulePolicy policy) {
  Schedule schedule;
  schedule.policy = to_string(policy);
  schedule.makespan_s = plan.run.makespan_s;
  schedule.bound = planner.bound();
  schedule.peak_bytes = plan.run.peak_bytes;
  schedule.resident_bytes = plan.problem->resident_bytes();
  schedule.capacity = planner.capacity();
  schedule.contention = planner.contention();
  for (TaskId const id : plan.run.started) {
    Task const& task = plan.problem->task(id);
    TaskRun const& run = plan.run.tasks[at(id)];
    schedule.launches.push_back({task.ops, task.resource, run.start_s, run.end_s, run.live_bytes});
    schedule.busy_s[static_cast<std::size_t>(task.resource)] += run.end_s - run.start_s;
  }
  schedule.exposed_s = exposed(schedule.launches);
  return schedule;
}

}  // namespace

std::string_view to_string(SchedulePolicy policy) noexcept {
  return kPolicyNames[static_cast<std::size_t>(policy)];
}

Schedule plan_schedule(OpGraph const& graph, CostModel const& model, ScheduleOptions const& options) {
  auto const began = PlanSearch::Clock::now();
  check_graph(graph);
  if (options.capacity && *options.capacity < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan_schedule: a capacity of {} bytes", *options.capacity));
  }
  if (!std::isfinite(options.contention) || options.contention < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan_schedule: a contention of {}", options.contention));
  }
  ScheduleSettings const& settings = options.settings;
  if (settings.gather_bytes < 0 || settings.reduction_bytes < 0 || settings.prefetch_depth < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("plan_schedule: settings of {} and {} bytes, {} ahead: none may be negative",
                            settings.gather_bytes, settings.reduction_bytes, settings.prefetch_depth));
  }
  PlanMaker const planner(graph, model, options.capacity, options.contention);
  PlanSearch search(planner, options, began);
  bool const searches = options.policy == SchedulePolicy::weft;
  Plan plan = searches ? search.best() : search.only(options.policy);
  bool const shortest = searches && make_shortest(planner, plan);
  Schedule schedule = schedule_of(planner, plan, options.policy);
  schedule.shortest = shortest;
  schedule.planning_s = std::chrono::duration<double>(PlanSearch::Clock::now() - began).count();
  return schedule;
}

std::int64_t serial_peak_bytes(OpGraph const& graph, CostModel const& model) {
  check_graph(graph);
  Problem const problem(graph, model);
  return serial_peak(problem, low_memory_order(problem));
}

}  // namespace weft
