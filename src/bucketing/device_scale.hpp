#pragma once

#include <map>
#include <memory>

#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft {

/// Multiplies memory on a GPU by factors that the host decides and that seldom change. Not thread-safe.
class DeviceScale {
 public:
  DeviceScale();
  ~DeviceScale();
  DeviceScale(DeviceScale const&) = delete;
  DeviceScale& operator=(DeviceScale const&) = delete;

  /// memory ← factor·memory, for f32, bf16 or f16, in the order of `stream`, which must be the same in every call.
  /// Waits for the stream where the factor has changed, and the first time for this memory.
  void scale(BufferView const& memory, float factor, Stream const& stream);
  /// Forgets the memory scaled so far, which is no longer there.
  void forget();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
