#include "common/mpi_peer.hpp"

#include <cstdlib>

#include "weft/error.hpp"

#if defined(WEFT_WITH_MPI)
#include "peers/mpi_calls.hpp"
#include "peers/mpi_names.hpp"
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
  auto const type = mpi_type(on.send.dtype);
  if (!type) return {};
  if (!what.reduces()) return mpi_call(what.op(), on, place, *type, MPI_OP_NULL);
  auto const reduction = mpi_op(op, on.send.dtype);
  if (!reduction) return {};
  return mpi_call(what.op(), on, place, *type, *reduction);
}

std::function<void()> MpiPeer::barrier() {
  return [] { MPI_Barrier(MPI_COMM_WORLD); };
}

#else

MpiPeer::MpiPeer() {
  throw Error(ErrorCode::unsupported, "--compare mpi: this build has no MPI; configure with -DWEFT_WITH_MPI=ON");
}
MpiPeer::~MpiPeer() = default;
std::function<void()> MpiPeer::call(Case const&, Operands const&, ReduceOp, Place) const {
  return [] {};
}
std::function<void()> MpiPeer::barrier() {
  return [] {};
}

#endif

}  // namespace weft::perf
