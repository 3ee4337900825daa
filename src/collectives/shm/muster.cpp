#include "collectives/shm/muster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "weft/error.hpp"

namespace weft::shm {
namespace {

constexpr auto kMusterNap = std::chrono::microseconds(50);

MusterLines* lines_in(Mapping const& memory, std::size_t offset) noexcept {
  auto const aligned = (offset + alignof(MusterLines) - 1) / alignof(MusterLines) * alignof(MusterLines);
  return reinterpret_cast<MusterLines*>(memory.data() + aligned);
}

}  // namespace

static_assert(kMaxRanks <= 64, "a rank is a bit of a word");

Muster::Muster(std::shared_ptr<Mapping> memory, std::size_t offset, int rank, int size, Look look) noexcept
    : memory_(std::move(memory)),
      lines_(lines_in(*memory_, offset)),
      rank_(rank),
      size_(size),
      look_(std::move(look)) {}

void Muster::look_around() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    lost_ |= lines_of(peer).lost.load(std::memory_order_acquire);
    if (look_(peer) != PeerState::present) lost_ |= std::uint64_t{1} << static_cast<unsigned>(peer);
  }
  lines_of(rank_).lost.store(lost_, std::memory_order_release);
}

int Muster::find_missing() const noexcept {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || is_lost(peer)) continue;
    auto const& theirs = lines_of(peer);
    bool const came = theirs.musters.load(std::memory_order_acquire) >= musters_;
    if (!came || theirs.lost.load(std::memory_order_acquire) != lost_) return peer;
  }
  return -1;
}

std::vector<int> Muster::call(std::chrono::milliseconds timeout) {
  posts_ = 0;
  ++musters_;
  look_around();
  lines_of(rank_).musters.store(musters_, std::memory_order_release);
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  for (int missing = 0; (missing = find_missing()) >= 0; look_around()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorCode::timeout,
                  fmt::format("rank {}: shrink(): rank {}, which is alive, did not come within {} ms; every rank that "
                              "is left calls shrink(): look there, or raise WEFT_TIMEOUT",
                              rank_, missing, timeout.count()));
    }
    std::this_thread::sleep_for(kMusterNap);
  }
  std::vector<int> left;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_lost(rank)) left.push_back(rank);
  }
  return left;
}

// What a rank did before it was lost counts, so that all see the same.
template <typename IsThere>
bool Muster::has(int peer, IsThere const& is_there) const {
  if (is_there()) return true;
  auto const& theirs = lines_of(peer);
  // If so, it will not come: it begins again, or is still in call() and waits for others to see what it has seen.
  bool const anew = theirs.musters.load(std::memory_order_acquire) > musters_ ||
                    (theirs.lost.load(std::memory_order_acquire) & ~lost_) != 0;
  bool const gone = look_(peer) != PeerState::present;
  if (is_there()) return true;
  if (!anew && !gone) return false;
  throw Error(ErrorCode::peer_lost, fmt::format("rank {}: shrink(): rank {} {} meanwhile", rank_, peer,
                                                gone ? "was lost" : "found another rank lost"));
}

bool Muster::has_posted(int peer, std::uint64_t posted) const {
  auto const& theirs = lines_of(peer);
  auto const is_there = [&] {
    auto const seen = theirs.posted.load(std::memory_order_acquire);
    return seen >> 32U == musters_ && seen >= posted;
  };
  if (has(peer, is_there)) return true;
  if (theirs.concluded.load(std::memory_order_acquire) != musters_ || is_there()) return false;
  auto const& outcome = theirs.outcome;
  throw Error(outcome.failed ? outcome.code : ErrorCode::system,
              fmt::format("rank {}: {}", peer, outcome.failed ? outcome.why : "shrink(): it is through already"));
}

// Looks at all members in every round: one that lives may be waiting for this rank to see that another has gone.
template <typename HasCome>
void Muster::await(std::vector<int> const& members, HasCome const& has_come, Deadline deadline,
                   std::chrono::milliseconds timeout) const {
  while (true) {
    int missing = -1;
    for (int const peer : members) {
      if (peer != rank_ && !has_come(peer)) missing = peer;
    }
    if (missing < 0) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(
          ErrorCode::timeout,
          fmt::format("rank {}: shrink(): rank {} is not through within {} ms; it is stuck or slow: look there, "
                      "or raise WEFT_TIMEOUT",
                      rank_, missing, timeout.count()));
    }
    std::this_thread::sleep_for(kMusterNap);
  }
}

// A rank overwrites a block two posts later, which it reaches only after all have made the post between. After a post
// that failed there are no more, and what comes then has a place of its own.
std::vector<std::byte> Muster::all_gather(std::vector<int> const& members, std::span<std::byte const> mine,
                                          std::chrono::milliseconds timeout) {
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<std::byte> all(members.size() * mine.size());
  std::size_t first = 0;
  do {
    auto const length = std::min(MusterLines::kBlockBytes, mine.size() - first);
    auto const parity = ++posts_ % 2;
    auto const posted = musters_ << 32U | posts_;
    auto& own = lines_of(rank_);
    own.lengths[parity] = static_cast<std::uint32_t>(mine.size());
    if (length > 0) std::memcpy(own.blocks[parity], mine.data() + first, length);
    own.posted.store(posted, std::memory_order_release);
    await(
        members, [&](int peer) { return has_posted(peer, posted); }, deadline, timeout);
    for (std::size_t i = 0; i < members.size(); ++i) {
      auto const& theirs = lines_of(members[i]);
      if (theirs.lengths[parity] != mine.size()) {
        throw Error(ErrorCode::system,
                    fmt::format("rank {}: shrink(): rank {} is elsewhere: it exchanges {} bytes, not {}", rank_,
                                members[i], theirs.lengths[parity], mine.size()));
      }
      if (length > 0) std::memcpy(all.data() + i * mine.size() + first, theirs.blocks[parity], length);
    }
    first += length;
  } while (first < mine.size());
  return all;
}

// The next muster, which overwrites the outcome, begins when all have come to it.
std::vector<Outcome> Muster::conclude(std::vector<int> const& members, Outcome const& mine,
                                      std::chrono::milliseconds timeout) {
  lines_of(rank_).outcome = mine;
  lines_of(rank_).concluded.store(musters_, std::memory_order_release);
  auto const has_concluded = [&](int peer) {
    return has(peer, [&] { return lines_of(peer).concluded.load(std::memory_order_acquire) == musters_; });
  };
  await(members, has_concluded, std::chrono::steady_clock::now() + timeout, timeout);
  std::vector<Outcome> all;
  for (int const member : members) all.push_back(lines_of(member).outcome);
  return all;
}

ShmSurvivors::ShmSurvivors(Muster& muster, int rank, std::chrono::milliseconds timeout)
    : muster_(muster),
      timeout_(timeout),
      members_(muster.call(timeout)),
      rank_(static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin())) {}

}  // namespace weft::shm
