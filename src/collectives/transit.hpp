#pragma once

#include <cstddef>

namespace weft {

/// A message on its way. What it moves is only touched by advance(). One thread at a time for all of one communicator.
class Transit {
 public:
  Transit() = default;
  virtual ~Transit() = default;
  Transit(Transit const&) = delete;
  Transit& operator=(Transit const&) = delete;

  /// Moves what can be moved now; true once everything has. @throws Error as Backend::transfer() does.
  virtual bool advance() = 0;
  /// Ends a receive of which advance() has moved nothing, as if it had never begun: what has come meanwhile is there
  /// for the next. False, and nothing happens, when something was moved, and for sends that have begun. Not to be
  /// advanced afterwards.
  [[nodiscard]] virtual bool withdraw() = 0;
  /// The message's size, once it is through: of one that was received "up to" some size what the sender gave it.
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
};

}  // namespace weft
