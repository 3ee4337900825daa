#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/board.hpp"
#include "common/operands.hpp"
#include "weft/event.hpp"
#include "weft/stream.hpp"

namespace weft::perf {

/// One of the things compared at one message size: what enqueues a library's call on its operands.
struct DeviceSide {
  std::string name;
  Operands on;
  std::function<void()> enqueue;
  int calls = 1;  ///< how many collectives one enqueue() makes
};

/// Seconds per collective.
struct DeviceSample {
  double device = 0;  ///< between events on the stream, before the first call and behind the last
  double host = 0;    ///< for which the calling thread was busy enqueueing
};

/// Times calls on a GPU's stream. Collective: every rank makes the same calls. There is no wait for the GPU between two
/// calls of a batch.
class DeviceTimer {
 public:
  DeviceTimer(Board& board, Stream const& stream, Across across) : board_(board), stream_(stream), across_(across) {}

  /// `calls` enqueue()s, then waits for them.
  void warm_up(DeviceSide const& side, int calls);
  /// A batch of `iterations` enqueue()s.
  [[nodiscard]] DeviceSample measure(DeviceSide const& side, int iterations);

 private:
  Board& board_;
  Stream stream_;
  Across across_;
  Event before_;
  Event after_;
};

/// The sides of one size, and their best results over the rounds.
class DeviceRounds {
 public:
  explicit DeviceRounds(std::vector<DeviceSide> sides) : sides_(std::move(sides)), best_(sides_.size()) {}

  [[nodiscard]] std::vector<DeviceSide> const& sides() const noexcept { return sides_; }
  void warm_up(DeviceTimer& timer, int calls);
  /// Measures every side once; each round begins with another side.
  void measure(DeviceTimer& timer, int iterations);
  /// The best of the rounds so far, separately for each figure.
  [[nodiscard]] DeviceSample best(std::size_t side) const { return best_[side]; }

 private:
  std::vector<DeviceSide> sides_;
  std::vector<DeviceSample> best_;
  std::size_t rounds_ = 0;
};

}  // namespace weft::perf
