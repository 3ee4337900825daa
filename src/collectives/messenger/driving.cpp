// Which thread moves messages on: one of those that wait for a request, or else the messenger's own.
#include <fmt/format.h>

#include <system_error>

#include "collectives/messenger/messenger_impl.hpp"

namespace weft {
namespace {

/// How long the messenger's own thread waits for another thread to wait for a request and drive.
constexpr auto kGrace = std::chrono::milliseconds(1);

}  // namespace

void Messenger::Impl::drive(bool in_background, std::function<bool()> const& until) {
  Call call;
  std::uint64_t seen = 0;
  {
    std::lock_guard const lock(mutex_);
    seen = changes_;
    call.contract.operation = Operation::receive;
    for (auto const& state : receives_) call = state->call;
    for (auto const& queue : outbound_) {
      if (!queue.empty()) call = queue.front()->call;
    }
    call.on_stream = in_background;
  }
  auto const ready = [&] {
    std::unique_lock lock(mutex_);
    progress();
    look_around();
    run_continuations(lock);
    // Where the pending requests have changed, so has the call to wait with: the caller begins anew.
    return closed_ || until() || changes_ != seen;
  };
  try {
    communicator->await(call, ready);
  } catch (...) {
    std::unique_lock lock(mutex_);
    fail_all(std::current_exception());
    run_continuations(lock);
  }
}

bool Messenger::Impl::wait(State const& state, Clock::time_point limit) {
  if (state.done.load()) return true;
  std::unique_lock lock(mutex_);
  ++waiters_;
  auto const over = [&] { return state.done.load() || (limit != Clock::time_point::max() && Clock::now() >= limit); };
  while (!over()) {
    if (driving_) {
      auto const free = [&] { return state.done.load() || !driving_; };
      if (limit == Clock::time_point::max()) {
        changed_.wait(lock, free);
      } else {
        changed_.wait_until(lock, limit, free);
      }
      continue;
    }
    driving_ = true;
    driver_ = std::this_thread::get_id();
    lock.unlock();
    drive(false, over);
    lock.lock();
    driving_ = false;
    changed_.notify_all();
  }
  --waiters_;
  return state.done.load();
}

void Messenger::Impl::wake_thread() {
  if (closed_) return;
  if (!thread_.joinable()) {
    start_thread();
  } else if (thread_sleeps_) {
    thread_wake_.notify_one();
  }
}

void Messenger::Impl::start_thread() {
  try {
    thread_ = std::thread([self = shared_from_this()] { self->run_thread(); });
  } catch (std::system_error const& error) {  // all requests must end, so that their buffers are not in use any more
    fail_all(std::make_exception_ptr(
        Error(ErrorCode::system,
              communicator->validator.explain("Messenger", fmt::format("cannot start a thread: {}", error.what())))));
  }
}

void Messenger::Impl::run_thread() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (pending_ == 0) {
      thread_sleeps_ = true;
      thread_wake_.wait(lock, [this] { return closed_ || pending_ > 0; });
      thread_sleeps_ = false;
    }
    // Mostly the thread that made the request will soon wait for it and drive.
    thread_wake_.wait_for(lock, kGrace, [this] { return closed_; });
    if (closed_ || driving_ || pending_ == 0) continue;
    driving_ = true;
    driver_ = std::this_thread::get_id();
    lock.unlock();
    drive(true, [this] { return pending_ == 0; });
    lock.lock();
    driving_ = false;
    changed_.notify_all();
  }
}

}  // namespace weft
