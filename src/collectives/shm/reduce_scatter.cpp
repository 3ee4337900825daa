// reduce_scatter over shared memory: n ranks, each ends with B bytes of the n·B it sends.
//   inline   1 synchronisation, n·B ≤ 56;
//   swapped  1 synchronisation a block, two ranks: writes B, reads B, each from memory the other wrote last;
//   staged   1 synchronisation a block, writes n·B + B, reads 2n·B;
//   direct   2 synchronisations, reads n·B out of the peers' send buffers, writes B.
#include "collectives/shm/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::reduce_scatter(Call const& call) {
  auto const send_bytes = call.bytes() * static_cast<std::size_t>(size());
  if (send_bytes <= kInlineBytes) return reduce_scatter_inline(call);
  if (send_bytes <= tuning_.staged_bytes) {
    return swaps() ? reduce_scatter_swapped(call, false) : reduce_scatter_staged(call, false);
  }
  if (auto const buffers = negotiate(call, send_bytes, call.bytes(), Needs::send))
    return reduce_scatter_direct(call, *buffers);
  swaps() ? reduce_scatter_swapped(call, true) : reduce_scatter_staged(call, true);
}

void ShmBackend::reduce_scatter_inline(Call const& call) {
  announce(call, call.send, call.bytes() * static_cast<std::size_t>(size()));
  await_announcements();
  std::array<void const*, kMaxRanks> sources;
  auto const shard = static_cast<std::size_t>(rank()) * call.bytes();
  for (int peer = 0; peer < size(); ++peer)
    sources[peer] = at(peer == rank() ? call.send : channel_.payload(peer), shard);
  reduce_to(call, call.contract.count, sources, call.recv, kernels::Store::cached);
}

void ShmBackend::reduce_scatter_swapped(Call const& call, bool announced) {
  auto const bytes = call.bytes();
  auto const* const for_peer = at(call.send, static_cast<std::size_t>(peer()) * bytes);
  auto const* const mine = at(call.send, static_cast<std::size_t>(rank()) * bytes);
  auto const store = store_for(bytes, false);
  std::array<void const*, kMaxRanks> sources;
  swap_blocks(
      call, announced, bytes,
      [&](std::byte* block, std::size_t first, std::size_t length) { kernels::copy(block, for_peer + first, length); },
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        sources[rank()] = mine + first;
        sources[peer()] = block;
        reduce_to(call, length / size_of(call.contract.dtype), sources, at(call.recv, first), store);
      });
}

void ShmBackend::reduce_scatter_staged(Call const& call, bool announced) {
  auto const element = size_of(call.contract.dtype);
  auto const count = call.contract.count;
  auto const ranks = static_cast<std::size_t>(size());
  // A block holds the same range of every rank's shard, each at a cache line of its own.
  auto const limit = announced ? tuning_.chunk_bytes : tuning_.staged_bytes;
  auto const block = std::max<std::size_t>(1, limit / ranks / 64 * 64 / element);
  for (std::size_t index = 0; index * block < count; ++index) {
    auto const range = block_of(count, index, block);
    auto const piece = ceil_div(range.count * element, 64) * 64;
    auto const offset = ring_.take(piece * ranks);
    for (std::size_t shard = 0; shard < ranks; ++shard) {
      kernels::copy(ring_.at(rank(), offset + shard * piece), at(call.send, (shard * count + range.first) * element),
                    range.count * element);
    }
    exchange_block(call, announced || index > 0);
    std::array<void const*, kMaxRanks> sources;
    for (int peer = 0; peer < size(); ++peer)
      sources[peer] = ring_.at(peer, offset + static_cast<std::size_t>(rank()) * piece);
    reduce_to(call, range.count, sources, at(call.recv, range.first * element), store_for(call.bytes(), false));
  }
}

void ShmBackend::reduce_scatter_direct(Call const& call, Symmetric const& buffers) {
  std::array<void const*, kMaxRanks> sources;
  for (int peer = 0; peer < size(); ++peer) {
    sources[peer] = at(buffers.send[peer], static_cast<std::size_t>(rank()) * call.bytes());
  }
  reduce_to(call, call.contract.count, sources, call.recv, store_for(call.bytes(), false));
  channel_.meet();  // the peers may write their send buffers once all have read them
}

}  // namespace weft::shm
