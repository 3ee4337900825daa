#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "scheduler/graph/dependencies.hpp"
#include "scheduler/graph/list_order.hpp"
#include "weft/error.hpp"
#include "weft/op_graph.hpp"

namespace weft {

namespace {

constexpr std::size_t kMostNamed = 8;

/// A cycle among the operators outside the order, none of which can be next: following what each waits for leads back
/// to one that was met before.
std::vector<OpId> cycle_among(Dependencies const& dependencies, std::vector<OpId> const& order) {
  std::vector<bool> placed(dependencies.size(), false);
  for (OpId const op : order) placed[static_cast<std::size_t>(op)] = true;
  auto const stuck = [&](OpId op) { return !placed[static_cast<std::size_t>(op)]; };
  OpId at = 0;
  while (!stuck(at)) ++at;
  std::vector<OpId> path;
  std::vector<bool> met(dependencies.size(), false);
  while (!met[static_cast<std::size_t>(at)]) {
    met[static_cast<std::size_t>(at)] = true;
    path.push_back(at);
    auto const before = dependencies.before(at);
    at = *std::find_if(before.begin(), before.end(), stuck);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::reverse(path.begin(), path.end());
  return path;
}

[[noreturn]] void refuse_cycle(OpGraph const& graph, std::vector<OpId> const& cycle) {
  std::string names;
  for (std::size_t i = 0; i < std::min(cycle.size(), kMostNamed); ++i) {
    auto const op = static_cast<std::size_t>(cycle[i]);
    names += fmt::format("{}{} ({})", i > 0 ? ", " : "", op, graph.ops[op].name);
  }
  if (cycle.size() > kMostNamed) names += fmt::format(" and {} more", cycle.size() - kMostNamed);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("graph {}: operators that wait for one another in a cycle: {}", graph.name, names));
}

}  // namespace

std::vector<OpId> topological_order(OpGraph const& graph) {
  Dependencies const dependencies(graph);
  auto order = list_order(dependencies, graph.ops.size(), [](OpId op) { return op; });
  if (order.size() < graph.ops.size()) refuse_cycle(graph, cycle_among(dependencies, order));
  return order;
}

}  // namespace weft
