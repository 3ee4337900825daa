// broadcast over shared memory: the root's B bytes to n ranks.
//   fed        no synchronisation, unless the root is many slots ahead: it writes B, the others read and write B;
//   two_level  2 synchronisations a block: one rank of each group reads the root's ring, the others read that rank's;
//   direct     1 synchronisation, then 1 between the root and each other rank: the root writes the first B / n to
//              every other rank, which reads the rest from the root: each rank moves B (n - 1) / n; where two ranks
//              take lines, the other rank reads all;
//   fetched    the same between private buffers, by the kernel.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::broadcast(Call const& call) {
  if (call.bytes() <= kInlineBytes) {  // the fastest, whatever was measured, and all ranks must do alike
    if (explainer_) explain_short_broadcast(call);
    return broadcast_short(call);
  }
  select(
      call, Collective::broadcast, call.bytes(), [&] { return negotiate(call, call.bytes(), {}, Needs::send); },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::direct) return broadcast_direct(call, buffers);
        if (choice.algorithm == Algorithm::fetched) return lend([&] { broadcast_direct(call, nullptr); });
        if (choice.algorithm == Algorithm::two_level) return broadcast_in_two_levels(call, choice, announced);
        is_short(announced, call.bytes()) ? broadcast_short(call) : broadcast_fed(call, announced);
      });
}

void ShmBackend::explain_short_broadcast(Call const& call) const {
  auto const* choice = selector_.by_size(Collective::broadcast, call.bytes());
  auto const is_chosen = choice != nullptr && choice->algorithm == Algorithm::fed;
  explain(call, Collective::broadcast, Memory::any, call.bytes(),
          is_chosen ? *choice : Choice{kInlineBytes, 0, Algorithm::fed});
}

void ShmBackend::broadcast_short(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const bytes = call.bytes();
  feed_short(call, [&] {
    if (rank() != root) return kernels::copy(call.recv, feeds_.get_short(root, bytes), bytes);
    feeds_.give_short(Feeds::kEverybody, bytes, [&](std::byte* place) { kernels::copy(place, call.send, bytes); });
  });
}

void ShmBackend::broadcast_fed(Call const& call, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const store = store_for(call, call.bytes() / 2, false);
  auto const block = Feeds::block_bytes(call.bytes());
  auto const way = Feeds::way_of(call.bytes());
  feed(call, announced, Feeds::Readers::all, call.bytes(), block, [&](std::size_t first, std::size_t length) {
    if (rank() == root) {
      feeds_.give(Feeds::kEverybody, length, way, 1, [&](std::byte* place, ByteRange part, kernels::Store how) {
        kernels::copy(place + part.offset, at(call.send, first + part.offset), part.length, how);
      });
    } else {
      feeds_.get(root, length, way, [&](std::byte const* place, ByteRange part) {
        kernels::copy(at(call.recv, first + part.offset), place + part.offset, part.length, store);
      });
    }
  });
}

void ShmBackend::broadcast_in_two_levels(Call const& call, Choice const& choice, bool announced) {
  auto const root = static_cast<int>(call.contract.root);
  auto const group = rank() / tuning_.group_ranks;
  auto const leader = group == root / tuning_.group_ranks ? root : group * tuning_.group_ranks;
  auto const store = store_for(call, call.bytes() / 2, false);
  auto const block = std::min(choice.chunk_bytes, ring_.max_block());  // the choice may be one for feeds
  for (std::size_t first = 0; first < call.bytes(); first += block) {
    auto const length = std::min(block, call.bytes() - first);
    auto const offset = ring_.take(length);
    if (rank() == root) stage(offset, at(call.send, first), length);
    exchange_block(call, announced || first > 0);
    if (rank() == leader && rank() != root) stage(offset, ring_.at(root, offset), length);
    channel_.meet();
    if (rank() != root) kernels::copy(at(call.recv, first), ring_.at(leader, offset), length, store);
  }
}

/// Every rank has one buffer, which it sends from or receives into. That is what it announces, or lends.
void ShmBackend::broadcast_direct(Call const& call, Symmetric const* buffers) {
  auto const root = static_cast<int>(call.contract.root);
  auto const manner = manner_of(call, call.bytes() / 2, false);
  auto const one_takes_all = size() == 2 && buffers != nullptr && takes(call.bytes() / 2);
  auto const pushed = one_takes_all ? 0 : call.bytes() / static_cast<std::size_t>(size()) / kLine * kLine;
  auto const pulled = call.bytes() - pushed;
  if (rank() != root && buffers == nullptr) fetch(call, root, pushed, at(call.recv, pushed), pulled);
  if (rank() != root && one_takes_all) copy_from_peer(root, call.recv, buffers->send[root], call.bytes(), manner);
  if (rank() != root && !one_takes_all && buffers != nullptr)
    kernels::copy(at(call.recv, pushed), at(buffers->send[root], pushed), pulled, manner.store);
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    if (peer == root) continue;
    buffers == nullptr ? push(call, peer, 0, call.send, pushed)
                       : copy_to_peer(peer, buffers->send[peer], call.send, pushed, manner.store);
  }
  channel_.end_reading();
  channel_.report_with(root);
}

}  // namespace weft::shm
