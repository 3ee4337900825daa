#pragma once

#include <cstddef>
#include <vector>

#include "common/board.hpp"
#include "common/cases.hpp"

namespace weft::perf {

/// The least time that an operation can take on this machine: the time of its loads and stores, made by all ranks at
/// once on shared memory that its owners have just written, without any waiting. Never less than one exchange of flags.
class PhysicalLimit {
 public:
  /// Collective. For messages of up to `max_bytes` per rank.
  PhysicalLimit(Meeting const& meeting, Board& board, Case const& what, std::size_t max_bytes);

  /// Collective: seconds for a message of `bytes`, slowest rank, best of the iterations.
  [[nodiscard]] double seconds(std::size_t bytes, int root);

 private:
  [[nodiscard]] double measure(std::size_t elements, int root, int iterations, bool streaming);

  Board& board_;
  Case const& case_;
  SharedArena arena_;
  std::vector<float*> sends_;
  std::vector<float*> recvs_;
  double exchange_;
};

/// Collective: seconds of one exchange of flags between all ranks (each writes its line and reads the others'), best of
/// several.
[[nodiscard]] double flag_exchange(Board& board);

}  // namespace weft::perf
