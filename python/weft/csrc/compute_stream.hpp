#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "weft/stream.hpp"

namespace weft::torch_backend {

/// The stream on which the library computes for a wrapper: torch's current stream when the wrapper was made. Threads
/// with another current stream, as autograd's may have, are put in order with it by events, without waiting on the
/// host. On the CPU there is no stream, and the functions do nothing. Not thread-safe.
class ComputeStream {
 public:
  /// @throws c10::NotImplementedError for a GPU if Weft was built without CUDA.
  explicit ComputeStream(c10::Device device);

  /// For the library's options; empty on the CPU.
  [[nodiscard]] std::optional<Stream> const& weft() const noexcept { return weft_; }

  /// Makes what is enqueued on it from now on follow everything on the calling thread's current stream so far.
  void follow_current();
  /// Makes what is enqueued on the calling thread's current stream from now on follow everything on it so far.
  void lead_current();

  /// Calls `body`. What the library enqueues for it runs between what the calling thread enqueues before and after.
  template <typename Body>
  auto in_order(Body&& body) {
    follow_current();
    if constexpr (std::is_void_v<decltype(body())>) {
      std::forward<Body>(body)();
      lead_current();
    } else {
      auto result = std::forward<Body>(body)();
      lead_current();
      return result;
    }
  }

 private:
  struct OnGpu {
    c10::impl::VirtualGuardImpl torch;
    c10::Stream home;
    c10::Event came;  ///< marks the current stream
    c10::Event left;  ///< marks home

    explicit OnGpu(c10::Device device);
  };
  std::optional<OnGpu> gpu_;
  std::optional<Stream> weft_;
};

}  // namespace weft::torch_backend
