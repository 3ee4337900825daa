// The functions of weft/messenger.hpp.
#include <utility>

#include "collectives/messenger/messenger_impl.hpp"

namespace weft {

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
    if (messenger) messenger->communicator->check_process("wait");
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
  if (impl_->is_inherited()) {
    static_cast<void>(new std::shared_ptr<Impl>(std::move(impl_)));  // NOLINT: never destroyed, its thread is not here
  } else {
    impl_->close();
  }
}

Messenger::Request Messenger::send(ConstBufferView const& buffer, int to, int tag,
                                   std::optional<std::chrono::milliseconds> timeout) {
  auto const& communicator = *impl_->communicator;
  communicator.check_process("send");
  auto call = communicator.validator.send(buffer, to);
  communicator.validator.check_options(call, {.timeout = timeout});
  communicator.check_lane(call, Message::Direction::send, to);
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
  communicator.check_process("recv");
  auto call = communicator.validator.recv(buffer, from == kAnyRank ? 0 : from);
  communicator.validator.check_options(call, {.timeout = timeout});
  if (from != kAnyRank) communicator.check_lane(call, Message::Direction::receive, from);
  Message const message{.direction = Message::Direction::receive,
                        .dtype = buffer.dtype,
                        .peer = from,
                        .data = buffer.data,
                        .bytes = buffer.bytes()};
  return Request(impl_->receive(std::move(call), message, tag, timeout.value_or(communicator.options.config->timeout)));
}

}  // namespace weft
