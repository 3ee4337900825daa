// broadcast over MPI, B bytes:
//   inline  1 exchange, B ≤ 96;
//   staged  2 exchanges or more, by MPI_Ibcast.
#include <algorithm>
#include <cstring>

#include "collectives/mpi/mpi_backend.hpp"
#include "collectives/partition.hpp"
#include "kernels/cpu/reduce.hpp"

namespace weft::mpi {

void MpiBackend::broadcast(Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const fits = call.bytes() <= kInlineBytes;
  explain(call, fits ? "inline" : "staged",
          fits ? "MPI_Iallgather of announcements, which hold the data" : "MPI_Ibcast");
  channel_.announce(call, call.send, fits && rank() == root ? call.bytes() : 0);
  if (fits) {
    if (rank() != root && call.bytes() > 0) {
      std::memcpy(call.recv, channel_.announcement_of(root).payload, call.bytes());
    }
    return;
  }
  auto const block = block_ * ranks();
  auto const length = [&](std::size_t index) { return std::min(block, call.bytes() - index * block); };
  pipeline(
      call, ceil_div(call.bytes(), block),
      [&](std::size_t index, Slot& slot, MPI_Request& request) {
        if (rank() == root) kernels::copy(slot.recv, at(call.send, index * block), length(index));
        channel_.start(
            call, "MPI_Ibcast",
            [&](MPI_Request& started) {
              return MPI_Ibcast(slot.recv, static_cast<int>(length(index)), MPI_BYTE, root, channel_.handle(),
                                &started);
            },
            request);
      },
      [&](std::size_t index, Slot& slot) {
        if (rank() != root) kernels::copy(at(call.recv, index * block), slot.recv, length(index));
      });
}

}  // namespace weft::mpi
