! mpi_f08's entry points, where handles are types and the status argument may be left out.
program reductions_f08
  use mpi_f08
  implicit none
  integer :: rank, ranks, ierr
  integer :: values(4), all(64)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  values = rank + [1, 2, 3, 4]
  call MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
  print '(a,i0,4i6)', 'allreduce ', rank, values
  call MPI_Allgather(rank * 10, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  print '(a,i0,4i3,i3)', 'allgather ', rank, all(1:ranks), ierr
  call MPI_Barrier(MPI_COMM_WORLD)
  call MPI_Finalize()
end program
