// What happens when a rank is lost, or when no rank can go on.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "transport/sim/world.hpp"

namespace weft::sim {
namespace {

constexpr int kMostLines = 16;

}  // namespace

void World::lose(int rank) {
  auto& self = ranks_[static_cast<std::size_t>(rank)];
  if (self.ended || self.lost) return;
  self.lost = true;
  note(TraceEvent::Kind::loss, rank);
  // Messages on their way from the lost rank, or to it, never arrive, since its memory is gone.
  messages_.for_each([&](MessageId, Message& message) {
    if (message.from != rank && message.to != rank) return;
    if (message.from == rank && message.sender_done) return;  // it has left the sender's buffer already
    message.lost = true;
    if (message.from == rank) message.arrives = kNever;
    if (message.to == rank) message.delivered = true;
  });
  if (!failure_) schedule(now_ + options_.detection, EventKind::failure, static_cast<std::uint32_t>(rank));
  // Strands that wait for messages, or compute, unwind now. Those that wait for other strands go on once these have.
  for (StrandId strand = 0; strand < strands_.size(); ++strand) {
    auto const& one = strands_[strand];
    if (one.rank == rank && one.asleep && one.address == nullptr && !one.ended) enter(strand);
  }
}

void World::fail(ErrorCode code, std::string const& what) {
  if (!failure_) {
    failure_.emplace(code, what);
    note(TraceEvent::Kind::failure, -1);
  }
  for (StrandId strand = 0; strand < strands_.size(); ++strand) {
    auto const& one = strands_[strand];
    if (one.asleep && one.address == nullptr && !one.ended) wake(strand, now_);
  }
}

void World::fail_for_time() {
  auto const days = std::chrono::duration_cast<std::chrono::hours>(kLatest).count() / 24;
  fail(ErrorCode::invalid_argument,
       fmt::format("it would take more than the {} days that can be simulated; are links that slow, or ranks?", days));
}

std::string World::describe_wait(Strand const& strand) const {
  auto const rank = strand.rank;
  if (!strand.awaits) return {};
  auto const& message = messages_[*strand.awaits];
  auto const sends = message.from == rank;
  auto const peer = sends ? message.to : message.from;
  auto const& other = ranks_[static_cast<std::size_t>(peer)];
  return fmt::format("rank {} waits {} message {} ({} bytes) {} rank {}{}", rank, sends ? "to be rid of" : "for",
                     message.number, sends ? message.sent_bytes : message.recv_bytes, sends ? "for" : "from", peer,
                     other.lost    ? ", which was lost"
                     : other.ended ? ", which has ended"
                                   : "");
}

std::string World::describe_deadlock() const {
  std::string text = "nobody can go on:";
  int told = 0;
  int blocked = 0;
  for (auto const& strand : strands_) {
    if (strand.ended || strand.address != nullptr) continue;
    ++blocked;
    auto const waits = describe_wait(strand);
    if (waits.empty() || told == kMostLines) continue;
    text += fmt::format("{} {}", told == 0 ? "" : ";", waits);
    ++told;
  }
  return blocked > told ? fmt::format("{}; and {} more ranks", text, blocked - told) : text;
}

void World::give_up() const {
  auto const blocked = std::count_if(ranks_.begin(), ranks_.end(), [](Rank const& rank) { return !rank.ended; });
  fmt::print(stderr, "weft: simulation: {} ranks wait for streams or Works of their own that never end; giving up\n",
             blocked);
  std::abort();
}

}  // namespace weft::sim
