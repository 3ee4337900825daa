#include "collectives/ucx/announcer.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/host_order.hpp"

namespace weft::ucx {

void Announcer::announce(Purpose const& purpose, Call const& call) {
  root_ = kNone;
  bytes_ = 0;
  run(purpose, call, nullptr);
}

void Announcer::exchange(Purpose const& purpose, Call const& call, void const* mine, std::size_t bytes) {
  root_ = kNone;
  bytes_ = bytes;
  run(purpose, call, mine);
}

void Announcer::broadcast(Purpose const& purpose, Call const& call, void const* block, std::size_t bytes) {
  root_ = static_cast<int>(call.contract.root);
  bytes_ = bytes;
  run(purpose, call, channel_.rank() == root_ ? block : nullptr);
}

std::byte const* Announcer::block_of(int rank) const noexcept {
  auto const n = channel_.size();
  auto const index = root_ == kNone ? (rank - channel_.rank() + n) % n : 0;
  return outgoing_.data() + sizeof(Header) + static_cast<std::size_t>(index) * bytes_;
}

std::size_t Announcer::blocks_in(int first, int count) const noexcept {
  if (root_ == kNone) return static_cast<std::size_t>(count);
  auto const n = channel_.size();
  return ((root_ - first) % n + n) % n < count ? 1 : 0;
}

void Announcer::run(Purpose const& purpose, Call const& call, void const* mine) {
  auto const n = channel_.size();
  header_ = {};
  header_.contract = PackedContract(call.contract);
  header_.rank = channel_.rank();
  auto const blocks = blocks_in(0, n);
  // A rank whose call differs may send more than this one expects, so receive up to the limit.
  auto const ranks = static_cast<std::size_t>(n);
  capacity_ = sizeof(Header) + std::max(kMostBytes, ranks * most_combined_at_once(ranks));
  outgoing_.resize(std::max(outgoing_.size(), sizeof(Header) + std::max(blocks * bytes_, sizeof differing_)));
  incoming_.resize(std::max(incoming_.size(), capacity_));
  if (mine != nullptr && bytes_ > 0) std::memcpy(outgoing_.data() + sizeof(Header), mine, bytes_);
  for (int have = 1; have < n; have *= 2) step(purpose, have);
  if (call.met != nullptr) *call.met = std::chrono::steady_clock::now();
  if (header_.other == kNone) return;
  throw Error(ErrorCode::mismatch,
              describe_mismatch(call.number(), channel_.rank(), call.contract, header_.other, differing_.unpack()) +
                  " (nothing was moved)");
}

void Announcer::step(Purpose const& purpose, int have) {
  auto const n = channel_.size();
  auto const count = std::min(have, n - have);
  auto const gives = blocks_in(channel_.rank(), count) * bytes_;
  auto const gets = blocks_in(channel_.rank() + have, count) * bytes_;
  std::memcpy(outgoing_.data(), &header_, sizeof header_);
  auto const differs = header_.other != kNone;
  if (differs) std::memcpy(outgoing_.data() + sizeof header_, &differing_, sizeof differing_);
  swap(purpose, have, differs ? sizeof differing_ : gives);
  Header theirs;
  std::memcpy(&theirs, incoming_.data(), sizeof theirs);
  PackedContract differing = theirs.contract;
  if (theirs.other != kNone) std::memcpy(&differing, incoming_.data() + sizeof theirs, sizeof differing);
  note(theirs, differing);
  if (header_.other != kNone || gets == 0) return;
  auto const place = root_ == kNone ? static_cast<std::size_t>(have) * bytes_ : 0;
  std::memcpy(outgoing_.data() + sizeof(Header) + place, incoming_.data() + sizeof(Header), gets);
}

void Announcer::swap(Purpose const& purpose, int distance, std::size_t gives) {
  struct Pair {
    Worker& worker;
    Pending incoming{};
    Pending outgoing{};
    ~Pair() {
      if (incoming.is_done() && outgoing.is_done()) return;
      Pending* const both[] = {&incoming, &outgoing};
      worker.abandon(both);
    }
  } pair{channel_.worker()};
  auto const n = channel_.size();
  auto const from = (channel_.rank() + distance) % n;
  auto const to = (channel_.rank() - distance + n) % n;
  channel_.throw_if_failed(&purpose);
  pair.worker.start_send(pair.outgoing, to, {Tag::Kind::announcement, channel_.rank()},
                         {outgoing_.data(), sizeof(Header) + gives});
  pair.worker.start_recv(pair.incoming, from, {Tag::Kind::announcement, from}, {incoming_.data(), capacity_});
  auto const fits = channel_.wait(purpose, pair.incoming) && channel_.wait(purpose, pair.outgoing);
  if (!fits || pair.incoming.bytes() < sizeof(Header)) {
    channel_.fail_with(ErrorCode::system, "an announcement of another kind came: ranks run different versions of Weft");
  }
}

void Announcer::note(Header const& theirs, PackedContract const& differing) noexcept {
  if (header_.other != kNone) return;
  if (theirs.contract != header_.contract) {
    header_.other = theirs.rank;
    differing_ = theirs.contract;
  } else if (theirs.other != kNone) {
    header_.other = theirs.other;
    differing_ = differing;
  }
}

}  // namespace weft::ucx
