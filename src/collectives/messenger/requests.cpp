// How requests begin and end.
#include <cstring>
#include <utility>

#include "collectives/messenger/messenger_impl.hpp"
#include "weft/error.hpp"

namespace weft {

Messenger::Impl::Impl(std::shared_ptr<Communicator::Impl> of)
    : communicator(std::move(of)),
      outbound_(static_cast<std::size_t>(communicator->validator.size)),
      inbound_(static_cast<std::size_t>(communicator->validator.size)),
      wanted_(static_cast<std::size_t>(communicator->validator.size)) {}

Messenger::Impl::~Impl() = default;

void Messenger::Impl::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  fail_all(std::make_exception_ptr(
      Error(ErrorCode::aborted,
            communicator->validator.explain("Messenger", "was destroyed before the message was through"))));
  run_continuations(lock);
  changed_.notify_all();
  thread_wake_.notify_all();
  // Where a continuation calls this function, this thread itself drives, and stops once the continuation returns.
  changed_.wait(lock, [this] { return !driving_ || driver_ == std::this_thread::get_id(); });
  for (int source = 0; source < communicator->validator.size; ++source) drop(source);
  lock.unlock();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) return thread_.detach();  // called by one of its continuations
  thread_.join();
}

std::shared_ptr<Messenger::Request::State> Messenger::Impl::open(Call&& call, Message const& message, int tag,
                                                                 std::chrono::milliseconds timeout) {
  auto state = std::make_shared<State>();
  state->messenger = weak_from_this();
  state->call = std::move(call);
  state->call.timeout = timeout;
  state->message = message;
  state->message.has_tag = true;
  state->message.tag = tag;
  state->tag = tag;
  if (message.peer != kAnyRank)
    state->message.number = communicator->count_tagged(message.direction, message.peer, tag);
  state->deadline = Clock::now() + timeout;
  state->record = communicator->recorder().begin(state->message);
  ++pending_;
  ++changes_;
  return state;
}

std::shared_ptr<Messenger::Request::State> Messenger::Impl::send(Call&& call, Message const& message, int tag,
                                                                 std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  auto state = open(std::move(call), message, tag, timeout);
  MessageHead const head{message.bytes, tag, message.dtype};
  if (message.peer == communicator->validator.rank) {
    send_to_self(*state);
  } else {
    auto const content = message.bytes <= MessageHead::kShort ? message.bytes : 0;
    state->head.resize(sizeof head + content);
    std::memcpy(state->head.data(), &head, sizeof head);
    if (content > 0) std::memcpy(state->head.data() + sizeof head, message.data, content);
    outbound_[index(message.peer)].push_back(state);
    try {
      advance_outbound(outbound_[index(message.peer)]);
    } catch (...) {
      fail_all(std::current_exception());
    }
  }
  if (!state->done.load()) wake_thread();
  run_continuations(lock);
  return state;
}

std::shared_ptr<Messenger::Request::State> Messenger::Impl::receive(Call&& call, Message const& message, int tag,
                                                                    std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  auto state = open(std::move(call), message, tag, timeout);
  if (!take_unexpected(state)) {
    receives_.push_back(state);
    ++(message.peer == kAnyRank ? wanted_from_any_ : wanted_[index(message.peer)]);
    try {
      progress();
    } catch (...) {
      fail_all(std::current_exception());
    }
  }
  if (!state->done.load()) wake_thread();
  run_continuations(lock);
  return state;
}

void Messenger::Impl::complete(State& state, std::exception_ptr error) {
  if (state.done.load()) return;
  if (state.message.peer == kAnyRank && state.source >= 0) {
    state.message.peer = state.source;
    state.message.number = communicator->count_tagged(state.message.direction, state.source, state.tag);
  }
  communicator->recorder().end(state.record, state.message, error ? FlightState::failed : FlightState::finished);
  state.error = std::move(error);
  state.done.store(true);
  --pending_;
  ++changes_;
  for (auto& continuation : state.continuations) continuations_.push_back(std::move(continuation));
  state.continuations.clear();
  if (waiters_ > 0) changed_.notify_all();
}

void Messenger::Impl::run_continuations(std::unique_lock<std::mutex>& lock) {
  if (continuations_.empty()) return;
  auto all = std::exchange(continuations_, {});
  lock.unlock();
  for (auto const& continuation : all) continuation();
  all.clear();  // without the mutex: what they hold may, when destroyed, wait for a thread that calls the messenger
  lock.lock();
}

void Messenger::Impl::then(State& state, std::function<void()> continuation) {
  {
    std::lock_guard const lock(mutex_);
    if (!state.done.load()) {
      state.continuations.push_back(std::move(continuation));
      return;
    }
  }
  continuation();
}

std::exception_ptr Messenger::Impl::error_of(State const& state) {
  std::lock_guard const lock(mutex_);
  return state.error;
}

}  // namespace weft
