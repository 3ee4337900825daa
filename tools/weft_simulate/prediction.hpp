#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft_simulate/settings.hpp"

namespace weft::simulate_tool {

/// What one way takes for one size.
struct Point {
  double seconds = 0;
  double formula_s = 0;   ///< its documented cost on a flat network of the slowest links; by hosts has none
  std::size_t chunk = 0;  ///< by hosts has its own
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  ///< on the wire, of all ranks
  int failed_ranks = 0;     ///< with Settings::losses: those that end with an error, the last of them after `seconds`
  std::string error{};      ///< what the first of them says
};

struct Row {
  std::size_t bytes = 0;
  double bound_s = 0;         ///< nothing can take less on this network
  std::vector<Point> points;  ///< of Settings::candidates
  std::size_t best = 0;       ///< of those in which no rank fails; points.size() where there is none
};

/// From this size on, up to the next crossover's, one of Settings::candidates is the best.
struct Crossover {
  std::size_t from_bytes = 0;
  std::size_t candidate = 0;
};

/// The least that an operation of `bytes` can take: for each group of ranks the bytes that have to cross its border, at
/// its links' speed, after the first one's latency. Stragglers are left out: the bound is that of a healthy network.
[[nodiscard]] double bound_s(sim::Topology const& topology, Operation operation, double bytes);

/// `tell` hears of each row as soon as it is there. @throws Error{invalid_argument} for what would take forever
[[nodiscard]] std::vector<Row> predict(Settings const& settings, std::function<void(Row const&)> const& tell);
[[nodiscard]] std::vector<Crossover> crossovers(std::vector<Row> const& rows);

}  // namespace weft::simulate_tool
