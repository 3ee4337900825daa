#pragma once

#include <functional>

#include "common/board.hpp"
#include "weft/stream.hpp"
#include "weft/work.hpp"

namespace weft::perf {

/// Measures how much of an asynchronous operation's time is hidden by computation on the caller's thread, as OSU's
/// benchmarks of non-blocking collectives define it: max(0, 100 - (overall - compute) / communication * 100).
class OverlapMeter {
 public:
  explicit OverlapMeter(Board& board);

  /// Collective. `start` enqueues the operation on the given stream. The computation lasts as long as the operation
  /// takes alone. Returns percent, from the slowest rank's times; the best of `rounds`.
  [[nodiscard]] double measure(std::function<Work(Stream const&)> const& start, int iterations, int rounds);

 private:
  void compute(std::size_t turns);
  [[nodiscard]] double timed(int iterations, std::function<void()> const& body);
  [[nodiscard]] std::size_t turns_lasting(double seconds);

  Board& board_;
  Stream stream_;
  double state_ = 1;
};

}  // namespace weft::perf
