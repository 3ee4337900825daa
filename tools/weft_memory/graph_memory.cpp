#include "weft_memory/graph_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "weft_memory/caching_allocator.hpp"

namespace weft::memory_tool {

namespace {

double gigabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

double ratio(std::int64_t bytes, std::int64_t of) {
  return of > 0 ? static_cast<double>(bytes) / static_cast<double>(of) : 1;
}

OrderedMemory plan_order(OpGraph const& graph, TensorPlanOptions options, OrderPolicy policy) {
  options.policy = policy;
  auto const begin = std::chrono::steady_clock::now();
  OrderedMemory planned{.policy = policy, .plan = plan_tensors(graph, options)};
  planned.planning_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  planned.cached_bytes = cached_bytes(planned.plan.tensors.buffers);
  return planned;
}

}  // namespace

std::vector<OrderedMemory> plan_orders(OpGraph const& graph, TensorPlanOptions const& options) {
  std::vector<OrderedMemory> orders;
  for (int i = 0; i < kOrderPolicies; ++i) orders.push_back(plan_order(graph, options, static_cast<OrderPolicy>(i)));
  return orders;
}

std::string orders_table(OpGraph const& graph, std::vector<OrderedMemory> const& orders, std::string const& verdict) {
  TensorPlan const& weft = orders.front().plan;
  std::string text = fmt::format("{}: {} operators, {} buffers, {:.3f} GB of them there all the time\n", graph.name,
                                 graph.ops.size(), weft.tensors.buffers.size(), gigabytes(weft.resident_bytes));
  text += fmt::format("{:<14}{:>10}{:>12}{:>8}{:>13}{:>11}\n", "order", "live GB", "offsets GB", "ratio", "caching GB",
                      "planned s");
  for (auto const& [policy, plan, cached, seconds] : orders) {
    text += fmt::format("{:<14}{:>10.3f}{:>12.3f}{:>8.4f}{:>13.3f}{:>11.2f}\n", to_string(policy),
                        gigabytes(plan.live_bytes), gigabytes(plan.memory.bytes),
                        ratio(plan.memory.bytes, plan.live_bytes), gigabytes(cached), seconds);
  }
  text += fmt::format("no order takes less than {:.3f} GB live: weft's is {}; {}\n", gigabytes(weft.bound_bytes),
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
