#include "runtime/work_state.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/futex.hpp"
#include "runtime/timeline.hpp"

namespace weft {

using Clock = std::chrono::steady_clock;

void Work::State::start() noexcept {
  timings.started = weft::now();
}

void Work::State::complete(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  timings.finished = weft::now();
  if (word_.exchange(kDone, std::memory_order_acq_rel) == kPendingWithWaiters) futex_wake_all(word_);
}

bool Work::State::done_or_announce_waiter() const noexcept {
  auto seen = kPending;
  // Where the exchange fails, `seen` is kDone, or kPendingWithWaiters because another waiter has announced itself.
  if (word_.compare_exchange_strong(seen, kPendingWithWaiters)) return false;
  return seen == kDone;
}

bool Work::State::may_not_sleep() const noexcept {
  // The second load finds a device that was attached just before the announcement: attach() saw no waiter to wake.
  return device_.load() != nullptr || done_or_announce_waiter() || device_.load() != nullptr;
}

bool Work::State::look() noexcept {
  if (done()) return true;
  auto const* const device = this->device();
  if (device != nullptr && !device->is_captured() && device->reached()) complete_once(device->error());
  return done();
}

// Asks the device without pause at first, as the answer may be near; later naps in between, from which complete() wakes
// it.
bool Work::State::wait_for_device(Clock::time_point deadline) noexcept {
  constexpr int kQuickLooks = 64;
  constexpr auto kNap = std::chrono::microseconds(50);
  for (int looks = 0; !look(); ++looks) {
    auto const now = weft::now();
    if (now >= deadline) return false;
    if (looks < kQuickLooks) {
      std::this_thread::yield();
    } else if (!done_or_announce_waiter()) {
      futex_wait(word_, kPendingWithWaiters, std::min(deadline, now + kNap));
    }
  }
  return true;
}

void Work::State::attach(std::shared_ptr<DeviceCompletion const> device) noexcept {
  device_owner_ = std::move(device);
  // Sequentially consistent, as are the loads and the exchange in may_not_sleep(): either this thread sees the waiter,
  // or the waiter sees the device.
  device_.store(device_owner_.get());
  auto seen = kPendingWithWaiters;
  // The word changes, so that a waiter that is about to sleep does not. Waiters ask the device from now on.
  if (word_.compare_exchange_strong(seen, kPending)) futex_wake_all(word_);
}

void Work::State::wait() noexcept {
  while (!may_not_sleep()) futex_wait(word_, kPendingWithWaiters);
  if (!done()) static_cast<void>(wait_for_device(Clock::time_point::max()));
}

bool Work::State::wait_for(std::chrono::nanoseconds limit) noexcept {
  if (done()) return true;
  auto const now = weft::now();
  if (limit > Clock::time_point::max() - now) {  // e.g. nanoseconds::max(): for ever
    wait();
    return true;
  }
  auto const deadline = now + limit;
  while (!may_not_sleep()) {
    if (weft::now() >= deadline) return false;
    futex_wait(word_, kPendingWithWaiters, deadline);
  }
  return done() || wait_for_device(deadline);
}

bool Work::State::demand() const noexcept {
  if (!held_back_ || done()) return true;
  auto const launcher = launcher_.lock();
  return launcher == nullptr || launcher->launch(*this);
}

Work enqueue_work(Stream const& stream, std::function<void()> operation) {
  auto state = std::make_shared<Work::State>();
  state->enqueue();
  stream.impl().launch_deferred();
  enqueue_work(stream.impl(), std::move(operation), state);
  return Work{std::move(state)};
}

void enqueue_work(Stream::Impl& stream, std::function<void()> operation, std::shared_ptr<Work::State> state) {
  stream.enqueue([state = std::move(state), operation = std::move(operation)]() mutable {
    state->start();
    std::exception_ptr error;
    try {
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    operation = nullptr;
    state->complete(std::move(error));
  });
}

}  // namespace weft
