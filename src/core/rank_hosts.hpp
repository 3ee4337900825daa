#pragma once

#include <string>
#include <vector>

namespace weft {

/// Which host each rank is on, and what the host is called.
struct RankHosts {
  std::vector<int> numbers;        ///< by rank, from 0, in order of the hosts' first ranks
  std::vector<std::string> names;  ///< by rank
  bool one_machine = false;        ///< all ranks are on one machine, though it may count as several hosts

  [[nodiscard]] bool are_several() const noexcept;
  /// Whether what crosses hosts also leaves a machine.
  [[nodiscard]] bool are_several_machines() const noexcept { return are_several() && !one_machine; }
  [[nodiscard]] bool are_apart(int a, int b) const noexcept;
  /// For the end of a report: " (rank 3 is on node7)". Empty where all ranks are on one host, or `rank` is none.
  [[nodiscard]] std::string where_is(int rank) const;
};

}  // namespace weft
