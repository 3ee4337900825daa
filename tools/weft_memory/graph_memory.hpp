#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/memory_planner.hpp"
#include "weft/op_graph.hpp"
#include "weft_memory/problem_csv.hpp"

namespace weft::memory_tool {

/// The memory that a graph's step takes when its operators run in one order.
struct OrderedMemory {
  OrderPolicy policy{};
  TensorPlan plan{};
  std::int64_t cached_bytes = 0;  ///< with an allocator that does not plan (caching_allocator.hpp)
  double planning_s = 0;
};

/// Plans by every policy, Weft's first. The time limit is for all searches together; each may use its share of what is
/// left.
[[nodiscard]] std::vector<OrderedMemory> plan_orders(OpGraph const& graph, TensorPlanOptions const& options);

/// A table for people.
[[nodiscard]] std::string orders_table(OpGraph const& graph, std::vector<OrderedMemory> const& orders,
                                       std::string const& verdict);
[[nodiscard]] nlohmann::json orders_json(OpGraph const& graph, std::vector<OrderedMemory> const& orders,
                                         std::optional<std::int64_t> capacity, std::string const& verdict);

/// A plan's buffers in the form of the table that read_problem() reads, named after their tensors.
[[nodiscard]] Problem buffer_table(TensorPlan const& plan);

}  // namespace weft::memory_tool
