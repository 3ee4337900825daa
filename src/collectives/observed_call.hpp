#pragma once

#include <cstddef>
#include <memory>

#include "collectives/call.hpp"
#include "weft/call_observer.hpp"

namespace weft {

/// Tells observe_calls()'s observer when a call runs; of nothing where there is none.
class ObservedCall {
 public:
  ObservedCall() = default;
  /// Which is about to be enqueued by this thread. `bytes`: of all ranks together.
  ObservedCall(Operation operation, std::size_t bytes);

  /// Calls `body`, and tells before and after.
  template <typename Body>
  void run(Body const& body) const {
    if (!seen_) return body();
    struct Finished {
      CallObserver::Call& call;
      ~Finished() { call.finished(); }
    };
    seen_->started();
    Finished const finished{*seen_};
    body();
  }

 private:
  std::shared_ptr<CallObserver::Call> seen_;
};

/// Of all ranks' parts together, of `bytes` each, where there are parts.
[[nodiscard]] std::size_t bytes_of_all(Operation operation, std::size_t bytes, int ranks) noexcept;

}  // namespace weft
