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

/// The stream that a wrapper's library computes on: torch's current one where the wrapper was made. Whoever has another
/// current stream since, as autograd's threads may, is put in order with it by events; nobody waits on the host. On the
/// CPU it is nothing, and its functions do nothing. Not thread-safe.
class ComputeStream {
 public:
  /// @throws c10::NotImplementedError for a GPU where Weft was built without CUDA.
  explicit ComputeStream(c10::Device device);

  /// For the library's options; empty on the CPU.
  [[nodiscard]] std::optional<Stream> const& weft() const noexcept { return weft_; }

  /// What comes on it from now on follows all that is on the calling thread's current stream so far.
  void follow_current();
  /// What comes on the calling thread's current stream from now on follows all that is on it so far.
  void lead_current();

  /// Calls `body`, which the library enqueues for, between what the calling thread enqueues before and after.
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
