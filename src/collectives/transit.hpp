#pragma once

#include <cstddef>

namespace weft {

/// A message on its way, see Backend::begin(). Only advance() touches its memory. For all messages of one communicator,
/// one thread at a time.
class Transit {
 public:
  Transit() = default;
  virtual ~Transit() = default;
  Transit(Transit const&) = delete;
  Transit& operator=(Transit const&) = delete;

  /// Moves what can be moved now; true once all has been moved. @throws Error as Backend::transfer() does.
  virtual bool advance() = 0;
  /// Ends a receive of which advance() has moved nothing, as if it had never begun: the next receive gets what has come
  /// meanwhile. True: it must not be advanced any more. False, and nothing happens, where something was moved already,
  /// or where a send has begun.
  [[nodiscard]] virtual bool withdraw() = 0;
  /// The message's size once it is through; where it was received "up to" a size, the size that the sender gave it.
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
};

}  // namespace weft
