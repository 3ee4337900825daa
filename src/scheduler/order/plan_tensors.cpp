#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "scheduler/memory/check_buffers.hpp"
#include "scheduler/memory/sections.hpp"
#include "scheduler/order/costless.hpp"
#include "scheduler/order/greedy_order.hpp"
#include "scheduler/order/memory_order.hpp"
#include "scheduler/order/serial_order.hpp"
#include "weft/error.hpp"
#include "weft/memory_planner.hpp"

namespace weft {

namespace {

/// Where no capacity is given, offsets that take up to this many times the live bytes are good enough: a search could
/// find little beyond, and would not be worth its time.
constexpr double kGoodEnough = 1.001;

std::vector<TaskId> breadth_first(Problem const& problem) {
  std::vector<int> depth(problem.tasks().size(), 0);
  for (TaskId const task : problem.order()) {
    for (TaskId const later : problem.after(task)) {
      int& theirs = depth[static_cast<std::size_t>(later)];
      theirs = std::max(theirs, depth[static_cast<std::size_t>(task)] + 1);
    }
  }
  auto order = problem.order();
  std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) {
    return depth[static_cast<std::size_t>(a)] < depth[static_cast<std::size_t>(b)];
  });
  return order;
}

std::vector<TaskId> order_by(OrderPolicy policy, Problem const& problem) {
  switch (policy) {
    case OrderPolicy::breadth_first: return breadth_first(problem);
    case OrderPolicy::depth_first: return depth_first(problem);
    case OrderPolicy::greedy: return greedy_order(problem);
    default: return problem.order();
  }
}

/// The most bytes that are needed at one time, where each buffer counts up to the place where the next one can lie.
/// Offsets that take no more than this need no search either.
std::int64_t aligned_live(std::vector<PlannedBuffer> const& buffers) {
  std::map<std::int64_t, std::int64_t> change;  // by moment
  for (auto const& buffer : buffers) {
    std::int64_t const bytes = align_up(buffer.bytes, buffer.alignment);
    change[buffer.life.begin] += bytes;
    change[buffer.life.end] -= bytes;
  }
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (auto const& [moment, by] : change) most = std::max(most, live += by);
  return most;
}

void check(OpGraph const& graph, TensorPlanOptions const& options) {
  check_graph(graph);
  if (options.alignment < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("an alignment of {} bytes; from 1 on", options.alignment));
  }
  if (options.capacity && *options.capacity < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("a capacity of {} bytes", *options.capacity));
  }
}

}  // namespace

std::string_view to_string(OrderPolicy policy) noexcept {
  switch (policy) {
    case OrderPolicy::weft: return "weft";
    case OrderPolicy::program: return "program";
    case OrderPolicy::breadth_first: return "breadth_first";
    case OrderPolicy::depth_first: return "depth_first";
    case OrderPolicy::greedy: return "greedy";
  }
  return "unknown";
}

TensorPlan plan_tensors(OpGraph const& graph, TensorPlanOptions const& options) {
  check(graph, options);
  Costless const costs;
  Problem const problem(graph, costs.model());
  TensorPlan plan{.resident_bytes = problem.resident_bytes()};
  if (options.policy == OrderPolicy::weft) {
    auto found = memory_order(problem);
    plan.order = std::move(found.order);
    plan.bound_bytes = found.bound;
  } else {
    plan.order = order_by(options.policy, problem);
    plan.bound_bytes = serial_bound(problem);
  }
  plan.live = serial_live(problem, plan.order);
  plan.live_bytes =
      plan.live.empty() ? problem.resident_bytes() : *std::max_element(plan.live.begin(), plan.live.end());
  plan.tensors = tensor_buffers(graph, plan.order, options.alignment);
  check_buffers(plan.tensors.buffers, {});  // so that none of the sums below overflows
  auto const good = static_cast<std::int64_t>(static_cast<double>(plan.live_bytes) * kGoodEnough);
  std::int64_t const enough = std::max(good, aligned_live(plan.tensors.buffers));
  plan.memory = plan_memory(plan.tensors.buffers, {.capacity = options.capacity.value_or(enough),
                                                   .time_limit = options.time_limit,
                                                   .threads = options.threads,
                                                   .stop = options.stop});
  return plan;
}

}  // namespace weft
