#pragma once

#include <chrono>
#include <memory>

#include "weft/stream.hpp"

namespace weft {

/// A point in a stream's queue. Copies share the point. Unrecorded events count as reached. Thread-safe.
class Event {
 public:
  Event();

  /// Marks everything enqueued on `stream` so far; replaces an earlier mark.
  void record(Stream const& stream);
  /// Work enqueued on `stream` from now on starts only after the mark. Does not block the caller.
  void wait_on(Stream const& stream) const;
  /// Blocks the calling thread until the mark is reached.
  void synchronize() const;
  [[nodiscard]] bool query() const noexcept;
  /// Time between this mark and a later one, both reached. @throws Error{invalid_argument} otherwise.
  [[nodiscard]] std::chrono::nanoseconds elapsed_until(Event const& later) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Work enqueued on `stream` from now on starts only after all that was enqueued on `other` so far. Does not block the
/// caller.
void follow(Stream const& stream, Stream const& other);

}  // namespace weft
