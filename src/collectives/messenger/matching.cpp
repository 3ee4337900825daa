// Which receive gets which message.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/messenger/messenger_impl.hpp"
#include "weft/error.hpp"

namespace weft {

std::string describe_message(std::size_t bytes, DataType dtype) {
  return fmt::format("{} × {}", bytes / size_of(dtype), to_string(dtype));
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
    // The content is still to come, so this counts as a receive from that rank.
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
  if (communicator->is_broken_off(Message::Direction::receive, source)) return false;
  return wanted_from_any_ > 0 || wanted_[index(source)] > 0 || (from.of_content && from.target);
}

bool Messenger::Impl::fits(State& state, int source, MessageHead const& head) {
  state.source = source;
  if (head.bytes == state.message.bytes && head.dtype == state.message.dtype) return true;
  complete(state,
           std::make_exception_ptr(Error(
               ErrorCode::mismatch,
               fmt::format("rank {}: a message from rank {} with tag {} is {}, but the receiver expects {}; "
                           "make both sides equal (the message was dropped)",
                           communicator->validator.rank, source, head.tag, describe_message(head.bytes, head.dtype),
                           describe_message(state.message.bytes, state.message.dtype)))));
  return false;
}

void Messenger::Impl::deliver(State& state, int source, MessageHead const& head, std::byte const* content) {
  if (!fits(state, source, head)) return;
  if (head.bytes > 0) std::memcpy(state.message.data, content, head.bytes);
  complete(state);
}

}  // namespace weft
