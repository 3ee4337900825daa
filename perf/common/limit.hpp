#pragma once

#include <cstddef>
#include <vector>

#include "common/board.hpp"
#include "common/cases.hpp"

namespace weft::perf {

/// targets[t][i] = sum over s of sources[s][i], for i in [first, last): the loads and stores of a reduction, nothing
/// else. One source and one target make it a copy.
void sum_to_all(std::vector<float*> const& sources, std::vector<float*> const& targets, std::size_t first,
                std::size_t last, bool streaming);

/// The least a collective can take on this machine: its loads and stores by all ranks at once on memory they share,
/// freshly written by its owner, with nothing to wait for. Never less than one exchange of flags.
class PhysicalLimit {
 public:
  /// Collective. For messages up to `max_bytes` per rank.
  PhysicalLimit(Communicator& communicator, Board& board, Case const& what, std::size_t max_bytes, int root);

  /// Collective: seconds for the loads and stores of a message of `bytes`, slowest rank, best of the iterations.
  [[nodiscard]] double traffic(std::size_t bytes, int iterations);

 private:
  [[nodiscard]] double measure(std::size_t elements, int iterations, bool streaming);

  Board& board_;
  Case const& case_;
  int root_;
  SharedArena arena_;
  std::vector<float*> sends_;
  std::vector<float*> recvs_;
};

/// Collective: seconds of one exchange of flags between all ranks (each writes its line and reads the others'), best of
/// several.
[[nodiscard]] double flag_exchange(Board& board);

}  // namespace weft::perf
