#include "common/mpi_peer.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "weft/error.hpp"

#if defined(WEFT_WITH_MPI)
#include "peers/mpi_calls.hpp"
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
    case DataType::i16: return MPI_INT16_T;
    case DataType::u16: return MPI_UINT16_T;
    case DataType::boolean: return MPI_C_BOOL;
    case DataType::c64: return MPI_C_FLOAT_COMPLEX;
    case DataType::c128: return MPI_C_DOUBLE_COMPLEX;
    case DataType::f32: return MPI_FLOAT;
    case DataType::f64: return MPI_DOUBLE;
    default:
      throw Error(ErrorCode::unsupported, fmt::format("--compare mpi: MPI has no data type for {}", to_string(dtype)));
  }
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::prod: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::land: return MPI_LAND;
    case ReduceOp::lor: return MPI_LOR;
    case ReduceOp::lxor: return MPI_LXOR;
    case ReduceOp::band: return MPI_BAND;
    case ReduceOp::bor: return MPI_BOR;
    case ReduceOp::bxor: return MPI_BXOR;
    default: throw Error(ErrorCode::unsupported, fmt::format("--compare mpi: MPI has no reduction {}", to_string(op)));
  }
}

}  // namespace

MpiPeer::MpiPeer() {
  if (!started_by_mpirun()) {
    throw Error(ErrorCode::invalid_argument,
                "--compare mpi: start the ranks with mpirun, such as mpirun -np 2 --bind-to core …");
  }
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) throw Error(ErrorCode::system, "--compare mpi: MPI_Init failed");
}

MpiPeer::~MpiPeer() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Finalize();
}

std::function<void()> MpiPeer::call(Case const& what, Operands const& on, ReduceOp op, Place place) const {
  return mpi_call(what.op(), on, place, mpi_type(on.send.dtype), what.reduces() ? mpi_op(op) : MPI_OP_NULL);
}

#else

MpiPeer::MpiPeer() {
  throw Error(ErrorCode::unsupported, "--compare mpi: this build has no MPI; configure with -DWEFT_WITH_MPI=ON");
}
MpiPeer::~MpiPeer() = default;
std::function<void()> MpiPeer::call(Case const&, Operands const&, ReduceOp, Place) const {
  return [] {};
}

#endif

}  // namespace weft::perf
