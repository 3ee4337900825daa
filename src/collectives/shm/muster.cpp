#include "collectives/shm/muster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "weft/error.hpp"

namespace weft::shm {
namespace {

constexpr auto kNap = std::chrono::microseconds(50);

MusterLines* lines_in(Mapping const& memory, std::size_t offset) noexcept {
  auto const aligned = (offset + alignof(MusterLines) - 1) / alignof(MusterLines) * alignof(MusterLines);
  return reinterpret_cast<MusterLines*>(memory.data() + aligned);
}

}  // namespace

static_assert(kMaxRanks <= 64, "a rank is a bit of a word");

Muster::Muster(std::shared_ptr<Mapping> memory, std::size_t offset, Channel& channel) noexcept
    : memory_(std::move(memory)), lines_(lines_in(*memory_, offset)), channel_(channel) {}

void Muster::look_around() {
  auto const me = channel_.rank();
  for (int peer = 0; peer < channel_.size(); ++peer) {
    if (peer == me) continue;
    lost_ |= lines_of(peer).lost.load(std::memory_order_acquire);
    if (channel_.peer_state(peer) != PeerState::present) lost_ |= std::uint64_t{1} << static_cast<unsigned>(peer);
  }
  lines_of(me).lost.store(lost_, std::memory_order_release);
}

int Muster::find_missing() const noexcept {
  for (int peer = 0; peer < channel_.size(); ++peer) {
    if (peer == channel_.rank() || is_lost(peer)) continue;
    auto const& theirs = lines_of(peer);
    bool const came = theirs.musters.load(std::memory_order_acquire) >= musters_;
    if (!came || theirs.lost.load(std::memory_order_acquire) != lost_) return peer;
  }
  return -1;
}

std::vector<int> Muster::call(std::chrono::milliseconds timeout) {
  auto const me = channel_.rank();
  posts_ = 0;
  ++musters_;
  look_around();
  lines_of(me).musters.store(musters_, std::memory_order_release);
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  for (int missing = 0; (missing = find_missing()) >= 0; look_around()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorCode::timeout,
                  fmt::format("rank {}: shrink(): rank {}, which is alive, did not come within {} ms; every rank that "
                              "is left calls shrink(): look there, or raise WEFT_TIMEOUT",
                              me, missing, timeout.count()));
    }
    std::this_thread::sleep_for(kNap);
  }
  std::vector<int> left;
  for (int rank = 0; rank < channel_.size(); ++rank) {
    if (!is_lost(rank)) left.push_back(rank);
  }
  return left;
}

bool Muster::has_posted(int peer, std::uint64_t posted) const {
  auto const& theirs = lines_of(peer);
  auto const is_there = [&] {
    auto const seen = theirs.posted.load(std::memory_order_acquire);
    return seen >> 32U == musters_ && seen >= posted;
  };
  if (is_there()) return true;
  bool const anew = theirs.musters.load(std::memory_order_acquire) > musters_;
  bool const gone = channel_.peer_state(peer) != PeerState::present;
  if (is_there()) return true;  // what it did before it went counts, so that all see the same
  if (!anew && !gone) return false;
  throw Error(ErrorCode::peer_lost, fmt::format("rank {}: shrink(): rank {} {} meanwhile", channel_.rank(), peer,
                                                gone ? "was lost" : "found another rank lost"));
}

// Looks at all of them all the time: one that lives may wait for this rank to see that another has gone.
void Muster::await_posts(std::vector<int> const& members, std::uint64_t posted, Deadline deadline,
                         std::chrono::milliseconds timeout) {
  auto const me = channel_.rank();
  while (true) {
    int missing = -1;
    for (int const peer : members) {
      if (peer != me && !has_posted(peer, posted)) missing = peer;
    }
    if (missing < 0) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(
          ErrorCode::timeout,
          fmt::format("rank {}: shrink(): rank {} is not through within {} ms; it is stuck or slow: look there, "
                      "or raise WEFT_TIMEOUT",
                      me, missing, timeout.count()));
    }
    std::this_thread::sleep_for(kNap);
  }
}

/// Where a rank is lost the others may find that in different places.
void Muster::fail_astray(std::vector<int> const& members, int peer) {
  bool const lost = std::any_of(members.begin(), members.end(), [&](int member) {
    return member != channel_.rank() && channel_.peer_state(member) != PeerState::present;
  });
  throw Error(
      lost ? ErrorCode::peer_lost : ErrorCode::system,
      fmt::format("rank {}: shrink(): rank {} is elsewhere: its part failed, see there", channel_.rank(), peer));
}

// A rank overwrites a block two posts later, which it reaches only after all have made the post between.
std::vector<std::byte> Muster::all_gather(std::vector<int> const& members, std::span<std::byte const> mine,
                                          std::chrono::milliseconds timeout) {
  auto const me = channel_.rank();
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<std::byte> all(members.size() * mine.size());
  std::size_t first = 0;
  do {
    auto const length = std::min(MusterLines::kBlockBytes, mine.size() - first);
    auto const parity = ++posts_ % 2;
    auto const posted = musters_ << 32U | posts_;
    auto& own = lines_of(me);
    own.lengths[parity] = static_cast<std::uint32_t>(mine.size());
    if (length > 0) std::memcpy(own.blocks[parity], mine.data() + first, length);
    own.posted.store(posted, std::memory_order_release);
    await_posts(members, posted, deadline, timeout);
    for (std::size_t i = 0; i < members.size(); ++i) {
      auto const& theirs = lines_of(members[i]);
      if (theirs.lengths[parity] != mine.size()) fail_astray(members, members[i]);
      if (length > 0) std::memcpy(all.data() + i * mine.size() + first, theirs.blocks[parity], length);
    }
    first += length;
  } while (first < mine.size());
  return all;
}

ShmSurvivors::ShmSurvivors(Muster& muster, int rank, std::chrono::milliseconds timeout)
    : muster_(muster),
      timeout_(timeout),
      members_(muster.call(timeout)),
      rank_(static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin())) {}

}  // namespace weft::shm
