#pragma once

#include <functional>

#include "weft/stream.hpp"

namespace weft {

/// What a device implements to be a Stream.
class Stream::Impl {
 public:
  virtual ~Impl() = default;
  virtual void enqueue(std::function<void()> task) = 0;
  virtual void synchronize() = 0;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// True when the calling thread is this stream's worker (so that it must not wait for itself).
  [[nodiscard]] virtual bool on_worker() const noexcept = 0;
};

}  // namespace weft
