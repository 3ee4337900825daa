// Moves heads and contents: sends from a queue for each receiver, and receives from each sender.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "collectives/messenger/messenger_impl.hpp"

namespace weft {

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

/// Memory for content that no receive waits for yet.
std::vector<std::byte> Messenger::Impl::room_for(int source, MessageHead const& head) {
  try {
    return std::vector<std::byte>(head.bytes);
  } catch (std::exception const&) {
    communicator->break_off(Message::Direction::receive, source);
    auto const why = fmt::format(
        "no memory for {} with tag {} from rank {} that nothing has asked for yet; receive it "
        "before it is sent",
        describe_message(head.bytes, head.dtype), head.tag, source);
    throw Error(ErrorCode::out_of_memory, communicator->validator.explain("Messenger", why));
  }
}

void Messenger::Impl::begin_content(int source) {
  auto& from = inbound_[index(source)];
  void* to = nullptr;
  if (from.target && fits(*from.target, source, from.head)) {
    to = from.target->message.data;
  } else {
    auto content = room_for(source, from.head);
    auto& aside = unexpected_.emplace_back();
    aside.source = source;
    aside.head = from.head;
    aside.content = std::move(content);
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

void Messenger::Impl::drop(int source) {
  auto& from = inbound_[index(source)];
  if (!from.transit) return;
  // A receive of a head that has moved nothing yet can be withdrawn: a later Messenger then receives that head.
  constexpr auto kReceives = Message::Direction::receive;
  auto const unseen = !from.of_content && from.transit->withdraw();
  unseen ? communicator->take_back(kReceives, source) : communicator->break_off(kReceives, source);
  from.transit.reset();
}

void Messenger::Impl::drop(State& send) {
  if (!send.transit) return;
  constexpr auto kSends = Message::Direction::send;
  auto const unseen = !send.head_is_through && send.transit->withdraw();
  unseen ? communicator->take_back(kSends, send.message.peer) : communicator->break_off(kSends, send.message.peer);
  send.transit.reset();
}

}  // namespace weft
