// all_gather over shared memory: n ranks, each sends B bytes and ends with n·B.
//   inline   1 synchronisation, B ≤ 56;
//   swapped  1 synchronisation a block, two ranks: writes B + 2B, reads B + B, the peer's from memory it wrote last;
//   staged   1 synchronisation a block, writes B + n·B, reads B + n·B;
//   direct   2 synchronisations, reads and writes n·B: each rank pulls from the peers' send buffers.
#include "collectives/shm/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {

void ShmBackend::all_gather(Call const& call) {
  if (call.bytes() <= kInlineBytes) return all_gather_inline(call);
  if (call.bytes() <= tuning_.staged_bytes / static_cast<std::size_t>(size())) {
    return swaps() ? all_gather_swapped(call, false) : all_gather_staged(call, false);
  }
  if (auto const buffers = negotiate(call, call.bytes(), 0, Needs::send)) return all_gather_direct(call, *buffers);
  swaps() ? all_gather_swapped(call, true) : all_gather_staged(call, true);
}

void ShmBackend::all_gather_inline(Call const& call) {
  announce(call, call.send, call.bytes());
  await_announcements();
  for (int peer = 0; peer < size(); ++peer) {
    auto const* const source = peer == rank() ? call.send : channel_.payload(peer);
    std::memmove(at(call.recv, static_cast<std::size_t>(peer) * call.bytes()), source, call.bytes());
  }
}

void ShmBackend::all_gather_swapped(Call const& call, bool announced) {
  auto const bytes = call.bytes();
  auto* const own = at(call.recv, static_cast<std::size_t>(rank()) * bytes);
  auto* const theirs = at(call.recv, static_cast<std::size_t>(peer()) * bytes);
  auto const store = store_for(2 * bytes, false);
  swap_blocks(
      call, announced, bytes,
      [&](std::byte* block, std::size_t first, std::size_t length) {
        kernels::copy(block, at(call.send, first), length);
        if (own != call.send) kernels::copy(own + first, at(call.send, first), length, store);
      },
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        kernels::copy(theirs + first, block, length, store);
      });
}

void ShmBackend::all_gather_staged(Call const& call, bool announced) {
  auto const bytes = call.bytes();
  auto const store = store_for(bytes * static_cast<std::size_t>(size()), false);
  for (std::size_t first = 0, index = 0; first < bytes; first += tuning_.chunk_bytes, ++index) {
    auto const length = std::min(tuning_.chunk_bytes, bytes - first);
    auto const offset = ring_.take(length);
    kernels::copy(ring_.at(rank(), offset), at(call.send, first), length);
    exchange_block(call, announced || index > 0);
    for (int step = 0; step < size(); ++step) {
      auto const peer = (rank() + step) % size();  // each starts elsewhere, so that no rank's memory is everyone's next
      auto* const destination = at(call.recv, static_cast<std::size_t>(peer) * bytes + first);
      if (peer == rank()) {
        if (destination != at(call.send, first)) kernels::copy(destination, at(call.send, first), length, store);
      } else {
        kernels::copy(destination, ring_.at(peer, offset), length, store);
      }
    }
  }
}

void ShmBackend::all_gather_direct(Call const& call, Symmetric const& buffers) {
  auto const bytes = call.bytes();
  auto const store = store_for(bytes * static_cast<std::size_t>(size()), false);
  for (int step = 0; step < size(); ++step) {
    auto const peer = (rank() + step) % size();
    auto* const destination = at(call.recv, static_cast<std::size_t>(peer) * bytes);
    if (destination != buffers.send[peer]) kernels::copy(destination, buffers.send[peer], bytes, store);
  }
  channel_.meet();
}

}  // namespace weft::shm
