#include "collectives/cases/mpi_call.hpp"

#include <mpi.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "peers/mpi_names.hpp"

namespace weft::test {
namespace {

bool is_logical(ReduceOp op) {
  return op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
}

template <std::size_t kBytes>
void compose(void* next, void* accumulator, int* count, MPI_Datatype* /*type*/) {
  // MPI's order: accumulator = next op accumulator, and next is of the earlier rank.
  std::vector<std::byte> earlier(static_cast<std::byte*>(next),
                                 static_cast<std::byte*>(next) + static_cast<std::size_t>(*count) * kBytes);
  compose_maps(earlier.data(), accumulator, earlier.size());
  std::copy(earlier.begin(), earlier.end(), static_cast<std::byte*>(accumulator));
}

/// Data type and operator of a case, freed at the end.
class Vocabulary {
 public:
  explicit Vocabulary(Case const& one) : element_bytes_(size_of(one.dtype)) {
    if (one.op == ReduceOp::user && reduces(one.kind)) {
      element_bytes_ = one.user_bytes;
      MPI_Op_create(one.user_bytes == 8 ? &compose<8> : &compose<24>, 0, &op_);
      own_op_ = true;
    } else if (reduces(one.kind)) {
      type_ = *perf::mpi_type(one.dtype);
      op_ = *perf::mpi_op(one.op, one.dtype);
      return;
    }
    MPI_Type_contiguous(static_cast<int>(element_bytes_), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
    own_type_ = true;
  }
  ~Vocabulary() {
    if (own_type_) MPI_Type_free(&type_);
    if (own_op_) MPI_Op_free(&op_);
  }
  Vocabulary(Vocabulary const&) = delete;
  Vocabulary& operator=(Vocabulary const&) = delete;

  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  [[nodiscard]] MPI_Op op() const noexcept { return op_; }
  /// Weft's elements in MPI's.
  [[nodiscard]] int count(Case const& one, std::size_t elements) const {
    return static_cast<int>(elements * size_of(one.dtype) / element_bytes_);
  }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
  std::size_t element_bytes_;
  bool own_type_ = false;
  bool own_op_ = false;
};

/// MPI's truth values are 0 and 1: a C bool may be nothing else, and of one rank they come out as they went in.
void make_truth_values(std::vector<std::byte>& integers, std::size_t size) {
  for (std::size_t i = 0; i < integers.size(); i += size) {
    auto const end = integers.begin() + static_cast<std::ptrdiff_t>(i + size);
    auto const begin = end - static_cast<std::ptrdiff_t>(size);
    bool const truth = std::any_of(begin, end, [](std::byte byte) { return byte != std::byte{0}; });
    std::fill(begin, end, std::byte{0});
    *begin = truth ? std::byte{1} : std::byte{0};  // little-endian, as everything Weft runs on
  }
}

/// A division as MPI takes it.
struct IntDivision {
  std::vector<int> counts;
  std::vector<int> offsets;

  IntDivision(Case const& one, std::optional<Division> const& division, Vocabulary const& words) {
    if (!division) return;
    for (int r = 0; r < one.ranks; ++r) {
      counts.push_back(words.count(one, division->count(r)));
      offsets.push_back(words.count(one, division->offset(r)));
    }
  }
};

void exchange_messages(Case const& one, Vocabulary const& words, void const* send, void* recv, int rank) {
  auto const to = one.receivers[static_cast<std::size_t>(rank)];
  auto const from =
      static_cast<int>(std::find(one.receivers.begin(), one.receivers.end(), rank) - one.receivers.begin());
  auto const n = words.count(one, one.count);
  bool const alone = one.kind == Kind::message && one.receivers[static_cast<std::size_t>(one.root)] != one.root;
  if (!alone) {
    MPI_Sendrecv(send, n, words.type(), to, 0, recv, n, words.type(), from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == one.root) {
    MPI_Send(send, n, words.type(), to, 0, MPI_COMM_WORLD);
  } else if (from == one.root) {
    MPI_Recv(recv, n, words.type(), from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

}  // namespace

bool mpi_knows(Case const& one) {
  if (!reduces(one.kind)) return true;
  if (one.kind == Kind::reduce_scatter_v && one.gaps) return false;
  if (one.op == ReduceOp::user) return !one.gaps;
  if (!perf::mpi_type(one.dtype) || !perf::mpi_op(one.op, one.dtype)) return false;
  if (one.dtype == DataType::boolean) return is_logical(one.op);
  // Integers that overflow are nobody's business; Open MPI's short ones stop at their limits.
  if (size_of(one.dtype) <= 2 && (one.op == ReduceOp::sum || one.op == ReduceOp::prod))
    return one.values == Values::whole;
  return is_integer(one.dtype) || (!is_logical(one.op) && one.values != Values::special);
}

std::vector<std::byte> call_mpi(Case const& one, Layout const& layout, Contributions const& contributions, int rank) {
  Vocabulary const words(one);
  auto send = contributions.read(rank, 0, layout.send);
  if (reduces(one.kind) && is_logical(one.op)) make_truth_values(send, size_of(one.dtype));
  std::vector<std::byte> recv(layout.recv * size_of(one.dtype));
  auto const type = words.type();
  auto const op = words.op();
  auto const n = words.count(one, one.count);
  auto const world = MPI_COMM_WORLD;
  IntDivision const from(one, layout.sends, words);
  IntDivision const to(one, layout.recvs, words);
  auto* const s = send.data();
  auto* const r = recv.data();
  switch (one.kind) {
    case Kind::all_reduce: MPI_Allreduce(s, r, n, type, op, world); break;
    case Kind::reduce: MPI_Reduce(s, r, n, type, op, one.root, world); break;
    case Kind::reduce_scatter: MPI_Reduce_scatter_block(s, r, n, type, op, world); break;
    case Kind::reduce_scatter_v: MPI_Reduce_scatter(s, r, from.counts.data(), type, op, world); break;
    case Kind::scan: MPI_Scan(s, r, n, type, op, world); break;
    case Kind::exscan: MPI_Exscan(s, r, n, type, op, world); break;
    case Kind::all_gather: MPI_Allgather(s, n, type, r, n, type, world); break;
    case Kind::all_gather_v:
      MPI_Allgatherv(s, words.count(one, layout.send), type, r, to.counts.data(), to.offsets.data(), type, world);
      break;
    case Kind::broadcast:
      recv = send;
      MPI_Bcast(recv.data(), n, type, one.root, world);
      break;
    case Kind::gather: MPI_Gather(s, n, type, r, n, type, one.root, world); break;
    case Kind::gather_v:
      MPI_Gatherv(s, words.count(one, layout.send), type, r, to.counts.data(), to.offsets.data(), type, one.root,
                  world);
      break;
    case Kind::scatter: MPI_Scatter(s, n, type, r, n, type, one.root, world); break;
    case Kind::scatter_v:
      MPI_Scatterv(s, from.counts.data(), from.offsets.data(), type, r, words.count(one, layout.recv), type, one.root,
                   world);
      break;
    case Kind::all_to_all: MPI_Alltoall(s, n, type, r, n, type, world); break;
    case Kind::all_to_all_v:
      MPI_Alltoallv(s, from.counts.data(), from.offsets.data(), type, r, to.counts.data(), to.offsets.data(), type,
                    world);
      break;
    default: exchange_messages(one, words, s, r, rank); break;
  }
  return recv;
}

}  // namespace weft::test
