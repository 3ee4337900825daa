#pragma once

#include <chrono>
#include <cstddef>

#include "weft/bucketer.hpp"
#include "weft/event.hpp"

namespace weft {

/// When a collective on a GPU was ready, began and ended: events in streams, which nobody asks until all of it is over.
class DeviceTiming {
 public:
  /// What it sends is ready where `compute` is now.
  explicit DeviceTiming(Stream const& compute) { ready_.record(compute); }
  void start(Stream const& stream) { started_.record(stream); }
  void finish(Stream const& stream) { finished_.record(stream); }
  /// What comes to `stream` from now on comes after all three: who has waited for that may read.
  void wait_on(Stream const& stream) const { finished_.wait_on(stream); }

  /// `origin` was reached at `at`. @throws Error{invalid_argument} where one of them is not reached.
  [[nodiscard]] BucketTiming read(std::size_t bytes, Event const& origin,
                                  std::chrono::steady_clock::time_point at) const {
    return {bytes, at + origin.elapsed_until(ready_), at + origin.elapsed_until(started_),
            at + origin.elapsed_until(finished_)};
  }

 private:
  Event ready_, started_, finished_;
};

}  // namespace weft
