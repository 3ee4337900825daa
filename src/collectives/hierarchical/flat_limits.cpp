#include "collectives/hierarchical/flat_limits.hpp"

#include <algorithm>

#include "collectives/host_order.hpp"

namespace weft::hierarchical {

Pattern pattern_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_gather:
    case Operation::all_gather_v:
    case Operation::gather:
    case Operation::gather_v: return Pattern::gather;
    case Operation::broadcast:
    case Operation::scatter:
    case Operation::scatter_v: return Pattern::spread;
    case Operation::all_to_all:
    case Operation::all_to_all_v: return Pattern::exchange;
    default: return Pattern::combine;
  }
}

WayCost WayCost::through(std::size_t few, double few_s, std::size_t many, double many_s) noexcept {
  auto const beta = std::max((many_s - few_s) / static_cast<double>(many - few), 0.0);
  return {std::max(few_s - beta * static_cast<double>(few), 0.0), beta};
}

std::size_t crossover(WayCost const& flat, WayCost const& by_hosts, std::size_t most) noexcept {
  auto const gained = by_hosts.alpha_s - flat.alpha_s;
  auto const lost_per_byte = flat.beta_s_per_byte - by_hosts.beta_s_per_byte;
  if (gained <= 0) return 0;
  if (lost_per_byte * static_cast<double>(most) <= gained) return most;
  return static_cast<std::size_t>(gained / lost_per_byte);
}

FlatLimits limits_of(LevelCosts const& costs, std::size_t ranks) noexcept {
  FlatLimits limits;
  for (auto const pattern : kPatterns) {
    auto const most = pattern == Pattern::combine ? most_combined_at_once(ranks) : kMostMovedFlat;
    limits[pattern] =
        costs.measured[pattern] ? crossover(costs.flat[pattern], costs.by_hosts[pattern], most) : kAssumedLimit;
  }
  return limits;
}

}  // namespace weft::hierarchical
