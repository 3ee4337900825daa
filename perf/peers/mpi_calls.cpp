#include "peers/mpi_calls.hpp"

#include <cstring>

namespace weft::perf {
namespace {

int count_of(BufferView view) {
  return static_cast<int>(view.count);
}

void* at(BufferView view, int part, int length) {
  return view.slice(static_cast<std::size_t>(part) * static_cast<std::size_t>(length), 0).data;
}

void hypercube(Operands const& on, Place place, MPI_Datatype type) {
  int const length = count_of(on.send);
  void* const own = at(on.recv, place.rank, length);
  if (own != on.send.data && length > 0) std::memcpy(own, on.send.data, on.send.bytes());
  for (int mask = 1; mask < place.ranks; mask *= 2) {
    int const mine = place.rank & ~(mask - 1);
    int const peer = place.rank ^ mask;
    MPI_Sendrecv(at(on.recv, mine, length), length * mask, type, peer, 0, at(on.recv, mine ^ mask, length),
                 length * mask, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

}  // namespace

std::function<void()> mpi_call(Op what, Operands const& on, Place place, MPI_Datatype type, MPI_Op op) {
  auto* const send = on.send.data;
  auto* const recv = on.recv.data;
  int const sent = count_of(on.send);
  int const got = count_of(on.recv);
  int const root = place.root;
  switch (what) {
    case Op::all_reduce: return [=] { MPI_Allreduce(send, recv, got, type, op, MPI_COMM_WORLD); };
    case Op::all_gather: return [=] { MPI_Allgather(send, sent, type, recv, sent, type, MPI_COMM_WORLD); };
    case Op::reduce_scatter: return [=] { MPI_Reduce_scatter_block(send, recv, got, type, op, MPI_COMM_WORLD); };
    case Op::broadcast: {
      auto* const buffer = place.is_root() ? send : recv;
      int const count = place.is_root() ? sent : got;
      return [=] { MPI_Bcast(buffer, count, type, root, MPI_COMM_WORLD); };
    }
    case Op::reduce: return [=] { MPI_Reduce(send, recv, sent, type, op, root, MPI_COMM_WORLD); };
    case Op::all_to_all: {
      int const part = sent / place.ranks;
      return [=] { MPI_Alltoall(send, part, type, recv, part, type, MPI_COMM_WORLD); };
    }
    case Op::gather: return [=] { MPI_Gather(send, sent, type, recv, sent, type, root, MPI_COMM_WORLD); };
    case Op::scatter: return [=] { MPI_Scatter(send, got, type, recv, got, type, root, MPI_COMM_WORLD); };
    case Op::send_recv: {
      int const next = (place.rank + 1) % place.ranks;
      int const previous = (place.rank + place.ranks - 1) % place.ranks;
      return [=] {
        MPI_Sendrecv(send, sent, type, next, 0, recv, got, type, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      };
    }
    case Op::hypercube: return [=] { hypercube(on, place, type); };
  }
  return [] {};
}

}  // namespace weft::perf
