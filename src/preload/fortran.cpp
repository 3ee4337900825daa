// The Fortran names of the intercepted functions, in every spelling that Fortran compilers use, and mpi_f08's. They do
// what Open MPI's own do: translate the arguments and call the C function, here the intercepted one.
//
// Only for Open MPI. Its Fortran functions call PMPI, so intercepting C is not enough there; MPICH's and its
// descendants' call MPI, and need nothing.
#include <mpi.h>

#if defined(OPEN_MPI)

#include <vector>

// NOLINTBEGIN(readability-identifier-naming): names of the MPI library
extern "C" {
// Fortran's MPI_IN_PLACE and MPI_BOTTOM are common blocks: only their addresses count. libmpi has them in the spelling
// of the compiler that it was built for.
extern int mpi_fortran_in_place_ __attribute__((weak));
extern int mpi_fortran_in_place __attribute__((weak));
extern int mpi_fortran_in_place__ __attribute__((weak));
extern int MPI_FORTRAN_IN_PLACE __attribute__((weak));
extern int mpi_fortran_bottom_ __attribute__((weak));
extern int mpi_fortran_bottom __attribute__((weak));
extern int mpi_fortran_bottom__ __attribute__((weak));
extern int MPI_FORTRAN_BOTTOM __attribute__((weak));
}
// NOLINTEND(readability-identifier-naming)

namespace {

bool is_one_of(void const* address, int const* a, int const* b, int const* c, int const* d) {
  return address != nullptr && (address == a || address == b || address == c || address == d);
}

void* buffer(void* address) {
  if (is_one_of(address, &mpi_fortran_in_place_, &mpi_fortran_in_place, &mpi_fortran_in_place__, &MPI_FORTRAN_IN_PLACE))
    return MPI_IN_PLACE;
  if (is_one_of(address, &mpi_fortran_bottom_, &mpi_fortran_bottom, &mpi_fortran_bottom__, &MPI_FORTRAN_BOTTOM))
    return MPI_BOTTOM;
  return address;
}

MPI_Datatype type(MPI_Fint const* handle) {
  return PMPI_Type_f2c(*handle);
}
MPI_Op op(MPI_Fint const* handle) {
  return PMPI_Op_f2c(*handle);
}
MPI_Comm comm(MPI_Fint const* handle) {
  return PMPI_Comm_f2c(*handle);
}

int ranks_here(MPI_Comm communicator) {
  int ranks = 0;
  PMPI_Comm_size(communicator, &ranks);
  return ranks;
}

/// How many ranks a rank gives parts to or gets them from; between two groups these are the other group's ranks.
int ranks_with_parts(MPI_Comm communicator) {
  int is_between_groups = 0;
  PMPI_Comm_test_inter(communicator, &is_between_groups);
  if (is_between_groups == 0) return ranks_here(communicator);
  int ranks = 0;
  PMPI_Comm_remote_size(communicator, &ranks);
  return ranks;
}

/// Counts or displacements, one for each of `ranks(communicator)`; copied only where Fortran's integers are not C's.
class Integers {
 public:
  Integers(MPI_Fint const* values, MPI_Comm communicator, int (*ranks)(MPI_Comm) = ranks_with_parts) {
    if constexpr (sizeof(MPI_Fint) == sizeof(int)) {
      pointer_ = reinterpret_cast<int const*>(values);
    } else if (values != nullptr && communicator != MPI_COMM_NULL) {
      copy_.assign(values, values + ranks(communicator));
      pointer_ = copy_.data();
    }
  }
  operator int const*() const noexcept {
    return pointer_;
  }  // NOLINT(google-explicit-constructor): an array is a pointer

 private:
  std::vector<int> copy_;
  int const* pointer_ = nullptr;
};

/// mpi_f08's status argument is optional.
void set(MPI_Fint* status, int code) {
  if (status != nullptr) *status = static_cast<MPI_Fint>(code);
}

}  // namespace

using Integer = MPI_Fint const*;

#define WEFT_FORTRAN(lower, upper, parameters)                     \
  void lower##_ parameters;                                        \
  void lower parameters __attribute__((alias(#lower "_")));        \
  void lower##__ parameters __attribute__((alias(#lower "_")));    \
  void upper parameters __attribute__((alias(#lower "_")));        \
  void lower##_f08_ parameters __attribute__((alias(#lower "_"))); \
  void lower##_ parameters

extern "C" {

WEFT_FORTRAN(mpi_finalize, MPI_FINALIZE, (MPI_Fint * status)) {
  set(status, MPI_Finalize());
}

WEFT_FORTRAN(mpi_comm_free, MPI_COMM_FREE, (MPI_Fint * communicator, MPI_Fint* status)) {
  auto handle = comm(communicator);
  set(status, MPI_Comm_free(&handle));
  *communicator = PMPI_Comm_c2f(handle);
}

WEFT_FORTRAN(mpi_comm_disconnect, MPI_COMM_DISCONNECT, (MPI_Fint * communicator, MPI_Fint* status)) {
  auto handle = comm(communicator);
  set(status, MPI_Comm_disconnect(&handle));
  *communicator = PMPI_Comm_c2f(handle);
}

WEFT_FORTRAN(mpi_barrier, MPI_BARRIER, (Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Barrier(comm(communicator)));
}

WEFT_FORTRAN(mpi_bcast, MPI_BCAST,
             (void* data, Integer count, Integer datatype, Integer root, Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Bcast(buffer(data), *count, type(datatype), *root, comm(communicator)));
}

WEFT_FORTRAN(mpi_reduce, MPI_REDUCE,
             (void* send, void* recv, Integer count, Integer datatype, Integer operation, Integer root,
              Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Reduce(buffer(send), buffer(recv), *count, type(datatype), op(operation), *root, comm(communicator)));
}

WEFT_FORTRAN(mpi_allreduce, MPI_ALLREDUCE,
             (void* send, void* recv, Integer count, Integer datatype, Integer operation, Integer communicator,
              MPI_Fint* status)) {
  set(status, MPI_Allreduce(buffer(send), buffer(recv), *count, type(datatype), op(operation), comm(communicator)));
}

WEFT_FORTRAN(mpi_reduce_scatter, MPI_REDUCE_SCATTER,
             (void* send, void* recv, Integer counts, Integer datatype, Integer operation, Integer communicator,
              MPI_Fint* status)) {
  auto const on = comm(communicator);
  set(status, MPI_Reduce_scatter(buffer(send), buffer(recv), Integers(counts, on, ranks_here), type(datatype),
                                 op(operation), on));
}

WEFT_FORTRAN(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK,
             (void* send, void* recv, Integer count, Integer datatype, Integer operation, Integer communicator,
              MPI_Fint* status)) {
  set(status,
      MPI_Reduce_scatter_block(buffer(send), buffer(recv), *count, type(datatype), op(operation), comm(communicator)));
}

WEFT_FORTRAN(mpi_scan, MPI_SCAN,
             (void* send, void* recv, Integer count, Integer datatype, Integer operation, Integer communicator,
              MPI_Fint* status)) {
  set(status, MPI_Scan(buffer(send), buffer(recv), *count, type(datatype), op(operation), comm(communicator)));
}

WEFT_FORTRAN(mpi_exscan, MPI_EXSCAN,
             (void* send, void* recv, Integer count, Integer datatype, Integer operation, Integer communicator,
              MPI_Fint* status)) {
  set(status, MPI_Exscan(buffer(send), buffer(recv), *count, type(datatype), op(operation), comm(communicator)));
}

WEFT_FORTRAN(mpi_gather, MPI_GATHER,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer recv_count, Integer recv_type,
              Integer root, Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Gather(buffer(send), *send_count, type(send_type), buffer(recv), *recv_count, type(recv_type), *root,
                         comm(communicator)));
}

WEFT_FORTRAN(mpi_gatherv, MPI_GATHERV,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer counts, Integer displacements,
              Integer recv_type, Integer root, Integer communicator, MPI_Fint* status)) {
  auto const on = comm(communicator);
  set(status, MPI_Gatherv(buffer(send), *send_count, type(send_type), buffer(recv), Integers(counts, on),
                          Integers(displacements, on), type(recv_type), *root, on));
}

WEFT_FORTRAN(mpi_scatter, MPI_SCATTER,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer recv_count, Integer recv_type,
              Integer root, Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Scatter(buffer(send), *send_count, type(send_type), buffer(recv), *recv_count, type(recv_type), *root,
                          comm(communicator)));
}

WEFT_FORTRAN(mpi_scatterv, MPI_SCATTERV,
             (void* send, Integer counts, Integer displacements, Integer send_type, void* recv, Integer recv_count,
              Integer recv_type, Integer root, Integer communicator, MPI_Fint* status)) {
  auto const on = comm(communicator);
  set(status, MPI_Scatterv(buffer(send), Integers(counts, on), Integers(displacements, on), type(send_type),
                           buffer(recv), *recv_count, type(recv_type), *root, on));
}

WEFT_FORTRAN(mpi_allgather, MPI_ALLGATHER,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer recv_count, Integer recv_type,
              Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Allgather(buffer(send), *send_count, type(send_type), buffer(recv), *recv_count, type(recv_type),
                            comm(communicator)));
}

WEFT_FORTRAN(mpi_allgatherv, MPI_ALLGATHERV,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer counts, Integer displacements,
              Integer recv_type, Integer communicator, MPI_Fint* status)) {
  auto const on = comm(communicator);
  set(status, MPI_Allgatherv(buffer(send), *send_count, type(send_type), buffer(recv), Integers(counts, on),
                             Integers(displacements, on), type(recv_type), on));
}

WEFT_FORTRAN(mpi_alltoall, MPI_ALLTOALL,
             (void* send, Integer send_count, Integer send_type, void* recv, Integer recv_count, Integer recv_type,
              Integer communicator, MPI_Fint* status)) {
  set(status, MPI_Alltoall(buffer(send), *send_count, type(send_type), buffer(recv), *recv_count, type(recv_type),
                           comm(communicator)));
}

WEFT_FORTRAN(mpi_alltoallv, MPI_ALLTOALLV,
             (void* send, Integer send_counts, Integer send_displacements, Integer send_type, void* recv,
              Integer recv_counts, Integer recv_displacements, Integer recv_type, Integer communicator,
              MPI_Fint* status)) {
  auto const on = comm(communicator);
  set(status,
      MPI_Alltoallv(buffer(send), Integers(send_counts, on), Integers(send_displacements, on), type(send_type),
                    buffer(recv), Integers(recv_counts, on), Integers(recv_displacements, on), type(recv_type), on));
}

}  // extern "C"

#endif
