#include "weft_memory/graph_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tool_output/byte_unit.hpp"
#include "weft_memory/caching_allocator.hpp"

namespace weft::memory_tool {

namespace {

using tool_output::ByteUnit;
using Clock = std::chrono::steady_clock;

/// "1.234", without the unit.
std::string in(ByteUnit unit, std::int64_t bytes) {
  return fmt::format("{:.{}f}", static_cast<double>(bytes) / unit.bytes, unit.digits(3));
}

/// In which the least of all orders has digits.
ByteUnit unit_of(std::vector<OrderedMemory> const& orders) {
  std::int64_t least = orders.front().plan.live_bytes;
  for (auto const& order : orders) least = std::min({least, order.plan.live_bytes, order.plan.memory.bytes});
  return tool_output::byte_unit_for(static_cast<double>(least));
}

double ratio(std::int64_t bytes, std::int64_t of) {
  return of > 0 ? static_cast<double>(bytes) / static_cast<double>(of) : 1;
}

OrderedMemory plan_order(OpGraph const& graph, TensorPlanOptions options, OrderPolicy policy) {
  options.policy = policy;
  auto const begin = Clock::now();
  OrderedMemory planned{.policy = policy, .plan = plan_tensors(graph, options)};
  planned.planning_s = std::chrono::duration<double>(Clock::now() - begin).count();
  planned.cached_bytes = cached_bytes(planned.plan.tensors.buffers);
  return planned;
}

}  // namespace

std::vector<OrderedMemory> plan_orders(OpGraph const& graph, TensorPlanOptions const& options) {
  auto const deadline = Clock::now() + options.time_limit;
  TensorPlanOptions shared = options;
  std::vector<OrderedMemory> orders;
  for (int i = 0; i < kOrderPolicies; ++i) {
    auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    shared.time_limit = std::max(left, std::chrono::milliseconds(0)) / (kOrderPolicies - i);
    orders.push_back(plan_order(graph, shared, static_cast<OrderPolicy>(i)));
  }
  return orders;
}

std::string orders_table(OpGraph const& graph, std::vector<OrderedMemory> const& orders, std::string const& verdict) {
  TensorPlan const& weft = orders.front().plan;
  ByteUnit const unit = unit_of(orders);
  std::string text =
      fmt::format("{}: {} operators, {} buffers, {} {} of them there all the time\n", graph.name, graph.ops.size(),
                  weft.tensors.buffers.size(), in(unit, weft.resident_bytes), unit.name);
  auto const in_unit = [&](char const* column) { return fmt::format("{} {}", column, unit.name); };
  text += fmt::format("{:<13} {:>11} {:>13} {:>8} {:>13} {:>10}\n", "order", in_unit("live"), in_unit("offsets"),
                      "ratio", in_unit("caching"), "planned s");
  for (auto const& [policy, plan, cached, seconds] : orders) {
    text +=
        fmt::format("{:<13} {:>11} {:>13} {:>8.4f} {:>13} {:>10.2f}\n", to_string(policy), in(unit, plan.live_bytes),
                    in(unit, plan.memory.bytes), ratio(plan.memory.bytes, plan.live_bytes), in(unit, cached), seconds);
  }
  text += fmt::format("no order takes less than {} {} live: weft's is {}; {}\n", in(unit, weft.bound_bytes), unit.name,
                      weft.bound_bytes == weft.live_bytes
                          ? "the best there is"
                          : fmt::format("{:.4f} of that", ratio(weft.live_bytes, weft.bound_bytes)),
                      verdict);
  return text;
}

nlohmann::json orders_json(OpGraph const& graph, std::vector<OrderedMemory> const& orders,
                           std::optional<std::int64_t> capacity, std::string const& verdict) {
  nlohmann::json json{{"graph", graph.name},
                      {"operators", graph.ops.size()},
                      {"buffers", orders.front().plan.tensors.buffers.size()},
                      {"capacity", capacity ? nlohmann::json(*capacity) : nlohmann::json()},
                      {"resident_bytes", orders.front().plan.resident_bytes},
                      {"bound_bytes", orders.front().plan.bound_bytes},
                      {"verdict", verdict}};
  for (auto const& [policy, plan, cached, seconds] : orders) {
    json["orders"].push_back({{"name", to_string(policy)},
                              {"live_bytes", plan.live_bytes},
                              {"plan_bytes", plan.memory.bytes},
                              {"caching_bytes", cached},
                              {"planning_s", seconds}});
  }
  return json;
}

Problem buffer_table(TensorPlan const& plan) {
  Problem table{.columns = {"id", "lower", "upper", "size", "alignment"}, .rows = {}, .buffers = plan.tensors.buffers};
  for (auto const& buffer : table.buffers) {
    std::string name = buffer.name;
    std::replace(name.begin(), name.end(), ',', ';');
    table.rows.push_back({std::move(name), std::to_string(buffer.life.begin), std::to_string(buffer.life.end),
                          std::to_string(buffer.bytes), std::to_string(buffer.alignment)});
  }
  return table;
}

}  // namespace weft::memory_tool
