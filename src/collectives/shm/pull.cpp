// all_to_all, and gather, scatter and all_to_all with unequal parts, over shared memory: every rank pulls what is meant
// for it. With L the longest part:
//   inline   1 synchronisation: every rank's send buffer fits an announcement, 56 B;
//   swapped  1 synchronisation a block, two ranks;
//   staged   1 synchronisation a block: writes what it gives and gets, reads both;
//   fetched  2 synchronisations: reads out of the peers' private memory;
//   direct   2 synchronisations: reads out of the peers' send buffers.
// With unequal parts only some ranks know who gets what, so all first publish their rows of the table of all parts.
// That takes one synchronisation more, and every rank sees the same contradiction if there is one.
#include "collectives/shm/pull.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/partition.hpp"
#include "collectives/shm/shm_backend.hpp"
#include "kernels/cpu/short_copy.hpp"
#include "weft/error.hpp"

namespace weft::shm {
namespace {

/// One rank's view of what it and another rank move between them.
struct Cell {
  std::size_t gives_from = 0;
  std::size_t gives = 0;
  std::size_t gets = 0;
};

/// What this rank's receive buffer gets.
std::size_t all_gotten(Transfers const& transfers) noexcept {
  std::size_t bytes = 0;
  for (auto const& each : transfers.with) bytes += each.gets.length;
  return bytes;
}

}  // namespace

void ShmBackend::gather_v(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto transfers = no_transfers();
  transfers.send_bytes = call.own_bytes;
  transfers[root].gives = {0, call.own_bytes};
  for (int peer = 0; peer < size() && rank() == root; ++peer) transfers[peer].gets = call.part(call.recv_parts, peer);
  pull_unequal(call, transfers);
}

void ShmBackend::scatter_v(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto transfers = no_transfers();
  transfers[root].gets = {0, call.own_bytes};
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    transfers[peer].gives = call.part(call.send_parts, peer);
    transfers.send_bytes = std::max(transfers.send_bytes, transfers[peer].gives.offset + transfers[peer].gives.length);
  }
  pull_unequal(call, transfers);
}

/// Between no rank and any other, yet.
Transfers ShmBackend::no_transfers() {
  std::fill(transfers_.begin(), transfers_.end(), Transfer{});
  return {transfers_, 0, 0};
}

void ShmBackend::all_to_all(Call const& call) {
  auto const equal = call.contract.operation == Operation::all_to_all;
  auto const all_bytes = call.bytes() * static_cast<std::size_t>(size());
  if (equal && all_bytes <= kInlineBytes) return all_to_all_inline(call, all_bytes);
  auto transfers = no_transfers();
  for (int peer = 0; peer < size(); ++peer) {
    transfers[peer].gives = call.part(call.send_parts, peer);
    transfers[peer].gets = call.part(call.recv_parts, peer);
    transfers[peer].theirs = static_cast<std::size_t>(rank()) * call.bytes();
    transfers.send_bytes = std::max(transfers.send_bytes, transfers[peer].gives.offset + transfers[peer].gives.length);
  }
  transfers.longest = call.bytes();
  equal ? pull_known(call, transfers, all_bytes) : pull_unequal(call, transfers);
}

/// Every rank knows all lengths. `most_sent`: the largest send buffer of any rank.
void ShmBackend::pull_known(Call const& call, Transfers const& transfers, std::size_t most_sent) {
  // In place, a direct pull would read what the peer has already replaced.
  auto const in_place = call.contract.operation == Operation::all_to_all && call.send == call.recv;
  select(
      call, Collective::pull, most_sent,
      [&] { return negotiate(call, transfers.send_bytes, {}, in_place ? Needs::nothing : Needs::send); },
      [&](Choice const& choice, Symmetric const* buffers, bool announced) {
        if (choice.algorithm == Algorithm::direct) return pull_direct(call, transfers, *buffers);
        if (choice.algorithm == Algorithm::fetched && can_fetch()) return pull_fetched(call, transfers);
        pull_staged(call, transfers, staged_instead(choice), announced);
      });
}

void ShmBackend::all_to_all_inline(Call const& call, std::size_t all_bytes) {
  if (explainer_) explain_inline(call, kInlineBytes);
  alignas(kLine) std::array<std::byte, kInlineBytes> mine{};
  kernels::copy_short(mine.data(), call.send, all_bytes);
  announce(call, mine.data(), all_bytes);
  await_announcements();
  if (all_bytes == 0) return;
  auto const bytes = call.bytes();
  auto const place = [&](int rank) { return static_cast<std::size_t>(rank) * bytes; };
  for (int peer = 0; peer < size(); ++peer) {
    auto const* const source = peer == rank() ? mine.data() : channel_.payload(peer);
    kernels::copy_short(at(call.recv, place(peer)), at(source, place(rank())), bytes);
  }
}

void ShmBackend::pull_unequal(Call const& call, Transfers& transfers) {
  auto const ranks = static_cast<std::size_t>(size());
  auto const table = ring_.take(ranks * sizeof(Cell));  // rings rotate: all have read it before anybody stages over it
  auto const row_of = [&](int owner) { return reinterpret_cast<Cell*>(ring_.at(owner, table)); };
  for (int peer = 0; peer < size(); ++peer) {
    row_of(rank())[peer] = {transfers[peer].gives.offset, transfers[peer].gives.length, transfers[peer].gets.length};
  }
  auto const buffers = negotiate(call, transfers.send_bytes, {}, Needs::send);

  transfers.longest = 0;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      auto const gives = row_of(from)[to].gives;
      auto const gets = row_of(to)[from].gets;
      if (gives != gets) {
        throw Error(ErrorCode::mismatch,
                    fmt::format("{}: rank {} gives rank {} {} bytes, which expects {}; nothing was "
                                "moved, make the counts equal",
                                describe(call), channel_.name_of(from), channel_.name_of(to), gives, gets));
      }
      transfers.longest = std::max(transfers.longest, gives);
    }
    transfers[from].theirs = row_of(from)[rank()].gives_from;
  }
  auto const bytes = transfers.longest * ranks;
  auto const* const small = selector_.by_size(Collective::pull, bytes);
  auto const memory = small != nullptr ? Memory::any : buffers ? Memory::symmetric : Memory::other;
  auto const& choice = small != nullptr ? *small : selector_.by_memory(Collective::pull, bytes, memory);
  if (memory != Memory::other) call.route = {is_direct(choice.algorithm) ? Route::How::zero_copy : Route::How::small};
  if (explainer_) explain(call, Collective::pull, memory, bytes, choice);
  if (choice.algorithm == Algorithm::direct) return pull_direct(call, transfers, *buffers);
  if (choice.algorithm == Algorithm::fetched && can_fetch()) return pull_fetched(call, transfers);
  pull_staged(call, transfers, staged_instead(choice), true);
}

void ShmBackend::pull_staged(Call const& call, Transfers const& transfers, Choice const& choice, bool announced) {
  auto const ranks = static_cast<std::size_t>(size());
  auto const own = transfers[rank()].gives;
  auto const keep = [&](std::size_t first, std::size_t length) {
    auto* const destination = at(call.recv, transfers[rank()].gets.offset + first);
    auto const* const source = at(call.send, own.offset + first);
    auto const bytes = overlap(own, first, length);
    if (bytes > 0 && destination != source) std::memcpy(destination, source, bytes);
  };
  if (transfers.longest == 0) {
    if (!announced) barrier(call);
    return;
  }
  if (choice.algorithm == Algorithm::swapped) {
    auto const gives = transfers[peer()].gives;
    auto const gets = transfers[peer()].gets;
    auto const gives_only = gets.length == 0;  // the peer waits for the next block, not for what this rank keeps
    auto const store = store_for(call, all_gotten(transfers), false);
    swap_blocks(
        call, announced, transfers.longest, swapped_block(call, choice),
        [&](std::byte* block, std::size_t first, std::size_t length) {
          kernels::copy(block, at(call.send, gives.offset + first), overlap(gives, first, length));
        },
        [&](std::size_t first, std::size_t length) {
          if (!gives_only) keep(first, length);
        },
        [&](std::byte const* block, std::size_t first, std::size_t length) {
          kernels::copy(at(call.recv, gets.offset + first), block, overlap(gets, first, length), store);
        });
    if (gives_only) keep(0, own.length);
    return;
  }
  auto const block = std::max(kLine, choice.chunk_bytes / ranks / kLine * kLine);
  for (std::size_t first = 0; first < transfers.longest; first += block) {
    auto const piece = ceil_div(std::min(block, transfers.longest - first), kLine) * kLine;
    auto const offset = ring_.take(piece * ranks);
    std::size_t staged = 0;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) staged += overlap(transfers[peer].gives, first, piece);
    }
    ring_stores_.fill(staged, [&](kernels::Store how) {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        auto const gives = transfers[peer].gives;
        kernels::copy(ring_.at(rank(), offset + static_cast<std::size_t>(peer) * piece),
                      at(call.send, gives.offset + first), overlap(gives, first, piece), how);
      }
    });
    exchange_block(call, announced || first > 0, [&] { keep(first, piece); });
    for (int step = 1; step < size(); ++step) {
      auto const peer = (rank() + step) % size();
      auto const gets = transfers[peer].gets;
      kernels::copy(at(call.recv, gets.offset + first),
                    ring_.at(peer, offset + static_cast<std::size_t>(rank()) * piece), overlap(gets, first, piece));
    }
  }
}

void ShmBackend::pull_fetched(Call const& call, Transfers const& transfers) {
  for (int step = 0; step < size(); ++step) {
    auto const peer = (rank() + step) % size();
    auto const gets = transfers[peer].gets;
    fetch(call, peer, transfers[peer].theirs, at(call.recv, gets.offset), gets.length);
  }
  channel_.meet_readers();  // the peers may write their send buffers once all have read them
}

void ShmBackend::pull_direct(Call const& call, Transfers const& transfers, Symmetric const& buffers) {
  auto const gotten = all_gotten(transfers);
  auto const manner = manner_of(store_for(call, gotten, false), copies_take(gotten));
  for (int step = 0; step < size(); ++step) {
    auto const peer = (rank() + step) % size();
    auto const gets = transfers[peer].gets;
    auto const* const source = at(buffers.send[peer], transfers[peer].theirs);
    auto* const destination = at(call.recv, gets.offset);
    if (gets.length > 0 && destination != source) copy_from_peer(peer, destination, source, gets.length, manner);
  }
  channel_.meet_readers();  // the peers may write their send buffers once all have read them
}

}  // namespace weft::shm
