// all_gather over MPI: n ranks, each sends B bytes (the longest, when unequal) and ends with n·B.
//   inline  1 exchange, B ≤ 96;
//   staged  2 exchanges or more, moves (n−1)·B.
#include <algorithm>
#include <cstring>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::mpi {

void MpiBackend::all_gather(Call const& call) {
  std::size_t longest = 0;
  for (int peer = 0; peer < size(); ++peer) longest = std::max(longest, call.part(call.recv_parts, peer).length);
  auto const mine = call.part(call.recv_parts, rank());
  // Whether parts are equal is part of the contract, so that all ranks choose alike even when their calls differ.
  auto const fits = call.recv_parts.counts.empty() && longest <= kInlineBytes;
  explain(call, fits ? "inline" : "staged",
          fits ? "MPI_Iallgather of announcements, which hold the data" : "MPI_Iallgatherv");
  channel_.announce(call, fits ? call.send : nullptr, fits ? mine.length : 0);
  auto* const own = at(call.recv, mine.offset);
  if (mine.length > 0 && own != call.send) kernels::copy(own, call.send, mine.length);
  if (fits) {
    for (int peer = 0; peer < size() && longest > 0; ++peer) {
      if (peer == rank()) continue;
      std::memcpy(at(call.recv, call.part(call.recv_parts, peer).offset), channel_.announcement_of(peer).payload,
                  mine.length);
    }
    return;
  }
  auto const piece = [&](std::size_t index, int owner) {
    auto const part = call.part(call.recv_parts, owner);
    return ByteRange{part.offset + index * block_, overlap(part, index * block_, block_)};
  };
  pipeline(
      call, ceil_div(longest, block_),
      [&](std::size_t index, Slot& slot, MPI_Request& request) {
        kernels::copy(slot.send, at(call.send, index * block_), piece(index, rank()).length);
        for (int peer = 0; peer < size(); ++peer) {
          slot.recv_counts[static_cast<std::size_t>(peer)] = static_cast<int>(piece(index, peer).length);
        }
        start_all_gather(call, slot, request);
      },
      [&](std::size_t index, Slot& slot) { take(call, slot, [&](int peer) { return piece(index, peer); }); });
}

}  // namespace weft::mpi
