// all_reduce, and reduce (which only its root keeps), over shared memory. With n ranks and B bytes, per rank:
//   inline     1 synchronisation, B ≤ 56;
//   swapped    1 synchronisation a block, two ranks: writes B (staging) + B, reads 2B, one of them written by the peer;
//   one phase  1 synchronisation, writes 2B (staging, result), reads (n + 1)B;
//   two phases 2 synchronisations, writes 2B + B/n, reads about 3B: rank r reduces part r, then all copy all parts;
//   direct     2 synchronisations, reads B and writes B in all ranks' own memory: rank r reduces part r of all buffers
//              and writes it to all. 3 where two ranks take lines, out of place: each writes the result to its own
//              buffer only, and the peer copies it from there.
#include <algorithm>

#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::all_reduce(Call const& call) {
  if (call.bytes() <= inline_bytes(call)) return all_reduce_inline(call);
  select(
      call, Collective::all_reduce, call.bytes(),
      [&] {
        return negotiate(call, call.bytes(), whole_recv(call, keeps_result(call) ? call.bytes() : 0), Needs::both);
      },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        all_reduce_by(call, choice, buffers, announced);
      });
}

void ShmBackend::all_reduce_by(Call const& call, Choice const& choice, Symmetric const* buffers, bool announced) {
  switch (choice.algorithm) {
    case Algorithm::swapped: return all_reduce_swapped(call, choice, announced);
    case Algorithm::direct:
    case Algorithm::direct_claimed: return all_reduce_direct(call, choice, *buffers);
    default: return all_reduce_staged(call, choice, announced);
  }
}

void ShmBackend::all_reduce_inline(Call const& call) {
  if (explainer_) explain_inline(call, inline_bytes(call));
  announce(call, call.send, call.bytes());
  await_announcements();
  if (keeps_result(call)) reduce_announced(call, 0);
}

/// Reduces a call's part of what was announced, which begins at `offset` bytes of each payload.
void ShmBackend::reduce_announced(Call const& call, std::size_t offset) {
  std::array<void const*, kMaxRanks> sources;
  for (int peer = 0; peer < size(); ++peer)
    sources[peer] = at(peer == rank() ? call.send : channel_.payload(peer), offset);
  reduce_to(call, call.bytes() / call.grain(), sources, call.recv, kernels::Store::cached);
}

void ShmBackend::all_reduce_swapped(Call const& call, Choice const& choice, bool announced) {
  auto const element = call.grain();
  auto const store = store_for(call, call.bytes(), call.send == call.recv);
  std::array<void const*, kMaxRanks> sources;
  swap_blocks(
      call, announced, call.bytes(), swapped_block(call, choice),
      [&](std::byte* block, std::size_t first, std::size_t length) {
        kernels::copy(block, at(call.send, first), length);
      },
      kKeepsNothing,
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        if (!keeps_result(call)) return;
        sources[rank()] = at(call.send, first);
        sources[peer()] = block;
        reduce_to(call, length / element, sources, at(call.recv, first), store);
      });
}

void ShmBackend::all_reduce_staged(Call const& call, Choice const& choice, bool announced) {
  auto const element = call.grain();
  auto const count = call.bytes() / element;
  auto const block = choice.chunk_bytes / element;
  std::size_t claimed = 0;
  for (std::size_t index = 0; index * block < count; ++index) {
    auto const range = block_of(count, index, block);
    auto const offset = ring_.take(range.count * element);
    stage(offset, at(call.send, range.first * element), range.count * element);
    exchange_block(call, announced || index > 0);
    // What is left of a long call goes as a call of that size would.
    auto const* const small = selector_.by_size(Collective::all_reduce, range.count * element);
    all_reduce_block(call, small != nullptr ? small->algorithm : choice.algorithm, offset, range.first, range.count,
                     claimed);
  }
  if (!ring_stores_.streams(call.bytes())) ring_.prefetch(rank(), std::min(call.bytes(), tuning_.prefetch_bytes));
}

/// Every rank has staged elements [first, first + count) at `offset`.
void ShmBackend::all_reduce_block(Call const& call, Algorithm algorithm, std::size_t offset, std::size_t first,
                                  std::size_t count, std::size_t& claimed) {
  auto const& contract = call.contract;
  auto const element = call.grain();
  auto const ranks = static_cast<std::size_t>(size());
  auto const store = store_for(call, call.bytes(), call.send == call.recv);
  std::array<void const*, kMaxRanks> sources;
  auto const reduce_range = [&](Range range, std::span<void* const> destinations, kernels::Store how) {
    for (int peer = 0; peer < size(); ++peer) sources[peer] = ring_.at(peer, offset + range.first * element);
    kernels::reduce(destinations, {sources.data(), ranks}, range.count, contract.dtype, reducer(call), how);
  };

  if (algorithm == Algorithm::one_phase) {
    if (!keeps_result(call)) return;
    void* const destination = at(call.recv, first * element);
    return reduce_range({0, count}, {&destination, 1}, store);
  }
  if (algorithm == Algorithm::claimed) {
    // Results replace rank 0's staged elements, which only the claimant of a chunk reads.
    auto const chunk = tuning_.claim_bytes / element;
    auto const chunks = claimed + ceil_div(count, chunk);
    while (auto const taken = channel_.claim(chunks)) {
      auto const range = block_of(count, *taken - claimed, chunk);
      void* const destination = ring_.at(0, offset + range.first * element);
      reduce_range(range, {&destination, 1}, kernels::Store::cached);
      channel_.finish_claimed(chunks);
    }
    channel_.await_claimed(chunks);
    claimed = chunks;
    if (!keeps_result(call)) return;
    return kernels::copy(at(call.recv, first * element), ring_.at(0, offset), count * element, store);
  }
  // Results replace this rank's staged part, which only this rank reads.
  auto const mine = part_of(count, static_cast<std::size_t>(rank()), ranks, element);
  std::array<void*, 2> const destinations{ring_.at(rank(), offset + mine.first * element),
                                          at(call.recv, (first + mine.first) * element)};
  reduce_range(mine, {destinations.data(), keeps_result(call) ? 2U : 1U}, kernels::Store::cached);
  channel_.meet();
  if (!keeps_result(call)) return;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    if (peer == static_cast<std::size_t>(rank())) continue;
    auto const part = part_of(count, peer, ranks, element);
    kernels::copy(at(call.recv, (first + part.first) * element),
                  ring_.at(static_cast<int>(peer), offset + part.first * element), part.count * element, store);
  }
}

void ShmBackend::all_reduce_direct(Call const& call, Choice const& choice, Symmetric const& buffers) {
  auto const element = call.grain();
  auto const count = call.bytes() / element;
  auto const ranks = static_cast<std::size_t>(size());
  auto const manner = manner_of(call, call.bytes(), call.send == call.recv);
  if (ranks == 2 && takes(call.bytes()) && !buffers.in_place) return all_reduce_taking(call, buffers, manner);
  auto const reduce_range = [&](Range range) {
    std::array<void const*, kMaxRanks> sources;
    std::array<void*, kMaxRanks> destinations;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      auto* const recv = buffers.recv[peer];
      sources[peer] = at(buffers.send[peer], range.first * element);
      destinations[peer] = recv == nullptr ? nullptr : at(recv, range.first * element);
    }
    reduce_to_all(call, range.count, sources, destinations, manner.store);
  };

  if (choice.algorithm == Algorithm::direct_claimed) {
    auto const chunk = choice.chunk_bytes / element;
    auto const chunks = ceil_div(count, chunk);
    while (auto const taken = channel_.claim(chunks)) {
      reduce_range(block_of(count, *taken, chunk));
      channel_.end_reading();
      channel_.finish_claimed(chunks);
    }
    return channel_.await_claimed(chunks);
  }
  reduce_range(part_of(count, static_cast<std::size_t>(rank()), ranks, element));
  channel_.meet_readers();
}

/// For two ranks, each of which writes its own memory only, and takes the lines that it reads of the other's.
void ShmBackend::all_reduce_taking(Call const& call, Symmetric const& buffers, Manner manner) {
  auto const element = call.grain();
  auto const count = call.bytes() / element;
  auto const reduce_range = [&](Range range) {
    std::array<void const*, kMaxRanks> sources;
    for (int r = 0; r < size(); ++r) sources[r] = at(buffers.send[r], range.first * element);
    reduce_from_all(call, range.count, sources, at(call.recv, range.first * element), manner);
  };
  if (call.contract.operation == Operation::reduce) {
    if (keeps_result(call)) reduce_range({0, count});
    return channel_.meet_readers();  // the peer may write its send buffer again
  }
  reduce_range(part_of(count, static_cast<std::size_t>(rank()), 2, element));
  channel_.meet_readers();
  auto const theirs = part_of(count, static_cast<std::size_t>(peer()), 2, element);
  copy_from_peer(peer(), at(call.recv, theirs.first * element), at(buffers.recv[peer()], theirs.first * element),
                 theirs.count * element, manner);
  channel_.meet_readers();
}

}  // namespace weft::shm
