// all_gather over shared memory: n ranks, each sends B bytes (the longest, when unequal) and ends with n·B.
//   inline   1 synchronisation, B ≤ 56;
//   swapped  1 synchronisation a block, two ranks: writes B + 2B, reads B + B, the peer's from memory it wrote last;
//   staged   1 synchronisation a block, writes B + n·B, reads B + n·B;
//   fetched  2 synchronisations, reads and writes n·B: each rank pulls from the peers' private memory;
//   direct   2 synchronisations, reads and writes n·B: each rank pulls from the peers' send buffers; 3 where two ranks
//            take lines that their owners read as well.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "kernels/cpu/short_copy.hpp"

namespace weft::shm {

void ShmBackend::all_gather(Call const& call) {
  auto const equal = call.recv_parts.counts.empty();
  auto const mean = equal ? call.bytes() : call.bytes() / static_cast<std::size_t>(size());
  if (call.contract.count == 0) return barrier(call);
  if (equal && mean <= kInlineBytes) return all_gather_inline(call);
  select(
      call, Collective::all_gather, mean * static_cast<std::size_t>(size()),
      [&] {
        // Of the receive buffer only the place of this rank's own part matters to the others; parts may lie elsewhere
        // on each rank.
        auto const mine = call.part(call.recv_parts, rank());
        return negotiate(call, mine.length, {at(call.recv, mine.offset), mine.length}, Needs::send);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        switch (choice.algorithm) {
          case Algorithm::swapped: return all_gather_swapped(call, choice, announced);
          case Algorithm::fetched: return all_gather_fetched(call);
          case Algorithm::direct: return all_gather_direct(call, *buffers);
          default: return all_gather_staged(call, choice, announced);
        }
      });
}

void ShmBackend::all_gather_inline(Call const& call) {
  if (explainer_) explain_inline(call, kInlineBytes);
  auto const bytes = call.bytes();
  auto const part = [&](int of) { return at(call.recv, static_cast<std::size_t>(of) * bytes); };
  announce(call, call.send, bytes);
  await_announcements();
  for (int peer = 0; peer < size(); ++peer)
    kernels::copy_short(part(peer), peer == rank() ? call.send : channel_.payload(peer), bytes);
}

void ShmBackend::all_gather_swapped(Call const& call, Choice const& choice, bool announced) {
  auto const mine = call.part(call.recv_parts, rank());
  auto const theirs = call.part(call.recv_parts, peer());
  auto* const own = at(call.recv, mine.offset);
  auto const store = store_for(call, (2 * mine.length + theirs.length) / 2, false);
  swap_blocks(
      call, announced, std::max(mine.length, theirs.length), choice.chunk_bytes,
      [&](std::byte* block, std::size_t first, std::size_t length) {
        kernels::copy(block, at(call.send, first), overlap(mine, first, length));
      },
      [&](std::size_t first, std::size_t length) {
        if (own != call.send) kernels::copy(own + first, at(call.send, first), overlap(mine, first, length), store);
      },
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        kernels::copy(at(call.recv, theirs.offset + first), block, overlap(theirs, first, length), store);
      });
}

void ShmBackend::all_gather_staged(Call const& call, Choice const& choice, bool announced) {
  auto const mine = call.part(call.recv_parts, rank());
  std::size_t longest = 0;
  std::size_t all = 0;
  for (int peer = 0; peer < size(); ++peer) {
    auto const length = call.part(call.recv_parts, peer).length;
    longest = std::max(longest, length);
    all += length;
  }
  auto const store = store_for(call, (mine.length + all) / 2, false);
  for (std::size_t first = 0; first < longest; first += choice.chunk_bytes) {
    auto const offset = ring_.take(std::min(choice.chunk_bytes, longest - first));
    stage(offset, at(call.send, first), overlap(mine, first, choice.chunk_bytes));
    exchange_block(call, announced || first > 0, [&] {
      auto* const own = at(call.recv, mine.offset + first);
      auto const* const source = at(call.send, first);
      if (own != source) kernels::copy(own, source, overlap(mine, first, choice.chunk_bytes), store);
    });
    for (int step = 1; step < size(); ++step) {
      auto const peer = (rank() + step) % size();  // each starts elsewhere, so that no rank's memory is everyone's next
      auto const part = call.part(call.recv_parts, peer);
      kernels::copy(at(call.recv, part.offset + first), ring_.at(peer, offset),
                    overlap(part, first, choice.chunk_bytes), store);
    }
  }
}

void ShmBackend::all_gather_fetched(Call const& call) {
  for (int step = 0; step < size(); ++step) {
    auto const peer = (rank() + step) % size();
    auto const part = call.part(call.recv_parts, peer);
    fetch(call, peer, 0, at(call.recv, part.offset), part.length);
  }
  channel_.meet_readers();
}

void ShmBackend::all_gather_direct(Call const& call, Symmetric const& buffers) {
  std::size_t all = 0;
  for (int peer = 0; peer < size(); ++peer) all += call.part(call.recv_parts, peer).length;
  auto const store = store_for(call, (call.part(call.recv_parts, rank()).length + all) / 2, false);
  if (size() == 2) return all_gather_of_two(call, buffers, all, store);
  for (int step = 0; step < size(); ++step) {
    auto const peer = (rank() + step) % size();
    auto const part = call.part(call.recv_parts, peer);
    auto* const destination = at(call.recv, part.offset);
    if (destination != buffers.send[peer]) kernels::copy(destination, buffers.send[peer], part.length, store);
  }
  channel_.meet_readers();
}

/// Out of place each rank also reads what it sends, and does so first and by itself: lines that their own rank has read
/// last are dear to take once they have left L2.
void ShmBackend::all_gather_of_two(Call const& call, Symmetric const& buffers, std::size_t all, kernels::Store store) {
  auto const half = (all / 2 + all) / 2;
  auto const part = [&](int r) { return call.part(call.recv_parts, r); };
  auto const reads_its_own = [&](int r) { return !buffers.has_recvs || buffers.recv[r] != buffers.send[r]; };
  auto const is_taken = [&](int r) {
    return copies_take(half) && (!reads_its_own(r) || half <= tuning_.l2_bytes / 8 * 3);
  };
  auto const waits_for = [&](int r) { return is_taken(r) && reads_its_own(r); };
  auto* const own = at(call.recv, part(rank()).offset);
  if (own != call.send) kernels::copy(own, call.send, part(rank()).length, store);
  if (waits_for(0) || waits_for(1)) channel_.meet();
  copy_from_peer(peer(), at(call.recv, part(peer()).offset), buffers.send[peer()], part(peer()).length,
                 manner_of(store, is_taken(peer())));
  channel_.meet_readers();
}

}  // namespace weft::shm
