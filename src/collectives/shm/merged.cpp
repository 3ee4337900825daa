// Merged calls over shared memory, B bytes of units in all:
//   direct   2 synchronisations: ranks work in one another's buffers, which lie alike in symmetric memory on all ranks;
//   swapped  1 synchronisation a block, two ranks: pieces are staged side by side and taken apart by the peer;
//   flat     what the plain call costs, and a copy to and from a contiguous buffer.
#include "collectives/merged_call.hpp"

#include <fmt/format.h>

#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"

namespace weft::shm {
namespace {

/// Mean bytes of a piece from which reaching it where it lies costs less than staging it.
constexpr std::size_t kDirectPiece = 2048;
/// Bytes of the next piece that are prefetched while one is worked on, because prefetchers start anew at every piece.
constexpr std::size_t kAhead = 1024;

bool reduces(Operation operation) noexcept {
  return operation == Operation::all_reduce || operation == Operation::reduce || operation == Operation::reduce_scatter;
}

bool goes_to_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::gather;
}

bool comes_from_root(Operation operation) noexcept {
  return operation == Operation::broadcast || operation == Operation::scatter;
}

bool scans(Operation operation) noexcept {
  return operation == Operation::scan || operation == Operation::exscan;
}

bool in_place(MergedCall const& merged) noexcept {
  auto const& pieces = merged.pieces();
  return std::any_of(pieces.begin(), pieces.end(), [](Piece const& piece) { return piece.send == piece.recv; });
}

/// Whether every rank can tell from its own buffers where those of the others lie, if all lie alike.
bool can_be_direct(MergedCall const& merged) noexcept {
  switch (merged.call().contract.operation) {
    case Operation::all_reduce:
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::broadcast:
    case Operation::gather: return true;
    case Operation::all_to_all: return !in_place(merged);  // a pull would read what the peer has already replaced
    default: return false;
  }
}

bool pulls(Operation operation) noexcept {
  return operation == Operation::gather || operation == Operation::scatter || operation == Operation::all_to_all;
}

/// Fingerprints: different values agree with a probability of 2^-64.
std::uint64_t mix(std::uint64_t fingerprint, std::uint64_t value) noexcept {
  auto const mixed = (fingerprint ^ value) * 0x9e3779b97f4a7c15U;
  auto const result = mixed ^ (mixed >> 29U);
  return result != 0 ? result : 1;
}

/// Where rank `rank`'s part of a buffer begins.
std::size_t part_offset(bool parts, int rank, Piece const& piece) noexcept {
  return parts ? static_cast<std::size_t>(rank) * piece.bytes : 0;
}

}  // namespace

MergeLimits ShmBackend::merge_limits() const noexcept {
  if (size() == 1) return {};  // nothing to wait for, nothing to save
  if (size() == 2 && tuning_.swap_bytes > 0) return {std::size_t{16} << 20, std::size_t{64} << 20};
  // Pieces are copied to and fro: that pays where they are small, and stay in the caches.
  return {std::size_t{2} << 10, std::size_t{256} << 10};
}

void ShmBackend::merged(MergedCall const& merged) {
  auto const& call = merged.call();
  auto const operation = call.contract.operation;
  auto const shape = merged.shape();
  auto const ranks = static_cast<std::size_t>(size());
  auto const sent = merged.bytes() * (shape.send_parts || shape.recv_parts ? ranks : 1);
  if (size() == 1 || scans(operation) || sent <= kInlineBytes) return merged_flat(merged, false);

  auto const swaps = size() == 2 && tuning_.swap_bytes > 0;
  // Whether a call is in place may differ between ranks, so that does not decide here. Flat pulls cannot run once
  // announced.
  auto const negotiates = sent > tuning_.staged_bytes && merged.bytes() / merged.pieces().size() >= kDirectPiece &&
                          (swaps || !pulls(operation));
  call.route = {negotiates ? Route::How::places_differ : Route::How::small};
  if (negotiates && negotiate_strides(merged)) {
    call.route = {Route::How::zero_copy};
    if (explainer_)
      explain_merged(merged, Memory::symmetric, "merged, direct", "in one another's symmetric memory, piece by piece");
    return merged_direct(merged);
  }
  if (swaps) {
    if (explainer_)
      explain_merged(merged, Memory::any, "merged, swapped", "side by side through the blocks that change hands");
    return merged_swapped(merged, negotiates);
  }
  if (explainer_) explain_merged(merged, Memory::any, "merged, flat", "copied to and from one plain call");
  merged_flat(merged, negotiates);
}

void ShmBackend::explain_merged(MergedCall const& merged, Memory memory, std::string_view how,
                                std::string_view where) const {
  explainer_->note(merged, to_string(memory), how, where);
}

void ShmBackend::merged_flat(MergedCall const& merged, bool announced) {
  run_flat(*this, merged, rank(), size(), flat_, [&](Call const& flat) {
    if (!announced) return merged.run_plain(*this, flat);
    auto const choice = [&](Collective collective, int parts) -> Choice const& {
      return selector_.by_memory(collective, flat.bytes() * static_cast<std::size_t>(parts), Memory::other);
    };
    switch (flat.contract.operation) {
      case Operation::reduce_scatter:
        return reduce_scatter_staged(flat, choice(Collective::reduce_scatter, size()), true);
      case Operation::all_gather:
        return all_gather_staged(flat, staged_instead(choice(Collective::all_gather, size())), true);
      case Operation::broadcast: return broadcast_fed(flat, true);
      default: return all_reduce_staged(flat, choice(Collective::all_reduce, 1), true);
    }
  });
}

bool ShmBackend::negotiate_strides(MergedCall const& merged) {
  auto const ranks = static_cast<std::size_t>(size());
  auto const shape = merged.shape();
  auto const with_recv = merged.call().contract.operation == Operation::all_reduce;
  std::uint64_t places = can_be_direct(merged) ? 1 : 0;  // a fingerprint of them; 0: some are not symmetric
  SymmetricHeap::Part part;                              // the last one, in which most pieces lie too
  auto const locate = [&](void const* data, std::size_t bytes) -> std::ptrdiff_t {
    if (!part.holds(data, bytes)) {
      part = heap_.part_of(data, bytes);
      places = part.segment == 0 ? 0 : mix(places, part.segment);
    }
    if (part.segment == 0) return 0;
    places = mix(places, static_cast<std::uint64_t>(static_cast<std::byte const*>(data) - part.begin));
    return static_cast<std::ptrdiff_t>(part.bytes);
  };
  auto const& pieces = merged.pieces();
  auto const units = shape.send_parts ? ranks : 1;
  strides_.assign(pieces.size(), {});
  for (std::size_t i = 0; i < pieces.size() && places != 0; ++i) {
    if (pieces[i].bytes == 0) continue;
    strides_[i].send = locate(pieces[i].send, pieces[i].bytes * units);
    if (with_recv && places != 0) strides_[i].recv = locate(pieces[i].recv, pieces[i].bytes);
  }
  announce(merged.call(), &places, sizeof places);
  await_announcements();
  for (int other = 0; other < size(); ++other) {
    auto theirs = places;
    if (other != rank()) std::memcpy(&theirs, channel_.payload(other), sizeof theirs);
    if (theirs != places || theirs == 0) return false;
  }
  return true;
}

/// Decides by the first piece's buffer, since the same calls are merged again later. Stores are unfenced, so that
/// pieces do not wait for each other's: call fence() before anybody is told of them.
kernels::Store ShmBackend::store_for(MergedCall const& merged, bool in_place) noexcept {
  auto const store = store_for(merged.call(), merged.pieces().front().recv, merged.bytes(), in_place);
  return store == kernels::Store::streaming ? kernels::Store::unfenced : store;
}

ShmBackend::Manner ShmBackend::manner_of(MergedCall const& merged) noexcept {
  return manner_of(store_for(merged, in_place(merged)), takes(merged.bytes()));
}

void ShmBackend::merged_direct(MergedCall const& merged) {
  auto const operation = merged.call().contract.operation;
  if (operation == Operation::all_reduce) return merged_all_reduce_direct(merged);
  if (reduces(operation)) {
    merged_reduce_scatter_direct(merged);
  } else {
    merged_copy_direct(merged);
  }
  kernels::fence();
  channel_.meet_readers();
}

void ShmBackend::merged_copy_direct(MergedCall const& merged) {
  auto const& call = merged.call();
  auto const shape = merged.shape();
  auto const manner = manner_of(merged);
  // What a rank sends in an all_gather it reads itself as well, and what a broadcast sends all others read.
  auto const operation = call.contract.operation;
  auto const reads_alone = operation != Operation::all_gather && (size() == 2 || operation != Operation::broadcast);
  for (std::size_t i = 0; i < merged.pieces().size(); ++i) {
    auto const& piece = merged.pieces()[i];
    if (piece.bytes == 0) continue;
    auto const mine = part_offset(shape.send_parts, rank(), piece);
    prefetch_piece(merged, i + 1);
    for (int step = 0; step < size(); ++step) {
      auto const from = (rank() + step) % size();
      if (!gets_from(call, from)) continue;
      auto* const destination = at(piece.recv, part_offset(shape.recv_parts, from, piece));
      auto const* const source = at(piece.send, mine) + (from - rank()) * strides_[i].send;
      if (destination == source) continue;
      reads_alone ? copy_from_peer(from, destination, source, piece.bytes, manner)
                  : kernels::copy(destination, source, piece.bytes, manner.store);
    }
  }
}

/// Reads short pieces of one length in turns: prefetchers start anew at every piece, and then wait for several at once.
/// Goes from the last piece to the first: what was written last is still in its writer's cache.
void ShmBackend::merged_reduce_scatter_direct(MergedCall const& merged) {
  auto const& call = merged.call();
  auto const& pieces = merged.pieces();
  auto const manner = manner_of(merged);
  auto const ranks = static_cast<std::size_t>(size());
  std::array<void const*, kMaxRanks> sources;
  std::array<void*, kMaxRanks> destinations;
  auto const most = kMaxRanks / ranks;
  auto const how = reducer(call);
  for (auto left = pieces.size(); left > 0;) {
    auto const bytes = pieces[left - 1].bytes;
    std::size_t ranges = 0;
    for (; ranges < most && left > 0 && pieces[left - 1].bytes == bytes; --left, ++ranges) {
      auto const& piece = pieces[left - 1];
      auto const* const mine = at(piece.send, part_offset(true, rank(), piece));
      destinations[ranges] = piece.recv;
      for (int r = 0; r < size(); ++r) {
        sources[ranges * ranks + static_cast<std::size_t>(r)] = mine + (r - rank()) * strides_[left - 1].send;
      }
    }
    kernels::reduce_alike(ranges, {destinations.data(), ranges}, {sources.data(), ranges * ranks}, bytes / call.grain(),
                          call.contract.dtype, how, manner.store);
    for (std::size_t each = 0; manner.takes && each < ranges * ranks; ++each) {
      if (each % ranks != static_cast<std::size_t>(rank())) kernels::take(sources[each], bytes);
    }
  }
}

/// Prefetches the beginning of this rank's part in the peer's send buffer.
void ShmBackend::prefetch_piece(MergedCall const& merged, std::size_t index) const noexcept {
  if (index >= merged.pieces().size() || size() != 2) return;
  auto const& piece = merged.pieces()[index];
  auto const* const theirs =
      at(piece.send, part_offset(merged.shape().send_parts, rank(), piece)) + (peer() - rank()) * strides_[index].send;
  for (std::size_t line = 0; line < std::min(piece.bytes, kAhead); line += kLine) {
    __builtin_prefetch(theirs + line, 0, 2);
  }
}

void ShmBackend::merged_all_reduce_direct(MergedCall const& merged) {
  auto const& call = merged.call();
  auto const store = store_for(merged, in_place(merged));
  std::array<void const*, kMaxRanks> sources;
  std::array<void*, kMaxRanks> destinations;
  share_out(merged.bytes(), call.grain(), [&](Range range) {
    merged.for_each(range.first, range.count, [&](Piece const& piece, std::size_t first, std::size_t, std::size_t n) {
      auto const& strides = strides_[static_cast<std::size_t>(&piece - merged.pieces().data())];
      for (int r = 0; r < size(); ++r) {
        sources[r] = at(piece.send, first) + (r - rank()) * strides.send;
        destinations[r] = at(piece.recv, first) + (r - rank()) * strides.recv;
      }
      reduce_to_all(call, n / call.grain(), sources, destinations, store);
    });
    kernels::fence();
  });
}

bool ShmBackend::gets_from(Call const& call, int other) const noexcept {
  auto const operation = call.contract.operation;
  if (goes_to_root(operation)) return call.is_root(rank());
  if (comes_from_root(operation)) return call.is_root(other);
  return true;
}

void ShmBackend::share_out(std::size_t bytes, std::size_t grain, std::function<void(Range)> const& work) {
  if (!tuning_.share_work) {
    auto const mine = part_of(bytes / grain, static_cast<std::size_t>(rank()), static_cast<std::size_t>(size()), grain);
    work({mine.first * grain, mine.count * grain});
    return channel_.meet_readers();
  }
  auto const chunk = tuning_.claim_bytes / grain * grain;
  auto const chunks = ceil_div(bytes, chunk);
  while (auto const taken = channel_.claim(chunks)) {
    work(block_of(bytes, *taken, chunk));
    channel_.end_reading();
    channel_.finish_claimed(chunks);
  }
  channel_.await_claimed(chunks);
}

void ShmBackend::merged_swapped(MergedCall const& merged, bool announced) {
  auto const& call = merged.call();
  auto const shape = merged.shape();
  auto const gives = comes_from_root(call.contract.operation) ? call.is_root(rank())
                     : goes_to_root(call.contract.operation)  ? call.is_root(peer())
                                                              : true;
  auto const gets = gets_from(call, peer());
  auto const reducing = reduces(call.contract.operation);
  auto const keeps = !reducing && gets_from(call, rank());
  auto const store = store_for(merged, in_place(merged));
  std::array<void const*, kMaxRanks> sources;
  swap_blocks(
      call, announced, merged.bytes(), tuning_.swap_bytes,
      [&](std::byte* block, std::size_t first, std::size_t length) {
        if (!gives) return;
        merged.for_each(first, length, [&](Piece const& piece, std::size_t from, std::size_t place, std::size_t n) {
          kernels::copy(block + place, at(piece.send, part_offset(shape.send_parts, peer(), piece) + from), n);
        });
      },
      [&](std::size_t first, std::size_t length) {
        if (!keeps) return;
        merged.for_each(first, length, [&](Piece const& piece, std::size_t from, std::size_t, std::size_t n) {
          auto const* const own = at(piece.send, part_offset(shape.send_parts, rank(), piece) + from);
          auto* const to = at(piece.recv, part_offset(shape.recv_parts, rank(), piece) + from);
          if (own != to) std::memcpy(to, own, n);
        });
      },
      [&](std::byte const* block, std::size_t first, std::size_t length) {
        if (!gets) return;
        merged.for_each(first, length, [&](Piece const& piece, std::size_t from, std::size_t place, std::size_t n) {
          auto* const destination = at(piece.recv, part_offset(shape.recv_parts, peer(), piece) + from);
          if (!reducing) return kernels::copy(destination, block + place, n, store);
          sources[rank()] = at(piece.send, part_offset(shape.send_parts, rank(), piece) + from);
          sources[peer()] = block + place;
          reduce_to(call, n / call.grain(), sources, destination, store);
        });
      });
  kernels::fence();
}

}  // namespace weft::shm
