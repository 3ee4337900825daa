#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <random>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/policies.hpp"
#include "scheduler/plan/replay_tasks.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"

namespace weft {

namespace {

[[noreturn]] void refuse(std::string const& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("replay_schedule: {}", why));
}

void check(Disturbance const& disturbance) {
  for (double const factor : {disturbance.compute, disturbance.communication, disturbance.noise}) {
    if (!std::isfinite(factor) || factor < 0) refuse(fmt::format("a factor of {}", factor));
  }
  if (disturbance.noise > 1)
    refuse(fmt::format("noise of {}: some operators would take less than no time", disturbance.noise));
}

void check(OpGraph const& graph, Schedule const& schedule) {
  std::vector<bool> met(graph.ops.size(), false);
  std::size_t count = 0;
  for (auto const& launch : schedule.launches) {
    for (OpId const op : launch.ops) {
      auto const id = static_cast<std::size_t>(op);
      if (op < 0 || id >= met.size() || met[id])
        refuse(fmt::format("operator {} is in the schedule twice, or not in graph {}", op, graph.name));
      met[id] = true;
      ++count;
    }
  }
  if (count != met.size())
    refuse(fmt::format("the schedule has {} of the {} operators of graph {}", count, met.size(), graph.name));
}

/// The schedule's tasks by their starts; refuses them where they cannot run in that order.
std::vector<TaskId> order_of(Problem const& problem, Schedule const& schedule) {
  std::vector<TaskId> order;
  std::vector<bool> met(problem.tasks().size(), false);
  for (auto const& launch : schedule.launches) {
    TaskId const task = problem.task_of(launch.ops.front());
    for (TaskId const earlier : problem.before(task)) {
      if (!met[static_cast<std::size_t>(earlier)]) {
        refuse(fmt::format("operator {} starts before what it waits for", launch.ops.front()));
      }
    }
    met[static_cast<std::size_t>(task)] = true;
    order.push_back(task);
  }
  return order;
}

/// The factor of a task; of collectives sent together the mean of their factors, weighted by their bytes.
double factor_of(OpGraph const& graph, Task const& task, std::vector<double> const& factors) {
  if (task.ops.size() == 1) return factors[at(task.ops.front())];
  double sum = 0;
  double weight = 0;
  for (OpId const op : task.ops) {
    auto const bytes = static_cast<double>(std::max<std::int64_t>(1, graph.ops[at(op)].collective.bytes));
    sum += bytes * factors[at(op)];
    weight += bytes;
  }
  return sum / weight;
}

}  // namespace

double replay_schedule(OpGraph const& graph, CostModel const& model, Schedule const& schedule,
                       Disturbance const& disturbance) {
  check_graph(graph);
  check(disturbance);
  check(graph, schedule);
  std::vector<std::vector<OpId>> merged;
  for (auto const& launch : schedule.launches) {
    if (launch.ops.size() > 1) merged.push_back(launch.ops);
  }
  Problem const problem(graph, model, merged);
  auto const order = order_of(problem, schedule);
  if (serial_peak(problem, order) > schedule.capacity) {
    refuse(fmt::format("the schedule takes more than its capacity of {} bytes", schedule.capacity));
  }
  return replay_tasks(problem, order, schedule.capacity, schedule.contention, disturbance);
}

double replay_tasks(Problem const& problem, std::vector<TaskId> const& order, std::int64_t capacity, double contention,
                    Disturbance const& disturbance) {
  RunRules rules;
  rules.serial = order;
  rules.urgency = urgency_by_order(order);
  rules.capacity = capacity;
  rules.contention = contention;
  rules.in_order = true;
  std::mt19937_64 random(disturbance.seed);
  std::uniform_real_distribution<double> factor(1 - disturbance.noise, 1 + disturbance.noise);
  // By operator, so that all plans of a graph meet the same times, whatever they send together.
  std::vector<double> factors(problem.graph().ops.size());
  for (double& each : factors) each = factor(random);
  for (auto const& task : problem.tasks()) {
    bool const sends = is_link(task.resource);
    rules.seconds.push_back(task.seconds * (sends ? disturbance.communication : disturbance.compute) *
                            factor_of(problem.graph(), task, factors));
  }
  return run_tasks(problem, rules).makespan_s;
}

}  // namespace weft
