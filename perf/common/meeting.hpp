#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

namespace weft::perf {

/// How ranks that can reach one another already agree on shared memory. Because it depends on no library, one stopwatch
/// can time Weft, an MPI program and PyTorch alike.
struct Meeting {
  int rank = 0;
  int ranks = 1;
  std::function<void(std::span<std::int64_t>)> broadcast;  ///< collective: every rank gets rank 0's values
  std::function<void()> barrier;                           ///< collective
  bool one_host = true;                                    ///< all ranks can share memory
  /// Used if they cannot. Collective: every rank gets every rank's values, in rank order.
  std::function<void(std::span<double const>, std::span<double>)> all_gather{};
  std::chrono::milliseconds patience{60'000};  ///< how long to wait for a rank that does not come
};

}  // namespace weft::perf
