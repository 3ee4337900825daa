#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace weft::perf {

/// How ranks that already know one another agree on shared memory. The seam that lets one stopwatch time Weft, an MPI
/// program and PyTorch alike: it knows none of them.
struct Meeting {
  int rank = 0;
  int ranks = 1;
  std::function<void(std::span<std::int64_t>)> broadcast;  ///< collective: every rank gets rank 0's values
  std::function<void()> barrier;                           ///< collective
};

}  // namespace weft::perf
