#pragma once

#include <chrono>
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
  bool one_host = true;                                    ///< all ranks can share memory
  /// Where they cannot. Collective: every rank gets every rank's values, in rank order.
  std::function<void(std::span<double const>, std::span<double>)> all_gather{};
  std::chrono::milliseconds patience{60'000};  ///< with a rank that does not come
};

}  // namespace weft::perf
