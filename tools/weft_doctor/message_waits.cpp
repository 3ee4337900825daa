#include "weft_doctor/message_waits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft_doctor/words.hpp"

namespace weft::doctor {
namespace {

/// Given up because the other side did not come.
bool is_given_up(RecordedMessage const& message) {
  return message.state == State::failed && (message.error_code == "timeout" || message.error_code == "peer_lost");
}

std::int64_t waited(Dump const& dump, RecordedMessage const& message) {
  auto const until = message.finished_ns.value_or(dump.written_ns);
  return message.started_ns ? until - *message.started_ns : 0;
}

/// Whether the wait was long enough when the peer, too, had written its dump.
bool counts(Dump const& dump, RecordedMessage const& message, Dump const* peer, std::chrono::nanoseconds least_wait) {
  if (!message.started_ns) return false;
  auto const seen =
      (peer == nullptr ? dump.written_ns : std::min(dump.written_ns, peer->written_ns)) - *message.started_ns;
  if (is_given_up(message)) return seen >= 0;
  return message.state == State::started && seen >= least_wait.count();
}

/// Whether the peer has started its side. Of what its recorder has forgotten, the side of an earlier number has.
bool is_answered(Dump const& peer, int waiter, RecordedMessage const& message) {
  return std::any_of(peer.messages.begin(), peer.messages.end(), [&](auto const& other) {
    if (other.sends == message.sends || other.tag != message.tag) return false;
    return other.is_from_any() || (other.peer == waiter && other.number >= message.number);
  });
}

/// Whether some rank has begun to send what a receive from any rank takes.
bool is_answered_by_any(std::vector<Dump const*> const& dumps, int waiter, RecordedMessage const& message) {
  return std::any_of(dumps.begin(), dumps.end(), [&](auto const* dump) {
    return std::any_of(dump->messages.begin(), dump->messages.end(), [&](auto const& other) {
      return other.sends && other.peer == waiter && other.tag == message.tag && other.state == State::started;
    });
  });
}

}  // namespace

std::vector<MessageWait> find_message_waits(std::vector<Dump const*> const& dumps,
                                            std::chrono::nanoseconds least_wait) {
  std::vector<MessageWait> waits;
  for (auto const* dump : dumps) {
    MessageWait longest{.waiter = dump};
    for (auto const& message : dump->messages) {
      auto const found =
          std::find_if(dumps.begin(), dumps.end(), [&](auto const* one) { return one->rank == message.peer; });
      auto const* const peer = found == dumps.end() ? nullptr : *found;
      if (!counts(*dump, message, peer, least_wait)) continue;
      if (message.is_from_any() && is_answered_by_any(dumps, dump->rank, message)) continue;
      if (peer != nullptr && is_answered(*peer, dump->rank, message)) continue;
      if (longest.message != nullptr && message.started_ns >= longest.message->started_ns) continue;
      longest.message = &message;
      longest.peer = peer;
    }
    if (longest.message != nullptr) waits.push_back(longest);
  }
  std::stable_partition(waits.begin(), waits.end(), [](auto const& wait) { return !wait.message->is_from_any(); });
  return waits;
}

MessageChain follow(std::vector<MessageWait> const& waits) {
  MessageChain chain;
  if (waits.empty()) return chain;
  for (auto const* next = &waits.front(); next != nullptr;) {
    auto const met = std::find_if(chain.waits.begin(), chain.waits.end(),
                                  [&](auto const& one) { return one.waiter == next->waiter; });
    if (met != chain.waits.end()) {
      chain.waits.erase(chain.waits.begin(), met);  // those that only wait for the circle
      chain.circle = true;
      break;
    }
    chain.waits.push_back(*next);
    auto const after =
        std::find_if(waits.begin(), waits.end(), [&](auto const& one) { return one.waiter == next->peer; });
    next = after == waits.end() ? nullptr : &*after;
  }
  return chain;
}

std::string describe(MessageWait const& wait) {
  auto const& [waiter, message, peer] = wait;
  auto said = fmt::format("rank {} {} in {}", waiter->rank, message->state == State::failed ? "gave up" : "waits",
                          message->text);
  if (!message->is_from_any()) said += fmt::format(", message {}", message->number);
  auto const time = waited(*waiter, *message);
  if (message->state == State::failed) return fmt::format("{}, after {}", said, name_duration(time));
  return fmt::format("{}, since {}", said, name_duration(time));
}

}  // namespace weft::doctor
