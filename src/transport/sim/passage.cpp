// How messages pass the links, and where their bytes are until they arrive.
#include <algorithm>
#include <cstring>

#include "transport/sim/world.hpp"

namespace weft::sim {

void World::depart(MessageId id) {
  auto& message = messages_[id];
  message.on_its_way = true;
  if (message.lost) return;
  message.route = network_.route(message.from, message.to);
  advance(id);
}

void World::advance(MessageId id) {
  auto& message = messages_[id];
  if (message.lost) return;
  while (message.next_link < message.route.count) {
    auto const index = message.route.links[message.next_link];
    auto const& link = network_.links()[index];
    auto const begins = std::max(now_, link_free_[index]);
    auto const busy = later(link.gap, from_seconds(static_cast<double>(message.sent_bytes) * link.seconds_per_byte));
    auto const ends = later(begins, busy);
    if (ends > kLatest) return fail_for_time();
    link_free_[index] = ends;
    message.last_byte = std::max(message.last_byte, ends);
    if (message.next_link == 0) {
      message.leaves = ends;
      if (message.sends != Message::kNobody) wake(message.sends, message.leaves);
    }
    ++message.next_link;
    // The first byte reaches the next link only at `begins`; messages that get there before that go first.
    if (begins > now_ && !link.carries_many && message.next_link < message.route.count)
      return schedule(begins, EventKind::advance, id);
  }
  finish_route(id);
}

void World::finish_route(MessageId id) {
  auto& message = messages_[id];
  message.arrives = later(message.last_byte, later(message.route.latency, jitter_of(message)));
  if (message.arrives > kLatest) return fail_for_time();
  if (message.receives != Message::kNobody) wake(message.receives, message.arrives);
}

Time World::jitter_of(Message const& message) const noexcept {
  if (options_.jitter <= Time{}) return {};
  auto value = options_.seed;
  for (auto const part :
       {static_cast<std::uint64_t>(message.from), static_cast<std::uint64_t>(message.to), message.number}) {
    value = (value + part + 1) * 0x9e3779b97f4a7c15U;
    value ^= value >> 29U;
  }
  return Time(static_cast<std::int64_t>((value >> 1U) % static_cast<std::uint64_t>(options_.jitter.count() + 1)));
}

void World::complete_send(Message& message) {
  message.sender_done = true;
  // The sender may write its buffer from now on, so the bytes are copied for the receiver to take when they arrive.
  if (message.delivered || !message.carries_data || message.sent_bytes == 0) return;
  message.bytes.assign(message.source, message.source + message.sent_bytes);
}

void World::complete_recv(Message& message) {
  message.receiver_done = true;
  message.delivered = true;
  note(TraceEvent::Kind::arrival, message.to, message.from, message.number, message.sent_bytes);
  auto const length = std::min(message.sent_bytes, message.recv_bytes);
  if (!message.carries_data || length == 0) return;
  std::memcpy(message.target, message.sender_done ? message.bytes.data() : message.source, length);
}

void World::forget(MessageId id) {
  auto const& message = messages_[id];
  if (message.sender_done && message.receiver_done) messages_.release(id);
}

}  // namespace weft::sim
