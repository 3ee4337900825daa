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
  // Fails with kDone, or with kPendingWithWaiters: then somebody has announced already.
  if (word_.compare_exchange_strong(seen, kPendingWithWaiters, std::memory_order_acquire)) return false;
  return seen == kDone;
}

bool Work::State::look() noexcept {
  if (done()) return true;
  auto const* const device = this->device();
  if (device != nullptr && !device->is_captured() && device->reached()) complete_once(device->error());
  return done();
}

// Asks often while the answer is near; later sleeps in between, for whoever finds a failure wakes this up.
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
  device_.store(device_owner_.get(), std::memory_order_release);
  if (word_.load(std::memory_order_acquire) == kPendingWithWaiters)
    futex_wake_all(word_);  // they look there from now on
}

void Work::State::wait() noexcept {
  while (device() == nullptr && !done_or_announce_waiter()) futex_wait(word_, kPendingWithWaiters);
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
  while (device() == nullptr && !done_or_announce_waiter()) {
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
