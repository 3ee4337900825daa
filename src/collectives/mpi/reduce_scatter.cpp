// reduce_scatter over MPI: n ranks, each ends with B bytes of the n·B it sends (B: the longest, when unequal).
//   2 exchanges or more, moves (n−1)·B: every rank gets all contributions to its part, and combines them.
#include <algorithm>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"

namespace weft::mpi {

void MpiBackend::reduce_scatter(Call const& call) {
  explain(call, "staged", "MPI_Ialltoallv of contributions, combined by their part's rank");
  channel_.announce(call);
  std::size_t longest = 0;
  for (int peer = 0; peer < size(); ++peer) longest = std::max(longest, call.part(call.send_parts, peer).length);
  auto const block = block_for(call);
  auto const piece = [&](std::size_t index, int owner) {
    auto const part = call.part(call.send_parts, owner);
    return ByteRange{part.offset + index * block, overlap(part, index * block, block)};
  };
  pipeline(
      call, ceil_div(longest, block),
      [&](std::size_t index, Slot& slot, MPI_Request& request) {
        stage(
            call, slot, [&](int peer) { return piece(index, peer); }, [&](int) { return piece(index, rank()); });
        start_all_to_all(call, slot, request);
      },
      [&](std::size_t index, Slot& slot) {
        auto const mine = piece(index, rank());
        void* const destination = at(call.recv, index * block);
        reduce_pieces(call, slot, at(call.send, mine.offset), size(), mine.length, {&destination, 1});
      });
}

}  // namespace weft::mpi
