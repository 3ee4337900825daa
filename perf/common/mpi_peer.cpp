#include "common/mpi_peer.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "weft/error.hpp"

#if defined(WEFT_WITH_MPI)
#include <mpi.h>
#endif

namespace weft::perf {

#if defined(WEFT_WITH_MPI)
namespace {

bool started_by_mpirun() {
  for (auto const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

MPI_Datatype mpi_type(DataType dtype) {
  switch (dtype) {
    case DataType::i8: return MPI_INT8_T;
    case DataType::u8: return MPI_UINT8_T;
    case DataType::i32: return MPI_INT32_T;
    case DataType::u32: return MPI_UINT32_T;
    case DataType::i64: return MPI_INT64_T;
    case DataType::u64: return MPI_UINT64_T;
    case DataType::f32: return MPI_FLOAT;
    case DataType::f64: return MPI_DOUBLE;
    default:
      throw Error(ErrorCode::unsupported, fmt::format("--vs mpi: MPI has no data type for {}", to_string(dtype)));
  }
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::prod: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    default: throw Error(ErrorCode::unsupported, fmt::format("--vs mpi: MPI has no reduction {}", to_string(op)));
  }
}

}  // namespace

MpiPeer::MpiPeer() {
  if (!started_by_mpirun()) {
    throw Error(ErrorCode::invalid_argument,
                "--vs mpi: start the ranks with mpirun, such as mpirun -np 2 --bind-to core …");
  }
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) throw Error(ErrorCode::system, "--vs mpi: MPI_Init failed");
}

MpiPeer::~MpiPeer() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Finalize();
}

// The default error handler ends the job with MPI's message: no result of these calls can be an error.
std::function<void()> MpiPeer::call(Case const& what, Operands const& on, ReduceOp op, int root) const {
  auto const type = mpi_type(on.send.dtype);
  auto const send_count = static_cast<int>(on.send.count);
  auto const recv_count = static_cast<int>(on.recv.count);
  auto* const send = on.send.data;
  auto* const recv = on.recv.data;
  if (what.name() == "broadcast") return [=] { MPI_Bcast(recv, recv_count, type, root, MPI_COMM_WORLD); };
  if (what.name() == "all_gather") {
    return [=] { MPI_Allgather(send, send_count, type, recv, send_count, type, MPI_COMM_WORLD); };
  }
  auto const reduction = mpi_op(op);
  if (what.name() == "reduce_scatter") {
    return [=] { MPI_Reduce_scatter_block(send, recv, recv_count, type, reduction, MPI_COMM_WORLD); };
  }
  return [=] { MPI_Allreduce(send, recv, recv_count, type, reduction, MPI_COMM_WORLD); };
}

#else

MpiPeer::MpiPeer() {
  throw Error(ErrorCode::unsupported, "--vs mpi: this build has no MPI; configure with -DWEFT_WITH_MPI=ON");
}
MpiPeer::~MpiPeer() = default;
std::function<void()> MpiPeer::call(Case const&, Operands const&, ReduceOp, int) const {
  return [] {};
}

#endif

}  // namespace weft::perf
