#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "weft/bucketer.hpp"
#include "weft/event.hpp"

namespace weft {

/// Times a collective on a GPU: when it was ready, began and ended. These are events in streams, which are not read
/// before all of it is over.
class DeviceTiming {
 public:
  /// What the collective sends is ready where `compute` is now.
  explicit DeviceTiming(Stream const& compute) { ready_.record(compute); }
  /// What comes to `stream` next waits until that is ready; only then the collective counts as started.
  void start(Stream const& stream) {
    ready_.wait_on(stream);
    started_.record(stream);
  }
  void finish(Stream const& stream) { finished_.record(stream); }
  /// What comes to `stream` from now on comes after all three events: whoever has waited for that may read them.
  void wait_on(Stream const& stream) const { finished_.wait_on(stream); }

  /// Time on the GPU from start() to finish(). @throws as read() does.
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(started_.elapsed_until(finished_)).count();
  }
  /// The times as the host's clock has them, on which `origin` was reached at `at`. @throws Error{invalid_argument}
  /// where one of the events is not reached.
  [[nodiscard]] BucketTiming read(std::size_t bytes, Event const& origin,
                                  std::chrono::steady_clock::time_point at) const {
    return {bytes, at + origin.elapsed_until(ready_), at + origin.elapsed_until(started_),
            at + origin.elapsed_until(finished_)};
  }

 private:
  Event ready_, started_, finished_;
};

/// A transfer that was timed.
struct TimedTransfer {
  std::size_t bytes;
  DeviceTiming timing;
};

/// DeviceTiming::read() of each.
[[nodiscard]] inline std::vector<BucketTiming> read_all(std::vector<TimedTransfer> const& transfers,
                                                        Event const& origin, std::chrono::steady_clock::time_point at) {
  std::vector<BucketTiming> timings;
  for (TimedTransfer const& one : transfers) timings.push_back(one.timing.read(one.bytes, origin, at));
  return timings;
}

}  // namespace weft
