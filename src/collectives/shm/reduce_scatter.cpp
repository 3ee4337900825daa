// reduce_scatter over shared memory: n ranks, each ends with B bytes of the n·B it sends (B: the longest, when
// unequal).
//   inline   1 synchronisation, n·B ≤ 56;
//   swapped  1 synchronisation a block, two ranks: writes B, reads B, each from memory the other wrote last;
//   staged   1 synchronisation a block, writes n·B, reads (2n - 1)·B;
//   direct   2 synchronisations, reads n·B out of the peers' send buffers, writes B.
#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::reduce_scatter(Call const& call) {
  auto const equal = call.send_parts.counts.empty();
  auto const send_bytes = call.bytes() * (equal ? static_cast<std::size_t>(size()) : 1);
  if (call.contract.count == 0) return barrier(call);
  if (equal && send_bytes <= inline_bytes(call)) return reduce_scatter_inline(call);
  select(
      call, Collective::reduce_scatter, send_bytes,
      [&] {
        std::size_t end = equal ? send_bytes : 0;  // parts may overlap, and be longer together than the buffer
        for (int shard = 0; shard < size() && !equal; ++shard) {
          auto const part = call.part(call.send_parts, shard);
          end = std::max(end, part.offset + part.length);
        }
        return negotiate(call, end, {}, Needs::send);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        switch (choice.algorithm) {
          case Algorithm::swapped: return reduce_scatter_swapped(call, choice, announced);
          case Algorithm::direct: return reduce_scatter_direct(call, *buffers);
          default: return reduce_scatter_staged(call, choice, announced);
        }
      });
}

void ShmBackend::reduce_scatter_inline(Call const& call) {
  if (explainer_) explain_inline(call, inline_bytes(call));
  announce(call, call.send, call.bytes() * static_cast<std::size_t>(size()));
  await_announcements();
  reduce_announced(call, static_cast<std::size_t>(rank()) * call.bytes());
}

void ShmBackend::reduce_scatter_swapped(Call const& call, Choice const& choice, bool announced) {
  auto const theirs = call.part(call.send_parts, peer());
  auto const mine = call.part(call.send_parts, rank());
  auto const store = store_for(call, mine.length, false);
  std::array<void const*, kMaxRanks> sources;
  swap_blocks(
      call, announced, std::max(mine.length, theirs.length), choice.chunk_bytes,
      [&](std::byte* block, std::size_t first, std::size_t length) {
        kernels::copy(block, at(call.send, theirs.offset + first), overlap(theirs, first, length));
      },
      kKeepsNothing,
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        sources[rank()] = at(call.send, mine.offset + first);
        sources[peer()] = block;
        reduce_to(call, overlap(mine, first, length) / call.grain(), sources, at(call.recv, first), store);
      });
}

void ShmBackend::reduce_scatter_staged(Call const& call, Choice const& choice, bool announced) {
  auto const element = call.grain();
  auto const ranks = static_cast<std::size_t>(size());
  auto const mine = call.part(call.send_parts, rank());
  std::size_t longest = 0;
  for (int shard = 0; shard < size(); ++shard) longest = std::max(longest, call.part(call.send_parts, shard).length);
  // A block holds the same range of every rank's shard, each at a cache line of its own.
  auto const block = call.whole_grains(std::max({kLine, element, choice.chunk_bytes / ranks / kLine * kLine}));
  auto const store = store_for(call, mine.length, false);
  for (std::size_t first = 0; first < longest; first += block) {
    auto const length = std::min(block, longest - first);
    auto const piece = ceil_div(length, kLine) * kLine;
    auto const offset = ring_.take(piece * ranks);
    std::size_t staged = 0;
    for (int shard = 0; shard < size(); ++shard) {
      if (shard != rank()) staged += overlap(call.part(call.send_parts, shard), first, length);
    }
    ring_stores_.fill(staged, [&](kernels::Store how) {
      for (int shard = 0; shard < size(); ++shard) {
        if (shard == rank()) continue;
        auto const part = call.part(call.send_parts, shard);
        kernels::copy(ring_.at(rank(), offset + static_cast<std::size_t>(shard) * piece),
                      at(call.send, part.offset + first), overlap(part, first, length), how);
      }
    });
    exchange_block(call, announced || first > 0);
    std::array<void const*, kMaxRanks> sources;
    for (int peer = 0; peer < size(); ++peer)
      sources[peer] = peer == rank() ? at(call.send, mine.offset + first)
                                     : ring_.at(peer, offset + static_cast<std::size_t>(rank()) * piece);
    reduce_to(call, overlap(mine, first, length) / element, sources, at(call.recv, first), store);
  }
}

void ShmBackend::reduce_scatter_direct(Call const& call, Symmetric const& buffers) {
  auto const mine = call.part(call.send_parts, rank());
  std::array<void const*, kMaxRanks> sources;
  for (int peer = 0; peer < size(); ++peer) sources[peer] = at(buffers.send[peer], mine.offset);
  reduce_from_all(call, mine.length / call.grain(), sources, call.recv, manner_of(call, mine.length, false));
  channel_.meet_readers();  // the peers may write their send buffers once all have read them
}

}  // namespace weft::shm
