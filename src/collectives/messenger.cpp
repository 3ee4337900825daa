#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/messenger_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// How long the messenger's own thread leaves it to others to come and wait.
constexpr auto kGrace = std::chrono::milliseconds(1);
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);

std::string size_of_message(std::size_t bytes, DataType dtype) {
  return fmt::format("{} × {}", bytes / size_of(dtype), to_string(dtype));
}

}  // namespace

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
  changed_.wait(lock, [this] { return !driving_; });
  for (auto& one : inbound_) one.transit.reset();
  lock.unlock();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) return thread_.detach();  // by one of its own continuations
  thread_.join();
}

std::shared_ptr<Messenger::Request::State> Messenger::Impl::open(Call&& call, Message const& message, int tag,
                                                                 std::chrono::milliseconds timeout) {
  auto state = std::make_shared<State>();
  state->messenger = weak_from_this();
  state->call = std::move(call);
  state->call.timeout = timeout;
  state->message = message;
  state->tag = tag;
  state->deadline = Clock::now() + timeout;
  state->record = communicator->recorder().begin(message);
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

void Messenger::Impl::send_to_self(State& state) {
  auto const rank = communicator->validator.rank;
  MessageHead const head{state.message.bytes, state.tag, state.message.dtype};
  auto const* const content = static_cast<std::byte const*>(state.message.data);
  if (auto const receiver = find_receiver(rank, state.tag)) {
    deliver(*receiver, rank, head, content);
  } else {
    auto& aside = unexpected_.emplace_back();
    aside.source = rank;
    aside.head = head;
    if (state.message.bytes > 0) aside.content.assign(content, content + state.message.bytes);
    aside.complete = true;
  }
  complete(state);
}

bool Messenger::Impl::take_unexpected(std::shared_ptr<State> const& state) {
  auto const fitting = std::find_if(unexpected_.begin(), unexpected_.end(), [&](Unexpected const& one) {
    return !one.target && !one.dropped && one.head.tag == state->tag &&
           (state->message.peer == kAnyRank || state->message.peer == one.source);
  });
  if (fitting == unexpected_.end()) return false;
  if (fitting->complete) {
    deliver(*state, fitting->source, fitting->head, fitting->content.data());
    unexpected_.erase(fitting);
  } else {
    fitting->target = state;
    // Its content is still to come: it counts as a receive from there.
    ++wanted_[index(fitting->source)];
  }
  return true;
}

std::shared_ptr<Messenger::Request::State> Messenger::Impl::find_receiver(int source, int tag) {
  auto const fitting = std::find_if(receives_.begin(), receives_.end(), [&](auto const& one) {
    return one->tag == tag && (one->message.peer == kAnyRank || one->message.peer == source);
  });
  if (fitting == receives_.end()) return nullptr;
  auto receiver = *fitting;
  receives_.erase(fitting);
  --(receiver->message.peer == kAnyRank ? wanted_from_any_ : wanted_[index(receiver->message.peer)]);
  return receiver;
}

bool Messenger::Impl::is_wanted(int source) const noexcept {
  auto const& from = inbound_[index(source)];
  return wanted_from_any_ > 0 || wanted_[index(source)] > 0 || (from.of_content && from.target);
}

void Messenger::Impl::progress() {
  for (auto& queue : outbound_) advance_outbound(queue);
  for (int source = 0; source < communicator->validator.size; ++source) {
    if (source != communicator->validator.rank) advance_inbound(source);
  }
}

void Messenger::Impl::advance_outbound(std::deque<std::shared_ptr<State>>& queue) {
  while (!queue.empty()) {
    auto const state = queue.front();
    if (!state->transit) {
      auto part = state->message;
      if (!state->head_is_through) {
        part.dtype = DataType::u8;
        part.data = state->head.data();
        part.bytes = state->head.size();
      }
      state->transit = communicator->begin(state->call, part);
    }
    if (!state->transit->advance()) return;
    state->transit.reset();
    auto const has_more = !state->head_is_through && state->message.bytes > MessageHead::kShort;
    state->head_is_through = true;
    if (has_more) continue;
    queue.pop_front();
    complete(*state);
  }
}

void Messenger::Impl::advance_inbound(int source) {
  auto& from = inbound_[index(source)];
  while (is_wanted(source)) {
    if (!from.transit) begin_head(source);
    if (!from.transit->advance()) return;
    from.of_content ? end_content(source) : take_head(source);
  }
}

void Messenger::Impl::begin_head(int source) {
  auto& from = inbound_[index(source)];
  from.first.resize(sizeof(MessageHead) + MessageHead::kShort);
  from.call = {.contract = {.root = static_cast<std::uint32_t>(source), .operation = Operation::receive}};
  from.transit = communicator->begin(from.call, {.direction = Message::Direction::receive,
                                                 .dtype = DataType::u8,
                                                 .peer = source,
                                                 .data = from.first.data(),
                                                 .bytes = from.first.size(),
                                                 .up_to = true});
}

void Messenger::Impl::take_head(int source) {
  auto& from = inbound_[index(source)];
  from.transit.reset();
  std::memcpy(&from.head, from.first.data(), sizeof from.head);
  from.target = find_receiver(source, from.head.tag);
  if (from.head.bytes > MessageHead::kShort) return begin_content(source);
  auto const* const content = from.first.data() + sizeof from.head;
  if (from.target) {
    deliver(*std::exchange(from.target, nullptr), source, from.head, content);
    return;
  }
  auto& aside = unexpected_.emplace_back();
  aside.source = source;
  aside.head = from.head;
  aside.content.assign(content, content + from.head.bytes);
  aside.complete = true;
}

void Messenger::Impl::begin_content(int source) {
  auto& from = inbound_[index(source)];
  void* to = nullptr;
  if (from.target && fits(*from.target, source, from.head)) {
    to = from.target->message.data;
  } else {
    auto& aside = unexpected_.emplace_back();
    aside.source = source;
    aside.head = from.head;
    aside.content.resize(from.head.bytes);
    aside.dropped = std::exchange(from.target, nullptr) != nullptr;
    from.aside = &aside;
    to = aside.content.data();
  }
  from.of_content = true;
  from.call.contract.count = from.head.bytes / size_of(from.head.dtype);
  from.call.contract.dtype = from.head.dtype;
  from.transit = communicator->begin(from.call, {.direction = Message::Direction::receive,
                                                 .dtype = from.head.dtype,
                                                 .peer = source,
                                                 .data = to,
                                                 .bytes = from.head.bytes});
}

void Messenger::Impl::end_content(int source) {
  auto& from = inbound_[index(source)];
  from.transit.reset();
  from.of_content = false;
  if (auto const target = std::exchange(from.target, nullptr)) {
    target->source = source;
    return complete(*target);
  }
  auto* const aside = std::exchange(from.aside, nullptr);
  aside->complete = true;
  if (!aside->target && !aside->dropped) return;
  if (aside->target) {
    --wanted_[index(source)];
    deliver(*aside->target, source, aside->head, aside->content.data());
  }
  unexpected_.remove_if([&](Unexpected const& one) { return &one == aside; });
}

bool Messenger::Impl::fits(State& state, int source, MessageHead const& head) {
  if (head.bytes == state.message.bytes && head.dtype == state.message.dtype) return true;
  complete(state,
           std::make_exception_ptr(Error(
               ErrorCode::mismatch,
               fmt::format("rank {}: a message from rank {} with tag {} is {}, but the receiver expects {}; "
                           "make both sides equal (the message was dropped)",
                           communicator->validator.rank, source, head.tag, size_of_message(head.bytes, head.dtype),
                           size_of_message(state.message.bytes, state.message.dtype)))));
  return false;
}

void Messenger::Impl::deliver(State& state, int source, MessageHead const& head, std::byte const* content) {
  if (!fits(state, source, head)) return;
  if (head.bytes > 0) std::memcpy(state.message.data, content, head.bytes);
  state.source = source;
  complete(state);
}

void Messenger::Impl::complete(State& state, std::exception_ptr error) {
  if (state.done.load()) return;
  communicator->recorder().end(state.record, state.message, error ? FlightState::failed : FlightState::finished);
  state.error = std::move(error);
  state.done.store(true);
  --pending_;
  ++changes_;
  for (auto& continuation : state.continuations) continuations_.push_back(std::move(continuation));
  state.continuations.clear();
  if (waiters_ > 0) changed_.notify_all();
}

void Messenger::Impl::fail_all(std::exception_ptr const& error) {
  auto const fail = [&](std::shared_ptr<State> const& state) {
    if (!state) return;
    state->transit.reset();
    complete(*state, error);
  };
  for (auto const& state : receives_) fail(state);
  receives_.clear();
  for (auto& queue : outbound_) {
    for (auto const& state : queue) fail(state);
    queue.clear();
  }
  for (auto& from : inbound_) {
    from.transit.reset();
    from.of_content = false;
    from.aside = nullptr;
    fail(std::exchange(from.target, nullptr));
  }
  for (auto& aside : unexpected_) fail(std::exchange(aside.target, nullptr));
  unexpected_.clear();
  std::fill(wanted_.begin(), wanted_.end(), 0);
  wanted_from_any_ = 0;
}

void Messenger::Impl::check_deadlines() {
  auto const now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  auto const check = [&](State const& state) {
    if (now < state.deadline) return;
    auto const any = state.message.peer == kAnyRank;
    auto const what = size_of_message(state.message.bytes, state.message.dtype);
    auto const limit = state.call.timeout.count();
    auto const rank = communicator->validator.rank;
    auto const text =
        any ? fmt::format(
                  "no rank sent {} with tag {} to rank {}, which waits for any, within {} ms; a sender is stuck, "
                  "slow or uses another tag",
                  what, state.tag, rank, limit)
        : state.message.direction == Message::Direction::receive
            ? fmt::format(
                  "rank {} did not send {} with tag {} to rank {} within {} ms; it is stuck, slow or uses "
                  "another tag",
                  state.message.peer, what, state.tag, rank, limit)
            : fmt::format(
                  "rank {} did not receive {} with tag {} from rank {} within {} ms; it is stuck, slow or uses "
                  "another tag",
                  state.message.peer, what, state.tag, rank, limit);
    communicator->fail(ErrorCode::timeout, text);
    throw Error(ErrorCode::timeout, text);
  };
  for (auto const& state : receives_) check(*state);
  for (auto const& queue : outbound_) {
    if (!queue.empty()) check(*queue.front());
  }
  for (auto const& from : inbound_) {
    if (from.target) check(*from.target);
  }
}

std::vector<int> Messenger::Impl::awaited() const {
  std::vector<int> ranks;
  auto const self = communicator->validator.rank;
  auto const size = communicator->validator.size;
  for (int rank = 0; rank < size; ++rank) {
    auto const& from = inbound_[index(rank)];
    auto const only = wanted_from_any_ > 0 && size == 2 && rank != self;
    if (only || wanted_[index(rank)] > 0 || !outbound_[index(rank)].empty() || (from.of_content && from.target)) {
      if (rank != self) ranks.push_back(rank);
    }
  }
  return ranks;
}

void Messenger::Impl::run_continuations(std::unique_lock<std::mutex>& lock) {
  if (continuations_.empty()) return;
  auto const all = std::exchange(continuations_, {});
  lock.unlock();
  for (auto const& continuation : all) continuation();
  lock.lock();
}

void Messenger::Impl::drive(bool in_background, std::function<bool()> const& until) {
  Call call;
  std::vector<int> peers;
  std::uint64_t seen = 0;
  {
    std::lock_guard const lock(mutex_);
    peers = awaited();
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
    check_deadlines();
    run_continuations(lock);
    // Who is waited for changes: then begin anew.
    return closed_ || until() || changes_ != seen;
  };
  try {
    communicator->await(call, ready, peers);
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
    lock.unlock();
    drive(false, over);
    lock.lock();
    driving_ = false;
    changed_.notify_all();
  }
  --waiters_;
  return state.done.load();
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

void Messenger::Impl::wake_thread() {
  if (closed_) return;
  if (!thread_.joinable()) {
    thread_ = std::thread([self = shared_from_this()] { self->run_thread(); });
  } else if (thread_sleeps_) {
    thread_wake_.notify_one();
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
    // Whoever made the call will mostly wait for it himself.
    thread_wake_.wait_for(lock, kGrace, [this] { return closed_; });
    if (closed_ || driving_ || pending_ == 0) continue;
    driving_ = true;
    lock.unlock();
    drive(true, [this] { return pending_ == 0; });
    lock.lock();
    driving_ = false;
    changed_.notify_all();
  }
}

bool Messenger::Request::test() const noexcept {
  return state_->done.load();
}

void Messenger::Request::wait() const {
  (void)wait_for(std::chrono::nanoseconds::max());
}

bool Messenger::Request::wait_for(std::chrono::nanoseconds limit) const {
  auto const forever = limit == std::chrono::nanoseconds::max();
  auto const until = forever ? Impl::Clock::time_point::max() : Impl::Clock::now() + limit;
  if (!state_->done.load()) {
    auto const messenger = state_->messenger.lock();
    if (messenger && !messenger->wait(*state_, until)) return false;
  }
  if (auto const failure = error()) std::rethrow_exception(failure);
  return true;
}

std::exception_ptr Messenger::Request::error() const noexcept {
  return state_->done.load() ? state_->error : nullptr;
}

int Messenger::Request::source() const noexcept {
  return state_->done.load() ? state_->source : -1;
}

void Messenger::Request::then(std::function<void()> continuation) const {
  if (auto const messenger = state_->messenger.lock(); messenger && !state_->done.load()) {
    messenger->then(*state_, std::move(continuation));
  } else {
    continuation();
  }
}

Messenger::Messenger(Communicator& communicator) {
  (void)communicator.live("Messenger");
  impl_ = std::make_shared<Impl>(communicator.impl_);
}

Messenger::~Messenger() {
  impl_->close();
}

Messenger::Request Messenger::send(ConstBufferView const& buffer, int to, int tag,
                                   std::optional<std::chrono::milliseconds> timeout) {
  auto const& communicator = *impl_->communicator;
  auto call = communicator.validator.send(buffer, to);
  Message const message{
      .direction = Message::Direction::send,
      .dtype = buffer.dtype,
      .peer = to,
      .data = const_cast<void*>(buffer.data),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
      .bytes = buffer.bytes()};
  return Request(impl_->send(std::move(call), message, tag, timeout.value_or(communicator.options.config->timeout)));
}

Messenger::Request Messenger::receive(BufferView const& buffer, int from, int tag,
                                      std::optional<std::chrono::milliseconds> timeout) {
  auto const& communicator = *impl_->communicator;
  auto call = communicator.validator.recv(buffer, from == kAnyRank ? 0 : from);
  Message const message{.direction = Message::Direction::receive,
                        .dtype = buffer.dtype,
                        .peer = from,
                        .data = buffer.data,
                        .bytes = buffer.bytes()};
  return Request(impl_->receive(std::move(call), message, tag, timeout.value_or(communicator.options.config->timeout)));
}

}  // namespace weft
