#pragma once

#include <string>
#include <vector>

namespace weft {

/// Which host each rank is on, and what that is called.
struct RankHosts {
  std::vector<int> numbers;        ///< by rank, from 0, in order of the hosts' first ranks
  std::vector<std::string> names;  ///< by rank

  [[nodiscard]] bool are_several() const noexcept;
  [[nodiscard]] bool are_apart(int a, int b) const noexcept;
  /// For the end of a report: " (rank 3 is on node7)". Nothing where all ranks are on one host, or none is meant.
  [[nodiscard]] std::string where_is(int rank) const;
};

}  // namespace weft
