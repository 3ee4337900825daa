// Finds operations that will never complete, because a rank is late, has left or has died, and fails them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "collectives/messenger/messenger_impl.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(5);

std::string list(std::vector<int> const& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// What an operation moves: "10 × f32 with tag 3".
std::string describe_content(Message const& message, int tag) {
  return fmt::format("{} with tag {}", describe_message(message.bytes, message.dtype), tag);
}

constexpr char const* kLeft = "left (its communicator was destroyed)";
constexpr char const* kSeeOutput = "; see its output for the cause";

}  // namespace

void Messenger::Impl::fail_all(std::exception_ptr const& error) {
  auto const fail = [&](std::shared_ptr<State> const& state) {
    if (!state) return;
    drop(*state);
    complete(*state, error);
  };
  for (auto const& state : receives_) fail(state);
  receives_.clear();
  for (auto& queue : outbound_) {
    for (auto const& state : queue) fail(state);
    queue.clear();
  }
  for (int source = 0; source < communicator->validator.size; ++source) {
    auto& from = inbound_[index(source)];
    drop(source);
    from.of_content = false;
    from.aside = nullptr;
    fail(std::exchange(from.target, nullptr));
  }
  for (auto& aside : unexpected_) fail(std::exchange(aside.target, nullptr));
  unexpected_.clear();
  std::fill(wanted_.begin(), wanted_.end(), 0);
  wanted_from_any_ = 0;
}

void Messenger::Impl::for_each_pending(std::function<void(State const&)> const& body) const {
  for (auto const& state : receives_) body(*state);
  for (auto const& queue : outbound_) {
    if (!queue.empty()) body(*queue.front());
  }
  for (auto const& from : inbound_) {
    if (from.target) body(*from.target);
  }
  for (auto const& aside : unexpected_) {
    if (aside.target) body(*aside.target);
  }
}

void Messenger::Impl::look_around() {
  auto const now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  look_for_late(now);
  look_for_lost();
}

void Messenger::Impl::give_up(ErrorCode code, std::string const& why) {
  communicator->fail(code, why);
  throw Error(code, why);
}

void Messenger::Impl::look_for_late(Clock::time_point now) {
  auto const rank = communicator->validator.rank;
  for_each_pending([&](State const& state) {
    if (now < state.deadline) return;
    auto const what = describe_content(state.message, state.tag);
    auto const limit = state.call.timeout.count();
    auto const peer = state.message.peer;
    if (peer == kAnyRank) {
      give_up(ErrorCode::timeout, fmt::format("no rank sent {} to rank {}, which waits for any, within {} ms; a sender "
                                              "is stuck, slow or uses another tag",
                                              what, rank, limit));
    }
    auto const receives = state.message.direction == Message::Direction::receive;
    give_up(ErrorCode::timeout,
            fmt::format("rank {} did not {} {} {} rank {} within {} ms; it is stuck, slow or uses another tag", peer,
                        receives ? "send" : "receive", what, receives ? "to" : "from", rank, limit));
  });
}

Messenger::Impl::Absent Messenger::Impl::find_absent() const {
  Absent absent;
  auto const self = communicator->validator.rank;
  for (int rank = 0; rank < communicator->validator.size; ++rank) {
    auto const awaited = wanted_from_any_ > 0 || wanted_[index(rank)] > 0 || !outbound_[index(rank)].empty() ||
                         (inbound_[index(rank)].of_content && inbound_[index(rank)].target);
    if (rank == self || !awaited) continue;
    switch (communicator->peer_state(rank)) {
      case PeerState::present: break;
      case PeerState::left: absent.left.push_back(rank); break;
      case PeerState::died: absent.died.push_back(rank); break;
    }
  }
  return absent;
}

void Messenger::Impl::look_for_lost() {
  auto const absent = find_absent();
  if (absent.died.empty() && absent.left.empty()) return;
  progress();                       // what they sent before they went still counts
  communicator->throw_if_failed();  // and a failure that they told of comes first
  for_each_pending([&](State const& state) {
    auto const any = state.message.peer == kAnyRank;
    auto const why = any ? why_none_comes(state, absent) : why_peer_does_not(state, absent);
    if (!why.empty()) give_up(ErrorCode::peer_lost, why);
  });
}

std::string Messenger::Impl::why_none_comes(State const& state, Absent const& absent) const {
  auto const waits = fmt::format("rank {} waits for {} from any rank", communicator->validator.rank,
                                 describe_content(state.message, state.tag));
  if (!absent.died.empty()) {
    auto const whose = absent.died.size() == 1 ? kSeeOutput : "; see their output for the cause";
    return fmt::format("{} died while {}{}", list(absent.died), waits, whose);
  }
  auto const others = static_cast<std::size_t>(communicator->validator.size) - 1;
  if (absent.left.size() < others) return {};
  return fmt::format("{} left (their communicators were destroyed) while {}", list(absent.left), waits);
}

std::string Messenger::Impl::why_peer_does_not(State const& state, Absent const& absent) const {
  auto const peer = state.message.peer;
  auto const among = [&](std::vector<int> const& ranks) {
    return std::find(ranks.begin(), ranks.end(), peer) != ranks.end();
  };
  auto const died = among(absent.died);
  if (!died && !among(absent.left)) return {};
  auto const receives = state.message.direction == Message::Direction::receive;
  return fmt::format("rank {} {} before it {} {} {} rank {}{}", peer, died ? "died" : kLeft,
                     receives ? "sent" : "received", describe_content(state.message, state.tag),
                     receives ? "to" : "from", communicator->validator.rank, died ? kSeeOutput : "");
}

}  // namespace weft
