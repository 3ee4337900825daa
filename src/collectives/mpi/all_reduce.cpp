// all_reduce, reduce, scan and exscan over MPI. With n ranks and B bytes, per rank:
//   inline      1 exchange, B ≤ 96: the announcement carries the contribution;
//   gathered    2 exchanges, n·B ≤ 16 KiB: every rank gets all contributions and combines what it needs;
//   two phases  3 exchanges or more, moves 2(n−1)/n·B: rank r combines piece r of all ranks, then all ranks get its
//               results (reduce: only the root; scan: rank q gets the combination of ranks up to q).
#include <algorithm>
#include <cstring>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::mpi {

namespace {

/// Up to this size (n·B) a third exchange costs more than moving all contributions to all ranks.
constexpr std::size_t kGathered = std::size_t{16} << 10;

/// How many ranks' contributions make up what `rank` gets.
int contributors_of(Call const& call, int rank, int ranks) {
  if (call.contract.operation == Operation::scan) return rank + 1;
  return call.contract.operation == Operation::exscan ? rank : ranks;
}

}  // namespace

void MpiBackend::all_reduce(Call const& call) {
  if (call.bytes() <= kInlineBytes) return reduce_inline(call);
  channel_.announce(call);
  if (call.bytes() * ranks() > kGathered) return reduce_in_two_phases(call);
  explain(call, "gathered", "MPI_Iallgather of all contributions, combined by every rank");
  reduce_gathered(call);
}

void MpiBackend::reduce(Call const& call) {
  all_reduce(call);
}

void MpiBackend::scan(Call const& call) {
  all_reduce(call);
}

bool MpiBackend::keeps_result(Call const& call, int rank) const noexcept {
  if (call.contract.operation == Operation::reduce) return call.is_root(rank);
  return call.contract.operation != Operation::exscan || rank > 0;
}

void MpiBackend::reduce_pieces(Call const& call, Slot& slot, void const* own, int contributors, std::size_t bytes,
                               std::span<void* const> destinations) {
  std::vector<void const*> sources;
  for (int peer = 0; peer < contributors; ++peer) sources.push_back(peer == rank() ? own : got_from(slot, peer));
  combine(call, sources, bytes, destinations);
}

void MpiBackend::combine(Call const& call, std::span<void const* const> sources, std::size_t bytes,
                         std::span<void* const> destinations) {
  auto const dtype = call.contract.dtype;
  auto const count = bytes / call.grain();
  auto const scans = call.contract.operation == Operation::scan || call.contract.operation == Operation::exscan;
  if (!scans && hosts_.applies_to(dtype, call.contract.reduce))
    return hosts_.reduce(destinations, sources, count, dtype, reducer(call));
  kernels::reduce(destinations, sources, count, dtype, reducer(call));
}

void MpiBackend::reduce_inline(Call const& call) {
  explain(call, "inline", "MPI_Iallgather of announcements, which hold the data");
  channel_.announce(call, call.send, call.bytes());
  if (!keeps_result(call, rank())) return;
  std::vector<void const*> sources;
  for (int peer = 0; peer < contributors_of(call, rank(), size()); ++peer) {
    sources.push_back(channel_.announcement_of(peer).payload);
  }
  combine(call, sources, call.bytes(), {&call.recv, 1});
}

void MpiBackend::reduce_gathered(Call const& call) {
  auto& slot = channel_.slot(0);
  std::memcpy(slot.send, call.send, call.bytes());
  for (auto& count : slot.recv_counts) count = static_cast<int>(call.bytes());
  MPI_Request request = MPI_REQUEST_NULL;
  start_all_gather(call, slot, request);
  channel_.wait(call, request);
  if (!keeps_result(call, rank())) return;
  reduce_pieces(call, slot, got_from(slot, rank()), contributors_of(call, rank(), size()), call.bytes(),
                {&call.recv, 1});
}

void MpiBackend::reduce_in_two_phases(Call const& call) {
  auto const element = call.grain();
  auto const count = call.bytes() / element;
  auto const per_block = most_for_parts(block_, ranks(), element);
  auto const piece = [&](std::size_t index, int owner) {
    auto const first = index * per_block;
    auto const part = part_of(std::min(per_block, count - first), static_cast<std::size_t>(owner), ranks(), element);
    return ByteRange{(first + part.first) * element, part.count * element};
  };
  auto const second_phase = call.contract.operation == Operation::all_reduce ? &MpiBackend::share_results
                            : call.contract.operation == Operation::reduce   ? &MpiBackend::collect_results
                                                                             : &MpiBackend::deal_out_results;
  explain(call, "two_phase",
          call.contract.operation == Operation::all_reduce
              ? "MPI_Ialltoallv of contributions, MPI_Iallgatherv of results"
          : call.contract.operation == Operation::reduce ? "MPI_Ialltoallv of contributions, MPI_Igatherv of results"
                                                         : "MPI_Ialltoallv of contributions and of results");
  pipeline(
      call, ceil_div(count, per_block),
      [&](std::size_t index, Slot& slot, MPI_Request& request) {
        stage(
            call, slot, [&](int peer) { return piece(index, peer); }, [&](int) { return piece(index, rank()); });
        start_all_to_all(call, slot, request);
      },
      [&](std::size_t index, Slot& slot) {
        (this->*second_phase)(call, slot, [&](int peer) { return piece(index, peer); });
      });
}

void MpiBackend::share_results(Call const& call, Slot& slot, Piece const& piece) {
  auto const mine = piece(rank());
  std::array<void*, 2> const destinations{slot.send, at(call.recv, mine.offset)};
  reduce_pieces(call, slot, at(call.send, mine.offset), size(), mine.length, destinations);
  for (int peer = 0; peer < size(); ++peer) {
    slot.recv_counts[static_cast<std::size_t>(peer)] = static_cast<int>(piece(peer).length);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  start_all_gather(call, slot, request);
  channel_.wait(call, request);
  take(call, slot, piece);
}

void MpiBackend::collect_results(Call const& call, Slot& slot, Piece const& piece) {
  auto const mine = piece(rank());
  auto const keeps = call.is_root(rank());
  void* const destination = keeps ? at(call.recv, mine.offset) : slot.send;
  reduce_pieces(call, slot, at(call.send, mine.offset), size(), mine.length, {&destination, 1});
  for (int peer = 0; peer < size(); ++peer) {
    slot.recv_counts[static_cast<std::size_t>(peer)] = peer == rank() ? 0 : static_cast<int>(piece(peer).length);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  start_gather(call, slot, slot.send, keeps ? 0 : static_cast<int>(mine.length), request);
  channel_.wait(call, request);
  if (keeps) take(call, slot, piece);
}

void MpiBackend::deal_out_results(Call const& call, Slot& slot, Piece const& piece) {
  auto const mine = piece(rank());
  auto const* const own = at(call.send, mine.offset);
  auto const keeps = keeps_result(call, rank());
  auto const combine = [&](int peer, void* destination) {
    reduce_pieces(call, slot, own, contributors_of(call, peer, size()), mine.length, {&destination, 1});
  };
  for (int peer = 0; peer < size(); ++peer) {
    auto const index = static_cast<std::size_t>(peer);
    auto const gives = peer != rank() && keeps_result(call, peer);
    if (gives) combine(peer, sent_to(slot, peer));
    slot.send_counts[index] = gives ? static_cast<int>(mine.length) : 0;
    slot.recv_counts[index] = keeps && peer != rank() ? static_cast<int>(piece(peer).length) : 0;
  }
  if (keeps) combine(rank(), at(call.recv, mine.offset));  // last: in place it replaces the contribution
  MPI_Request request = MPI_REQUEST_NULL;
  start_all_to_all(call, slot, request);
  channel_.wait(call, request);
  if (keeps) take(call, slot, piece);
}

}  // namespace weft::mpi
