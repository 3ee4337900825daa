#pragma once

#include <cstddef>
#include <memory>

#include "collectives/call.hpp"
#include "weft/call_observer.hpp"

namespace weft {

/// Tells the observer that observe_calls() has set when a call runs. Without an observer it does nothing.
class ObservedCall {
 public:
  ObservedCall() = default;
  /// For a call that this thread is about to enqueue. `bytes`: of all ranks together.
  ObservedCall(Operation operation, std::size_t bytes);

  /// Calls `body`, and tells the observer before and after.
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

/// Bytes of an operation's largest buffer: `ranks` parts of `bytes` each where it has parts, else `bytes`.
[[nodiscard]] std::size_t bytes_of_all(Operation operation, std::size_t bytes, int ranks) noexcept;

}  // namespace weft
