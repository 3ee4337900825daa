#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft_simulate/settings.hpp"

namespace weft::simulate_tool {

/// What one candidate takes for one size.
struct Point {
  double seconds = 0;
  double formula_s = 0;   ///< its documented cost on a flat network of the slowest links; "by hosts" has none
  std::size_t chunk = 0;  ///< "by hosts" chooses its own
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  ///< on the wire, of all ranks
  int failed_ranks = 0;     ///< with Settings::losses: ranks that end with an error, the last one after `seconds`
  std::string error{};      ///< the error of the first of them
};

struct Row {
  std::size_t bytes = 0;
  double bound_s = 0;         ///< the least time possible on this network
  std::vector<Point> points;  ///< one for each of Settings::candidates
  std::size_t best = 0;       ///< index of the best point in which no rank fails; points.size() if there is none
};

/// From this size on, up to the next crossover's size, `candidate` is the best of Settings::candidates.
struct Crossover {
  std::size_t from_bytes = 0;
  std::size_t candidate = 0;
};

/// The least time that an operation of `bytes` can take: for each group of ranks, the time of the bytes that must cross
/// its border at its links' speed, after one latency. Stragglers are ignored: the bound is for a healthy network.
[[nodiscard]] double bound_s(sim::Topology const& topology, Operation operation, double bytes);

/// Predicts all rows; calls `tell` for each row as soon as it is known. @throws Error{invalid_argument} for settings
/// whose simulation would never end.
[[nodiscard]] std::vector<Row> predict(Settings const& settings, std::function<void(Row const&)> const& tell);
[[nodiscard]] std::vector<Crossover> crossovers(std::vector<Row> const& rows);

}  // namespace weft::simulate_tool
