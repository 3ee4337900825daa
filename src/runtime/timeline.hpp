#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "weft/stream.hpp"

namespace weft {

/// A thread's clock, and how the thread waits. A simulation installs its own in place of the machine's, for the thread
/// that runs it: streams, Works, Events and everything made of them then live on a virtual clock, unchanged.
class Timeline {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Timeline() = default;
  Timeline(Timeline const&) = delete;
  Timeline& operator=(Timeline const&) = delete;
  virtual ~Timeline() = default;

  [[nodiscard]] virtual TimePoint now() noexcept = 0;
  /// Returns once wake(`address`) is called or `until` has come; or for no reason, as a futex does.
  virtual void wait(void const* address, TimePoint until) noexcept = 0;
  virtual void wake(void const* address) noexcept = 0;
  /// Does what Stream::cpu() does.
  [[nodiscard]] virtual std::shared_ptr<Stream::Impl> make_stream(StreamOptions const& options) = 0;

  /// The calling thread's timeline; null stands for the machine's clock and the kernel.
  [[nodiscard]] static Timeline* current() noexcept { return installed; }
  /// While it lives, `timeline` is the calling thread's.
  class Scope {
   public:
    explicit Scope(Timeline& timeline) noexcept : before_(installed) { installed = &timeline; }
    ~Scope() { installed = before_; }
    Scope(Scope const&) = delete;
    Scope& operator=(Scope const&) = delete;

   private:
    Timeline* before_;
  };

 private:
  inline static thread_local constinit Timeline* installed = nullptr;
};

[[nodiscard]] inline Timeline::TimePoint now() noexcept {
  auto* const timeline = Timeline::current();
  return timeline == nullptr ? std::chrono::steady_clock::now() : timeline->now();
}

/// wait() and notify_all() of std::atomic, on the calling thread's timeline.
template <typename T>
void wait_while(std::atomic<T> const& word, T seen, std::memory_order order = std::memory_order_seq_cst) noexcept {
  auto* const timeline = Timeline::current();
  if (timeline == nullptr) return word.wait(seen, order);
  while (word.load(order) == seen) timeline->wait(&word, Timeline::TimePoint::max());
}
template <typename T>
void notify_all(std::atomic<T>& word) noexcept {
  auto* const timeline = Timeline::current();
  timeline == nullptr ? word.notify_all() : timeline->wake(&word);
}

}  // namespace weft
