#pragma once

#include <memory>

#include "collectives/backend.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Makes the back ends of all communicators that a thread creates, in place of create_backend(). A simulation installs
/// one, since its ranks are on no host; it replaces the clock and the streams too, see runtime/timeline.hpp.
class BackendMaker {
 public:
  BackendMaker() = default;
  BackendMaker(BackendMaker const&) = delete;
  BackendMaker& operator=(BackendMaker const&) = delete;
  virtual ~BackendMaker() = default;

  /// Collective over the bootstrap.
  [[nodiscard]] virtual std::unique_ptr<Backend> create(Bootstrap& bootstrap, CommunicatorOptions const& options) = 0;

  /// The calling thread's maker; null: none.
  [[nodiscard]] static BackendMaker* current() noexcept { return installed; }
  /// While a Scope lives, `maker` is the calling thread's.
  class Scope {
   public:
    explicit Scope(BackendMaker& maker) noexcept : before_(installed) { installed = &maker; }
    ~Scope() { installed = before_; }
    Scope(Scope const&) = delete;
    Scope& operator=(Scope const&) = delete;

   private:
    BackendMaker* before_;
  };

 private:
  inline static thread_local constinit BackendMaker* installed = nullptr;
};

}  // namespace weft
